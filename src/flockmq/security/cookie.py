"""The cookie: the secret that all nodes of a cluster share, prove to know, and never send.

```
 --cookie-file F   else  FLOCKMQ_COOKIE   else  the user's own file (made on the first start, mode 0600)
        `--------------------+-------------------------'
                             v
                 at least 128 bits, one word  -->  derive_key(cookie, purpose): a key for each use
```
The user's own file is ``flockmq/cookie`` in ``$XDG_CONFIG_HOME`` or ``~/.config``, so nodes that one user starts on one
machine find each other without a flag. There is no default cookie: a secret that is in the source is none.
"""

from __future__ import annotations

import math
import os
import secrets
import stat
import string
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from flockmq.errors import ConfigError
from flockmq.security.files import locked_folder, read_bytes, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "FLOCKMQ_COOKIE"
BITS_MIN: Final = 128
MINTED_BYTES: Final = 32
COOKIE_BYTES_MAX: Final = 4_096
DISTINCT_MIN: Final = 8
"""A random cookie has more different characters than this, unless a key got stuck while it was typed."""
KEY_BYTES: Final = 32
_SALT: Final = b"FlockMQ cluster cookie, version 1"
_ALPHABETS: Final = (
    frozenset(string.digits),
    frozenset(string.digits + "abcdef"),
    frozenset(string.digits + "ABCDEF"),
    frozenset(string.ascii_lowercase),
    frozenset(string.digits + string.ascii_lowercase),
    frozenset(string.digits + string.ascii_letters),
    frozenset(string.digits + string.ascii_letters + string.punctuation),
)
HOW_TO: Final = "make one with: openssl rand -hex 32"


class Cookie(NamedTuple):
    """A cookie, and where it is from."""

    value: bytes
    source: str
    """For people: a path, or the name of the variable."""
    warning: str = ""
    """What should be better about it; empty when all is well."""

    def __repr__(self) -> str:
        """Without the secret: tracebacks and logs are read by others."""
        return f"Cookie(source={self.source!r})"


def load_cookie(cookie_file: str = "", environment: Mapping[str, str] = os.environ) -> Cookie:
    """This node's cookie; a missing one is made in the user's own file. ConfigError tells what is wrong with it."""
    if cookie_file:
        path = Path(cookie_file)
        value = parse_cookie(_read(path), f"The cookie file {path}")
        return Cookie(value, str(path), _check_mode(path, is_own=False))
    if VARIABLE in environment:
        return Cookie(parse_cookie(os.fsencode(environment[VARIABLE]), VARIABLE), VARIABLE)
    path = cookie_path(environment)
    if not path.exists():
        _mint(path)
    _check_mode(path, is_own=True)
    return Cookie(parse_cookie(_read(path), f"The cookie file {path}"), str(path))


def cookie_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's own cookie is."""
    base = environment.get("XDG_CONFIG_HOME")
    home = environment.get("HOME")
    folder = Path(base) if base else (Path(home) if home else Path.home()) / ".config"
    return folder / "flockmq" / "cookie"


def parse_cookie(data: bytes, what: str) -> bytes:
    """The cookie without the white space around it; ConfigError when it could be guessed. ``what`` begins the error."""
    value = data.strip()
    if not value:
        raise ConfigError(f"{what} is empty; {HOW_TO}")
    if len(value) > COOKIE_BYTES_MAX:
        raise ConfigError(f"{what} has more than {COOKIE_BYTES_MAX:,} bytes, no cookie has; is it the right one?")
    text = value.decode("ascii", "replace")
    if any(char not in _ALPHABETS[-1] for char in text):
        raise ConfigError(f"{what} must be one word of letters, digits and signs, without spaces; {HOW_TO}")
    bits = int(len(text) * math.log2(min(len(one) for one in _ALPHABETS if one.issuperset(text))))
    if bits < BITS_MIN or len(set(text)) < DISTINCT_MIN:
        raise ConfigError(f"{what} could be guessed: it has less than {BITS_MIN} random bits; {HOW_TO}")
    return value


def derive_key(cookie: bytes, purpose: str) -> bytes:
    """32 bytes for one purpose; one of these keys reveals neither the cookie nor another key."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=_SALT, info=purpose.encode()).derive(cookie)


def _mint(path: Path) -> None:
    """Make the file, once: of nodes that start together one writes it, whole, and all read the same."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path.parent} for the cookie can't be made ({error.strerror}); give a --cookie-file."
        ) from None
    with locked_folder(path.parent):
        if not path.exists():
            replace_file(path, f"{secrets.token_hex(MINTED_BYTES)}\n".encode())


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise ConfigError(f"The cookie file {path} is a folder; name a file.")
    return read_bytes(path, "cookie file")


def _check_mode(path: Path, *, is_own: bool) -> str:
    """ConfigError when others can change the file, or can read one that should be the user's own; else a warning.

    Container platforms hand secrets over in files that every user inside can read, so a named file may be like that.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ConfigError(f"The cookie file {path} can't be read ({error.strerror}).") from None
    if mode & 0o022 or (is_own and mode & 0o077):
        done = "changed" if mode & 0o022 else "read"
        raise ConfigError(
            f"The cookie file {path} can be {done} by other users (mode {mode:04o}); make it private: chmod 600 {path}"
        )
    if mode & 0o044:
        return f"The cookie file {path} can be read by other users (mode {mode:04o}); chmod 600 keeps it private."
    return ""
