"""Runs a project of ``flockmq pipeline init`` once: what its ``run.py`` does.

```
 this process: a local Spark that others may use (Spark Connect, on loopback, with a token)
      `--> pyspark.pipelines.cli run --spec spark-pipeline.yml --> tables/ (Parquet), state/ (checkpoints)
                                                                       |
                          show: rows of each table <-------------------'
```
Spark's own catalog is in memory: with it a second run would find the folders of its tables and not know them. So it is
Hive's, in ``catalog/``. ``spark-pipelines`` would start a second JVM and take one fixed port for Spark Connect.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.run import away_from_screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC: Final = "spark-pipeline.yml"
TABLES: Final = "tables"
CATALOG: Final = "catalog"
LOG: Final = "spark.log"
ROWS_SHOWN: Final = 10
SHOWN: Final = "machines"
"""The table whose rows are shown."""
HOST: Final = "localhost"
"""Spark lets a token travel without TLS to this name alone."""


def run_project(folder: Path, arguments: Sequence[str]) -> int:
    """Run it and show what the tables have; the exit code."""
    asked, rest = _parser().parse_known_args(arguments)
    action = ["dry-run" if asked.dry_run else "run", "--spec", str(folder / SPEC), *rest]
    command = [sys.executable, "-m", "pyspark.pipelines.cli", *action]
    try:
        with _server(folder, asked) as environment:
            code = subprocess.run(command, check=False, env={**os.environ, **environment}, cwd=folder).returncode  # noqa: S603
    except FlockError as error:
        print(error, file=sys.stderr)  # noqa: T201  (a program)
        return 1
    if code and asked.remote is None:
        print(f"It failed; Spark's own log is {folder / LOG}", file=sys.stderr)  # noqa: T201
    elif not asked.dry_run and asked.remote is None:
        show(folder)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run.py", description="Run the pipeline over what came since the last time.")
    parser.add_argument("--dry-run", action="store_true", help="check everything, run nothing")
    parser.add_argument("--remote", help="sc://..., a Spark Connect server; without it Spark runs here")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="K=V", help="a setting of Spark, when it runs here"
    )
    parser.add_argument("--quick", action="store_true", help="start sooner and compute slower: for a little data")
    return parser


@contextlib.contextmanager
def _server(folder: Path, asked: argparse.Namespace) -> Iterator[dict[str, str]]:
    """A Spark to run it on; the variables that lead there."""
    if asked.remote is not None:
        yield {"SPARK_REMOTE": asked.remote}
        return
    from flockmq.spark.session import build

    token = secrets.token_hex(32)
    connect = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.authenticate.token": token,
    }
    (folder / CATALOG).mkdir(exist_ok=True)
    given = dict(one.partition("=")[::2] for one in asked.conf)
    with (folder / LOG).open("wb") as log, away_from_screen(log.fileno()):
        spark = build(folder.name, conf={**settings(folder), **connect, **given}, quick=asked.quick)
    try:
        yield {"SPARK_REMOTE": f"sc://{HOST}:{_port_of(spark)}", "SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    finally:
        spark.stop()


def settings(folder: Path) -> dict[str, str]:
    """Where tables are, and the catalog that knows them."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"file://{folder / TABLES}",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / CATALOG}/db;create=true",
        "spark.driver.extraJavaOptions": f'-Dderby.stream.error.file="{folder / CATALOG}/derby.log"',
    }


def _port_of(spark: SparkSession) -> int:
    """The port that Spark Connect took; PySpark's own tests ask for it in this way."""
    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def show(folder: Path) -> None:
    """How many rows each table has, and the first of one of them."""
    from pyarrow import dataset

    for place in sorted((folder / TABLES).iterdir()):
        rows = dataset.dataset(place, format="parquet", exclude_invalid_files=True).count_rows()
        print(f"{place.name:10} {rows:>12,} rows")  # noqa: T201  (a program)
    chosen = folder / TABLES / SHOWN
    if chosen.is_dir():
        first = dataset.dataset(chosen, format="parquet", exclude_invalid_files=True).head(ROWS_SHOWN)
        print(f"\n{first.to_pandas().to_string(index=False)}")  # noqa: T201
