"""Makes a Declarative Pipelines project: what ``flockmq pipeline init DIR`` does.

```
 project/ (beside this file) --> DIR/ README.md, run.py, spark-pipeline.yml, transformations/
```
The files are copied as they are, with the folder's name and path put in: Spark wants an absolute path for checkpoints.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from flockmq.errors import FlockError

TEMPLATE: Final = Path(__file__).with_name("project")
STATE: Final = "state"
"""Folder of checkpoints, beside the tables."""


def make_project(folder: Path) -> list[Path]:
    """Write a project into a folder that is new or empty; the files of it."""
    place = folder.expanduser().absolute()
    if quote(str(place)) != str(place):
        raise FlockError(
            f"Spark would keep its checkpoints beside {place} instead of in it; name a folder whose whole path is of "
            "letters, digits, - and _."
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise FlockError(f"{folder} is not empty; name a folder that is new, so that nothing is overwritten.")
        return [_write(source, place) for source in _sources()]
    except OSError as error:
        raise FlockError(f"The project can't be written to {folder} ({error}); name another folder.") from error


def _sources() -> list[Path]:
    return sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _write(source: Path, place: Path) -> Path:
    target = place / source.relative_to(TEMPLATE)
    target.parent.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", place.name).strip("-") or "plant"
    text = source.read_text("utf-8").replace("@NAME@", name).replace("@STORAGE@", f"file://{place / STATE}")
    target.write_text(text, "utf-8")
    return target
