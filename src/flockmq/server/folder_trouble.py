"""Why a data folder can't be written, and what to do: one sentence for each way in which disks refuse."""

from __future__ import annotations

import errno
import getpass
import os
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM)
DISK_ERRORS: Final = (*_FULL, *_FORBIDDEN, errno.EROFS, errno.EIO)


def is_trouble_with(folder: Path, error: OSError) -> bool:
    """Whether an error is a disk's, and about a file in this folder."""
    if error.errno not in DISK_ERRORS:
        return False
    if not isinstance(error.filename, (str, bytes)):
        return error.errno not in _FORBIDDEN  # the process may not do something else, such as listen on a low port
    return Path(os.fsdecode(error.filename)).absolute().is_relative_to(folder.absolute())


def why_unwritable(folder: Path, error: OSError) -> str:
    """The sentence for people."""
    what = f"The data folder {folder} can't be written ({error.strerror})"
    if error.errno == errno.EROFS:
        return f"{what}: its file system is read-only; find out why, mount it for writing, and start this node again."
    if error.errno in _FULL:
        return f"{what}: there is no room; free some, or move the folder to a larger disk, and start this node again."
    if error.errno in _FORBIDDEN:
        return f"{what}: give it to the user {_user()}, or give this node another one with --data-dir."
    return f"{what}: the disk fails; look at it, replace it, and start this node again."


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())  # a user without a name, as in containers
