"""The password file: which users exist and how their passwords are checked. Parsed strictly, replaced atomically.

```
 # comment
 alice:$argon2id$v=19$m=65536,t=3,p=4$SALT$HASH:$scram-sha-256$i=32768$SALT$STORED$SERVER
 `name  `checks a password in a CONNECT         `optional: checks a SCRAM exchange
```
Salts, hashes and keys are base64. One bad line spoils the whole file: a broker that skipped it would silently
lock a user out, or let one in that should be out.
"""

from __future__ import annotations

import binascii
import re
import secrets
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher

from flockmq.errors import ConfigError
from flockmq.security.files import locked_folder, read_text, replace_file
from flockmq.security.saslprep import saslprep
from flockmq.security.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    KEY_BYTES,
    SALT_BYTES,
    ScramKeys,
    derive_keys,
)

PASSWORD_BYTES_MAX: Final = 4_096
MEMORY_KIB_MAX: Final = 1_048_576
"""Most memory that one hash in the file may ask for: 1 GiB."""
WORK_KIB_MAX: Final = 16 * MEMORY_KIB_MAX
"""And most of it times iterations: a login takes seconds then."""
_ARGON2: Final = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,10}),t=(\d{1,10}),p=(\d{1,4})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})"
)
_SCRAM: Final = re.compile(r"\$scram-sha-256\$i=(\d{1,9})\$([^$]+)\$([^$]+)\$([^$]+)")


@dataclass(frozen=True, slots=True)
class HashCost:
    """What one check of a password costs: the broker as well as a guesser. Defaults: RFC 9106, second choice."""

    iterations: int = 3
    memory_kib: int = 65_536
    lanes: int = 4


@dataclass(frozen=True, slots=True)
class User:
    """One line of the file."""

    name: str
    password_hash: str = field(repr=False)
    scram: ScramKeys | None = field(default=None, repr=False)


class Users:
    """All users of a file, and what a user that does not exist must look like among them."""

    def __init__(self, users: dict[str, User]) -> None:
        self._users = users
        costs = Counter(user.password_hash.rsplit("$", 2)[0] for user in users.values())
        # Most like the others, so that the time it takes to refuse does not tell an unknown name from a known one.
        self.dummy_hash = dummy_hash(f"{costs.most_common(1)[0][0]}$$")
        iterations = Counter(user.scram.iterations for user in users.values() if user.scram is not None)
        self.scram_iterations = iterations.most_common(1)[0][0] if iterations else ITERATIONS_DEFAULT
        self.has_scram = bool(iterations)

    def __repr__(self) -> str:
        return f"Users({len(self)})"

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """The user of this name."""
        return self._users.get(name)


def dummy_hash(like: str) -> str:
    """A hash that no password fits, and that costs as much as another one."""
    return f"{like.rsplit('$', 2)[0]}${_random(16)}${_random(32)}"


def load_users(path: Path) -> Users:
    """Read a password file; ConfigError names the line that can't be used."""
    users = {user.name: user for _, user in _parse(path, read_text(path, "password file"))}
    if not users:
        raise ConfigError(f"The password file {path} has no users; add one with: flockmq passwd {path} NAME")
    return Users(users)


def read_secrets(path: Path) -> dict[str, str]:
    """What a password file has behind each name, checked as ``load_users`` does, to be kept elsewhere."""
    users = [user for _, user in _parse(path, read_text(path, "password file"))]
    return {user.name: _format(user).removeprefix(f"{user.name}:") for user in users}


def set_password(
    path: Path | str,
    user: str,
    password: bytes | str,
    *,
    cost: HashCost | None = None,
    scram_iterations: int = ITERATIONS_DEFAULT,
) -> bool:
    """Add a user or change its password; true when the user is new. ``scram_iterations`` 0 leaves SCRAM out."""
    path = Path(path)
    _check_name(user)
    line = _format(_make_user(user, password, cost or HashCost(), scram_iterations))
    with locked_folder(path.resolve().parent):
        text = read_text(path, "password file") if path.exists() else "# Written by flockmq passwd\n"
        lines = _lines(text)
        known = {found.name: index for index, found in _parse(path, text)}
        if user in known:
            lines[known[user]] = line
        else:
            lines.append(line)
        replace_file(path, _join(lines))
    return user not in known


def make_secret(name: str, password: bytes | str, *, cost: HashCost | None = None) -> str:
    """What is kept of a password outside of files, in the same form: ``HASH`` or ``HASH:SCRAM KEYS``. Takes long.

    ConfigError when the password can't be used. SCRAM is left out for names and passwords that it can't have.
    """
    try:
        user = _make_user(name, password, cost or HashCost(), ITERATIONS_DEFAULT)
    except ConfigError:
        user = _make_user(name, password, cost or HashCost(), 0)
    return _format(user).removeprefix(f"{name}:")


def parse_secret(name: str, secret: str) -> User:
    """Take a secret apart; without a hash there is no password login. ConfigError when it can't be understood."""
    place = f"The secret of {name!r}"
    if secret.startswith("$scram-sha-256$"):
        return User(name, "", _parse_scram(place, name, secret))
    password_hash, colon, keys = secret.partition(":")
    _check_hash(place, name, password_hash)
    return User(name, password_hash, _parse_scram(place, name, keys) if colon else None)


def delete_user(path: Path | str, user: str) -> None:
    """Take a user out of the file; ConfigError when it is not in there, or is the last one."""
    path = Path(path)
    with locked_folder(path.resolve().parent):
        text = read_text(path, "password file")
        known = {found.name: index for index, found in _parse(path, text)}
        if user not in known:
            raise ConfigError(f"The password file {path} has no user {user!r}.")
        if len(known) == 1:
            raise ConfigError(
                f"{user!r} is the last user in {path}, and a broker does not accept an empty password file (it would "
                "keep the old one); add another user first, or set a new password for this one."
            )
        lines = _lines(text)
        del lines[known[user]]
        replace_file(path, _join(lines))


def _parse(path: Path, text: str) -> list[tuple[int, User]]:
    """All users with the index of their line."""
    users: list[tuple[int, User]] = []
    seen: dict[str, int] = {}
    for index, line in enumerate(_lines(text)):
        if not line.strip() or line.startswith("#"):
            continue
        place = f"The password file {path}, line {index + 1}"
        user = _parse_line(place, line)
        if user.name in seen:
            raise ConfigError(
                f"{place}: the user {user.name!r} is already in line {seen[user.name]}; remove one of them."
            )
        seen[user.name] = index + 1
        users.append((index, user))
    return users


def _parse_line(place: str, line: str) -> User:
    """The user in a line. Errors show the name at most: what follows it is not for logs."""
    name, *parts = line.rstrip().split(":")
    if not 1 <= len(parts) <= 2:
        raise ConfigError(f"{place} is not of the form NAME:HASH; set the password anew with flockmq passwd.")
    problem = _name_problem(name)
    if problem:
        raise ConfigError(f"{place}: the user name {name!r} {problem}.")
    _check_hash(place, name, parts[0])
    return User(name, parts[0], _parse_scram(place, name, parts[1]) if len(parts) == 2 else None)


def _check_hash(place: str, name: str, password_hash: str) -> None:
    match = _ARGON2.fullmatch(password_hash)
    if match is None:
        raise ConfigError(
            f"{place}: the hash of {name!r} is not an argon2id hash; set the password anew with flockmq passwd."
        )
    iterations, memory_kib, lanes = int(match[2]), int(match[1]), int(match[3])
    is_cost = iterations >= 1 and 1 <= lanes <= 255 and 8 * lanes <= memory_kib
    if not is_cost or memory_kib > MEMORY_KIB_MAX or iterations * memory_kib > WORK_KIB_MAX:
        raise ConfigError(
            f"{place}: the hash of {name!r} has a cost that argon2id can't have or that is out of reason."
        )
    if len(match[4]) % 4 == 1 or len(match[5]) % 4 == 1:
        raise ConfigError(f"{place}: the hash of {name!r} is cut off; set the password anew with flockmq passwd.")


def _parse_scram(place: str, name: str, text: str) -> ScramKeys:
    match = _SCRAM.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in match.groups()[1:])
        if len(salt) < 8 or len(stored_key) != KEY_BYTES or len(server_key) != KEY_BYTES:
            raise ValueError
        if not ITERATIONS_MIN <= int(match[1]) <= ITERATIONS_MAX:
            raise ValueError
    except (binascii.Error, ValueError):
        raise ConfigError(
            f"{place}: the SCRAM keys of {name!r} are malformed; set the password anew with flockmq passwd."
        ) from None
    return ScramKeys(int(match[1]), salt, stored_key, server_key)


def _make_user(name: str, password: bytes | str, cost: HashCost, scram_iterations: int) -> User:
    secret = password.encode() if isinstance(password, str) else password
    if not secret:
        raise ConfigError("The password is empty; give one with at least one character.")
    if len(secret) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"The password is longer than {PASSWORD_BYTES_MAX} bytes; choose a shorter one.")
    hasher = PasswordHasher(time_cost=cost.iterations, memory_cost=cost.memory_kib, parallelism=cost.lanes)
    keys = _make_scram_keys(name, secret, scram_iterations) if scram_iterations else None
    return User(name, hasher.hash(secret), keys)


def _make_scram_keys(name: str, secret: bytes, iterations: int) -> ScramKeys:
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"SCRAM needs {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations, not {iterations}.")
    try:
        if saslprep(name) != name:
            raise ConfigError(f"SCRAM would spell the user name {name!r} as {saslprep(name)!r}; use that one.")
        return derive_keys(secret.decode("utf-8"), secrets.token_bytes(SALT_BYTES), iterations)
    except ValueError as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(
            f"The user name or password can't be used with SCRAM ({why}); choose another one, or leave SCRAM out."
        ) from None


def _format(user: User) -> str:
    line = f"{user.name}:{user.password_hash}"
    if user.scram is None:
        return line
    salt, stored, server = (
        b64encode(part).decode("ascii") for part in (user.scram.salt, user.scram.stored_key, user.scram.server_key)
    )
    return f"{line}:$scram-sha-256$i={user.scram.iterations}${salt}${stored}${server}"


def _lines(text: str) -> list[str]:
    """Lines as editors see them; ``splitlines`` would also part a comment at invisible characters."""
    return text.removesuffix("\n").split("\n") if text else []


def _join(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _check_name(name: str) -> None:
    problem = _name_problem(name)
    if problem:
        raise ConfigError(f"The user name {name!r} {problem}; choose another one.")


def _name_problem(name: str) -> str:
    if not name:
        return "is empty"
    if ":" in name or not name.isprintable():
        return "holds a colon or a character that can't be printed"
    if name != name.strip() or name.startswith("#"):
        return "begins with # or has blanks around it"
    return ""


def _random(size: int) -> str:
    return b64encode(secrets.token_bytes(size)).decode("ascii").rstrip("=")
