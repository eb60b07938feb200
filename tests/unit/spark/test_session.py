"""What sessions are given, by where they run. Real ones are in tests/spark."""

from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.spark.session import build, lightened, settings_for

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_locally_everything_is_on_loopback_and_small() -> None:
    found = settings_for("local[2]")
    assert found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"
    assert found[FILE_MANAGER].endswith("FileSystemBasedCheckpointFileManager")
    assert 1 <= int(found["spark.sql.shuffle.partitions"]) <= 8


@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://https://host:6443", "yarn", None])
def test_what_a_cluster_decides_is_left_to_it(master: str | None) -> None:
    found = settings_for(master)
    assert not {"spark.driver.host", "spark.ui.enabled", FILE_MANAGER, "spark.sql.shuffle.partitions"} & set(found)
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.python.filterPushdown.enabled"] == "true"
    assert found["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")


def test_what_is_asked_for_wins() -> None:
    found = settings_for("local[2]", {"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "3"})
    assert (found["spark.ui.enabled"], found["spark.sql.shuffle.partitions"]) == ("true", "3")


def test_one_place_only() -> None:
    with pytest.raises(FlockError, match="give one of them"):
        build("x", master="local[1]", remote="sc://host")


def test_a_remote_that_is_none() -> None:
    with pytest.raises(FlockError, match="write it like sc://"):
        build("x", remote="spark://host:7077")


def test_what_is_given_wins_over_a_light_session() -> None:
    assert lightened("") == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    assert lightened("-XX:TieredStopAtLevel=4").endswith(" -XX:TieredStopAtLevel=4")
    assert lightened("-XX:+UseG1GC") == "-XX:TieredStopAtLevel=1 -XX:+UseG1GC"
