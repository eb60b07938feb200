"""What tests with Spark share: one cluster and one Spark session for all of them.

```
 xdist group "spark" --> all tests in one process --> once: cluster (three nodes), session (one JVM)
```
Without Java, CI fails and everybody else skips these tests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from flockmq.errors import FlockError
from spark.nodes import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: Final = Path(__file__).parent
TEST_S_MAX: Final = 240
"""The first test pays for the start of cluster and session."""
WARNINGS: Final = (
    "ignore:::pyspark",
    # Sockets of py4j are closed by the garbage collector, whenever it likes.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One group, so that tests share what is slow to start; and time for it."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))
        for known in WARNINGS:
            item.add_marker(pytest.mark.filterwarnings(known))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Three nodes."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def _whole_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nodes that a test killed run again before the next one."""
    nodes = request.getfixturevalue("cluster") if "cluster" in request.fixturenames else None
    yield
    if nodes is not None:
        nodes.mend()


@pytest.fixture(scope="session")
def java() -> Path:
    """Java 17 or newer: else no test with Spark can run."""
    from flockmq.spark.java import find

    try:
        return find()
    except FlockError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: Path, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session that all tests share: give queries names or checkpoints of their own, and stop them."""
    from pyspark import cloudpickle

    from flockmq.spark.session import build

    # Workers can't import test modules: functions in them travel as they are.
    for module in {getattr(item, "module", None) for item in request.session.items}:
        if module is not None and HERE in Path(str(module.__file__)).parents and module.__name__ in sys.modules:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    session = build("tests", master="local[2]", quick=True)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_queries_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A query that a test forgot must not disturb the next one."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    for query in session.streams.active if session is not None else ():
        query.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A checkpoint folder of one's own."""
    return str(tmp_path / "checkpoint")
