"""Files of a lake, on a disk that driver and workers share or behind a URL that Spark's Hadoop client knows.

```
 open_folder("/lake", spark)          --> LocalFolder: os calls
 open_folder("s3a://bucket", spark)   --> HadoopFolder: org.apache.hadoop.fs, with Spark's own settings and credentials
```
Only what a table needs: list, move, remove, read, and create a file only if it is new, which makes commits safe. Paths
inside are relative to the folder, with slashes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from flockmq.errors import FlockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as a listing shows it."""

    path: str
    """Relative to the folder."""
    size: int
    modified_ms: int


class LocalFolder:
    """On a disk."""

    def __init__(self, path: str) -> None:
        self.path = str(Path(path).absolute())

    def url(self, path: str) -> str:
        """The whole address of a file, as Spark writes it."""
        return (Path(self.path) / path).as_uri()

    def files(self, path: str) -> list[FileEntry]:
        """All files below a folder, sorted; none where it does not exist."""
        root = Path(self.path) / path
        found = []
        for folder, _folders, names in os.walk(root):
            for name in names:
                full = Path(folder) / name
                with contextlib.suppress(FileNotFoundError):  # another writer is at work, too
                    status = full.stat()
                    relative = full.relative_to(self.path).as_posix()
                    found.append(FileEntry(relative, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda entry: entry.path)

    def move(self, source: str, target: str) -> None:
        """Move a file, replacing what is there."""
        full = Path(self.path) / target
        full.parent.mkdir(parents=True, exist_ok=True)
        (Path(self.path) / source).replace(full)

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder, if it exists."""
        full = Path(self.path) / path
        if full.is_dir():
            shutil.rmtree(full, ignore_errors=True)
        else:
            full.unlink(missing_ok=True)

    def read(self, path: str) -> str | None:
        """Text of a file; None where it does not exist."""
        try:
            return (Path(self.path) / path).read_text("utf-8")
        except FileNotFoundError:
            return None

    def create(self, path: str, text: str) -> bool:
        """Write a file that appears whole; False, and nothing done, where there is one of that name."""
        with self._draft(path, text) as draft:
            try:
                os.link(draft, Path(self.path) / path)
            except FileExistsError:
                return False
        return True

    def replace(self, path: str, text: str) -> None:
        """Write a file that appears whole in the place of the one before."""
        with self._draft(path, text) as draft:
            draft.replace(Path(self.path) / path)

    @contextlib.contextmanager
    def _draft(self, path: str, text: str) -> Iterator[Path]:
        full = Path(self.path) / path
        full.parent.mkdir(parents=True, exist_ok=True)
        draft = full.parent / f".{full.name}.{uuid.uuid4().hex}.tmp"
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)


class HadoopFolder:
    """Behind a URL."""

    def __init__(self, path: str, spark: Any) -> None:
        self.path = path.rstrip("/")
        self._jvm = spark._jvm
        self._fs = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{path}".rstrip("/"))

    def url(self, path: str) -> str:
        """See LocalFolder."""
        return str(self._fs.makeQualified(self._path(path)).toUri().toString())

    def files(self, path: str) -> list[FileEntry]:
        """See LocalFolder."""
        if not self._fs.exists(self._path(path)):
            return []
        base = str(self._fs.makeQualified(self._path("")).toString())
        found = []
        entries = self._fs.listFiles(self._path(path), True)
        while entries.hasNext():
            entry = entries.next()
            full = str(entry.getPath().toString())
            found.append(FileEntry(full[len(base) + 1 :], int(entry.getLen()), int(entry.getModificationTime())))
        return sorted(found, key=lambda entry: entry.path)

    def move(self, source: str, target: str) -> None:
        """See LocalFolder."""
        full = self._path(target)
        self._fs.mkdirs(full.getParent())
        self._fs.delete(full, False)
        if not self._fs.rename(self._path(source), full):
            raise FlockError(f"{self.path}/{source} could not be moved to {target}; look at the file system's own log.")

    def remove(self, path: str) -> None:
        """See LocalFolder."""
        self._fs.delete(self._path(path), True)

    def read(self, path: str) -> str | None:
        """See LocalFolder."""
        full = self._path(path)
        if not self._fs.exists(full):
            return None
        stream = self._fs.open(full)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8")
        finally:
            stream.close()

    def create(self, path: str, text: str) -> bool:
        """See LocalFolder. The second creator gets an error from the file system."""
        full = self._path(path)
        if self._fs.exists(full):
            return False
        draft = self._write(path, text)
        self._fs.mkdirs(full.getParent())
        if self._fs.rename(draft, full):  # HDFS: false where there is one; object stores have no better
            return True
        self._fs.delete(draft, False)
        return False

    def replace(self, path: str, text: str) -> None:
        """See LocalFolder."""
        full = self._path(path)
        draft = self._write(path, text)
        self._fs.delete(full, False)
        self._fs.rename(draft, full)

    def _write(self, path: str, text: str) -> Any:
        folder, _, name = path.rpartition("/")
        draft = self._path(f"{folder}/.{name}.{uuid.uuid4().hex}.tmp")
        stream = self._fs.create(draft, True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()
        return draft


Folder = LocalFolder | HadoopFolder


def open_folder(path: str, spark: SparkSession | None = None) -> Folder:
    """The folder at a path or URL. URLs need a session with a driver in this process."""
    parts = urlsplit(path)
    if not parts.scheme or parts.scheme == "file":
        return LocalFolder(unquote(parts.path) if parts.scheme else path)
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise FlockError(
            f"{path} can be reached only by a driver that runs here, not through Spark Connect; "
            "use --master, or a path that the server's machines share."
        )
    return HadoopFolder(path, spark)
