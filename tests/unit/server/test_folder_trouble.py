from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from flockmq.server.folder_trouble import is_trouble_with, why_unwritable

FOLDER = Path("/data/flockmq")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EROFS, "mount it for writing"),
        (errno.ENOSPC, "there is no room"),
        (errno.EDQUOT, "there is no room"),
        (errno.EACCES, "--data-dir"),
        (errno.EIO, "the disk fails"),
    ],
)
def test_each_way_has_its_sentence(number: int, advice: str) -> None:
    error = OSError(number, os.strerror(number), str(FOLDER / "boot.new"))
    assert is_trouble_with(FOLDER, error)
    said = why_unwritable(FOLDER, error)
    assert said.startswith(f"The data folder {FOLDER} can't be written")
    assert advice in said
    assert said.endswith(".")


def test_what_is_not_about_the_folder_is_not_its_trouble() -> None:
    assert not is_trouble_with(FOLDER, OSError(errno.EACCES, "Permission denied", "/etc/shadow"))
    assert not is_trouble_with(FOLDER, OSError(errno.EACCES, "Permission denied"))
    assert not is_trouble_with(FOLDER, OSError(errno.ECONNRESET, "Connection reset", str(FOLDER / "x")))
    assert is_trouble_with(FOLDER, OSError(errno.ENOSPC, "No space left on device"))
