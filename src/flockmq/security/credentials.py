"""The admin token: minted on a broker's first start, kept by its user, known to the broker only as a hash.

```
 first start:  mint_token() --> the user's credentials file (0600)      what CLI and tools of that user send
                          `---> admin-token.sha256 in the data folder   what the broker compares with
```
The file is ``$FLOCKMQ_CREDENTIALS``, else ``flockmq/credentials.toml`` in ``$XDG_CONFIG_HOME`` or ``~/.config``. A
token has 256 random bits, so a plain SHA-256 of it gives nothing away; a password would need more.

Clusters that take turns at one address each have a token there, told apart by the cluster's id (``choose``). A token is
only ever sent to an address that it was kept for, whatever cluster the server at another one says that it is.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import stat
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from flockmq.errors import ConfigError, FlockError
from flockmq.security.files import locked_folder, read_text, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOKEN_BYTES: Final = 32
HASH_FILE: Final = "admin-token.sha256"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_THIS_MACHINE: Final = ("localhost", "::1")
_HEADER: Final = (
    "# Tokens of FlockMQ brokers, by address and cluster.\n"
    "# A reader of this file is their administrator: keep it private.\n"
)
KEPT_MAX: Final = 32
"""Tokens that are kept for one address; the oldest give way. Clusters that were made to be thrown away leave theirs."""


@dataclass(frozen=True)
class Kept:
    """A token in the file. ``cluster`` is the id of its cluster in hexadecimal, empty while that is not known."""

    server: str
    cluster: str
    token: str


def mint_token() -> str:
    """A new token; its prefix lets scanners for leaked secrets know it."""
    return f"flockmq_{secrets.token_urlsafe(TOKEN_BYTES)}"


def token_hash(token: str) -> str:
    """What may be stored of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def verify(token: str, known_hash: str) -> bool:
    """Whether a token is the one with this hash; takes as long for nearly right as for quite wrong."""
    return hmac.compare_digest(token_hash(token), known_hash)


def credentials_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's tokens are."""
    named = environment.get("FLOCKMQ_CREDENTIALS")
    if named:
        return Path(named)
    base = environment.get("XDG_CONFIG_HOME")
    home = environment.get("HOME")
    folder = Path(base) if base else (Path(home) if home else Path.home()) / ".config"
    return folder / "flockmq" / "credentials.toml"


def load(server_url: str, environment: Mapping[str, str] = os.environ, *, cluster: str = "") -> str | None:
    """The token to send to a server: ``FLOCKMQ_TOKEN``, else that of the credentials file; None when there is none."""
    token = environment.get("FLOCKMQ_TOKEN")
    if token:
        return token
    return choose(kept(server_url, environment), cluster)


def kept(server_url: str, environment: Mapping[str, str] = os.environ) -> list[Kept]:
    """The tokens that the credentials file has for an address, oldest first."""
    address = _normal(server_url)
    return [one for one in _read(credentials_path(environment)) if one.server == address]


def choose(found: Sequence[Kept], cluster: str) -> str | None:
    """The token of a cluster; else the newest whose cluster is not known. The newest of all if ``cluster`` is empty."""
    for suits in (lambda one: cluster and one.cluster == cluster, lambda one: not one.cluster, lambda _: not cluster):
        for one in reversed(found):
            if suits(one):
                return one.token
    return None


def servers(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The servers that this user has tokens for."""
    return list(dict.fromkeys(one.server for one in _read(credentials_path(environment))))


def save(server_url: str, token: str, environment: Mapping[str, str] = os.environ, *, cluster: str = "") -> Path:
    """Keep a token for a server in the credentials file, beside those of other clusters; returns where."""
    if not (token and token.isascii() and token.isprintable()):
        raise FlockError("The admin token holds characters that no token has; copy it again.")
    new = Kept(_normal(server_url), cluster, token)
    path = credentials_path(environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path.parent} can't be made ({error.strerror}); name another file in FLOCKMQ_CREDENTIALS."
        ) from None
    with locked_folder(path.parent):
        _write(path, _with(_read(path), new))
    return path


def recognise(server_url: str, known_hash: str, cluster: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user has the token with this hash, for any address; if so it is kept for this one and cluster."""
    address = _normal(server_url)
    found = _read(credentials_path(environment))
    own = next((one for one in reversed(found) if verify(one.token, known_hash)), None)
    if own is None:
        return False
    if Kept(address, cluster, own.token) not in found:
        save(server_url, own.token, environment, cluster=cluster)
    return True


def load_or_mint(data_dir: Path, server_url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The hash of a broker's admin token. The first start mints one and leaves it with the user."""
    path = data_dir / HASH_FILE
    if path.exists():
        known_hash = read_text(path, "admin token hash").strip()
        if not _HASH.fullmatch(known_hash):
            raise ConfigError(
                f"The admin token hash in {path} is damaged; delete the file, then a new token is minted."
            )
        return known_hash
    token = mint_token()
    # The user's copy first: a crash in between costs a token that nothing knows, not a broker that can't be managed.
    save(server_url, token, environment)
    replace_file(path, f"{token_hash(token)}\n".encode())
    return token_hash(token)


def _with(found: list[Kept], new: Kept) -> list[Kept]:
    """All tokens and a new one, which takes the place of itself, and of another of its cluster at its address."""
    rest = [
        one
        for one in found
        if one.server != new.server or (one.token != new.token and (not new.cluster or one.cluster != new.cluster))
    ]
    surplus = [one for one in rest if one.server == new.server][: 1 - KEPT_MAX]
    return [*(one for one in rest if one not in surplus), new]


def _write(path: Path, found: list[Kept]) -> None:
    entries = (
        f"\n[[tokens]]\nserver = {_quote(one.server)}\n"
        + (f"cluster = {_quote(one.cluster)}\n" if one.cluster else "")
        + f"token = {_quote(one.token)}\n"
        for one in found
    )
    replace_file(path, (_HEADER + "".join(entries)).encode())


def _read(path: Path) -> list[Kept]:
    """All tokens, oldest first; none without a file. The first version wrote them as ``[servers.URL]``."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"The credentials file {path} can't be read ({error.strerror}).") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"The credentials file {path} can be read by other users (mode {stat.S_IMODE(mode):04o}); "
            f"make it private: chmod 600 {path}"
        )
    try:
        tree = tomllib.loads(read_text(path, "credentials file"))
        old = [Kept(url, "", _text(entry["token"])) for url, entry in tree.get("servers", {}).items()]
        return old + [
            Kept(_text(entry["server"]), _text(entry.get("cluster", "")), _text(entry["token"]))
            for entry in tree.get("tokens", [])
        ]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The credentials file {path} is not valid TOML: {error}.") from None
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(
            f"The credentials file {path} is malformed; write each token in a table [[tokens]] with "
            'server = "http://127.0.0.1:18083" and token = "...".'
        ) from None


def _normal(server_url: str) -> str:
    """One spelling for an address: lower case, with its port, without path, this machine by number."""
    try:
        parts = urlsplit(server_url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if port is None or not parts.hostname:
        raise FlockError(f"{server_url!r} is not a server address; write it like http://127.0.0.1:18083.")
    host = "127.0.0.1" if parts.hostname in _THIS_MACHINE else parts.hostname
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}"


def _quote(text: str) -> str:
    """A TOML string; it has the same escapes as JSON has."""
    return json.dumps(text, ensure_ascii=False)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
