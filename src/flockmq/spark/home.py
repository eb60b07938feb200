"""A home for Spark from which Python workers start in half the time.

```
 SPARK_HOME of pip:  bin jars sbin + python/lib/pyspark.zip   workers import from the zip, which keeps nothing compiled
 the one made here:  bin jars sbin, as links                  workers import the same package from site-packages
```
Spark puts the zip of its home before everything else on the path of workers, and every question to a data source
starts one. It serves where workers run the Python that runs this, which has the package installed: on this machine.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from flockmq.spark import java

_LINKED: Final = ("bin", "sbin", "jars", "conf", "data")
"""Also ``conf``, which is there only once a user makes it."""
_ZIP: Final = "python/lib/pyspark.zip"


def home() -> Path | None:
    """The folder, made when it is missing; None where Spark does not come from pip or nothing can be written."""
    import pyspark

    package = Path(pyspark.__file__).parent
    if not (package / "jars").is_dir() or not (package / _ZIP).is_file():
        return None
    identity = sha256(f"{package} {pyspark.__version__}".encode()).hexdigest()[:12]
    folder = java.cache_folder() / f"spark-home-{identity}"
    if not folder.is_dir():
        try:
            _make(folder, package)
        except OSError:
            return None
    return folder


def _make(folder: Path, package: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    for name in _LINKED:
        (draft / name).symlink_to(package / name)
    try:
        draft.rename(folder)
    except OSError:
        for name in _LINKED:
            (draft / name).unlink()
        draft.rmdir()
        if not folder.is_dir():  # else another process was faster
            raise


def use() -> None:
    """Let the next JVM have it, unless the user has named a home."""
    if "SPARK_HOME" in os.environ:
        return
    found = home()
    with suppress(OSError):
        if found is not None and (found / "bin" / "spark-submit").is_file():
            os.environ["SPARK_HOME"] = str(found)
