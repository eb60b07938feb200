"""Reading and replacing the small files that security depends on.

A file that can't be read is a sentence that names it. A file is replaced whole or not at all:

```
 lock the folder -> write NAME.tmp (0600) -> fsync -> rename over NAME -> fsync the folder
```
so that a crash leaves the old file or the new one, and two writers at once both get their change in.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from flockmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_BYTES_MAX: Final = 64 * 1024 * 1024


def read_bytes(path: Path, what: str) -> bytes:
    """All of a file; ``what`` names its purpose in the error, like ``password file``."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"The {what} {path} can't be read ({error.strerror}); check its name and its permissions."
        ) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"The {what} {path} is larger than {FILE_BYTES_MAX} bytes; is that the right file?")
    return data


def read_text(path: Path, what: str) -> str:
    """All of a text file, without the byte order mark that some editors leave."""
    data = read_bytes(path, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"The {what} {path} is not UTF-8 text (line {line}); save it as UTF-8.") from None


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other writers of this package out of a folder: reading, changing and replacing a file is one step."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"The folder {folder} can't be opened ({error.strerror}); create it first.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # also unlocks


def exposure(path: Path) -> str:
    """How other users of this machine can get at a secret file, as ``read`` or ``change``; empty when they can't.

    Its group may read it: that is how programs share a key (``ssl-cert``). A file that is not there is no secret yet.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ""
    if mode & 0o022:
        return "change"
    return "read" if mode & 0o004 else ""


def open_private(path: Path) -> TextIO:
    """Make a new text file, mode 0600 whatever the umask is; OSError when there is one."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")  # noqa: PTH123


def make_private(path: Path) -> None:
    """Take from a file, or from a folder with all in it, what other users may do with it, where that is ours to take.

    Links are left alone, and what is behind them.
    """
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            _take_rights(Path(folder) / name)
    _take_rights(path)


def _take_rights(path: Path) -> None:
    with suppress(OSError):  # gone meanwhile, or another user's, or on a file system without modes
        found = path.lstat()
        if stat.S_IMODE(found.st_mode) & 0o077 and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in place of a file, readable by its owner only. An existing file keeps its owner."""
    path = path.resolve()  # a link stays a link
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  (of a descriptor)
                _keep_owner(path, descriptor)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(
            f"{path} can't be written ({error.strerror}); check that its folder exists and is yours."
        ) from None


def _keep_owner(path: Path, descriptor: int) -> None:
    """When root changes a file of the broker's user, that user must still be able to read it."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    if old.st_uid != os.fstat(descriptor).st_uid:
        os.fchown(descriptor, old.st_uid, old.st_gid)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
