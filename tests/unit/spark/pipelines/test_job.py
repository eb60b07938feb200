"""How a job starts, follows and ends queries; those here are stand-ins for Spark's."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines.parameters import Values
from flockmq.spark.pipelines.run import Job, RunSettings, _log_file, _signals, away_from_screen


def report(second: int, rows: int) -> dict[str, Any]:
    return {
        "batchId": second - 1,
        "timestamp": f"2026-03-01T12:00:{second:02}.000Z",
        "durationMs": {"triggerExecution": 5, "addBatch": 1},
        "stateOperators": [],
        "sources": [{"numInputRows": rows}],
    }


class Query:
    """Has a micro-batch under way that ends when somebody has looked at it a few times."""

    name = "q"

    def __init__(self, *, looks: int = 3, ends: bool = False, problem: str = "") -> None:
        self._looks = looks
        self._ends = ends
        self._problem = problem
        self.isActive = True
        self.recentProgress: list[dict[str, Any]] = []
        self.stopped_after = -1

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        self._looks -= 1
        if self._looks == 0:
            self.recentProgress = [report(1, 7)]
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": True}

    def end(self) -> None:
        self.recentProgress = [report(1, 7), report(2, 3)]
        self.isActive = False

    def stop(self) -> None:
        self.isActive = False
        self.stopped_after = len(self.recentProgress)

    def exception(self) -> Exception | None:
        return Exception(self._problem) if self._problem else None


def job_of(**settings: Any) -> Job:
    options = {"server": "http://127.0.0.1:1", "token": "t"}
    job: Any = Job("test", None, Values({}), RunSettings(options=options, quiet=True, **settings))  # type: ignore[arg-type]
    assert isinstance(job, Job)
    return job


def follow(job: Job, query: Query) -> Any:
    return job.follow(query)[0]  # type: ignore[arg-type]


def test_a_query_that_ends_by_itself_is_counted_to_its_end() -> None:
    query = Query()
    query.end()
    tally = follow(job_of(), query)
    assert (tally.rows, tally.batches) == (10, 2)
    assert query.stopped_after == -1


def test_the_batch_under_way_may_end_first() -> None:
    query = Query()
    tally = follow(job_of(for_s=0.0), query)
    assert query.stopped_after == 1
    assert tally.rows == 7


def test_what_went_wrong_is_one_sentence() -> None:
    query = Query(problem="[X] failed\nflockmq.errors.FlockError: Topic 't' is gone.\nJVM stacktrace")
    query.end()
    with pytest.raises(FlockError, match=r"^Topic 't' is gone\.$"):
        follow(job_of(), query)


def test_control_c_asks_first_and_insists_then() -> None:
    job = job_of()
    with _signals(job):
        os.kill(os.getpid(), signal.SIGINT)
        assert job.is_over
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_checkpoints_stand_beside_what_is_written_unless_told(tmp_path: Path) -> None:
    assert job_of().checkpoint("a", beside="/lake") == "/lake/_checkpoints/a"
    assert job_of().checkpoint("a", beside="s3a://b/lake") == "s3a://b/lake/_checkpoints/a"
    assert job_of().checkpoint("a").endswith("/flockmq-checkpoints/a")
    assert job_of(checkpoint=str(tmp_path)).checkpoint("a", beside="/lake") == f"{tmp_path}/a"


def test_the_sink_gets_only_what_it_knows() -> None:
    job = Job(
        "test",
        None,  # type: ignore[arg-type]
        Values({}),
        RunSettings(options={"server": "http://127.0.0.1:1", "token": "t", "readFrom": "follower"}),
    )
    assert job.read_options()["readFrom"] == "follower"
    assert job.write_options().keys() >= {"server", "token", "namespace"}
    assert "readFrom" not in job.write_options()


def fail_noisily() -> None:
    with _log_file() as log, away_from_screen(log):
        os.system("echo noise")
        raise FlockError("It failed.")


def test_what_spark_prints_is_kept_until_all_went_well(capfd: pytest.CaptureFixture[str]) -> None:
    with _log_file() as log, away_from_screen(log):
        os.system("echo noise; echo more >&2")
    assert capfd.readouterr() == ("", "")
    with pytest.raises(FlockError, match="Spark's log is") as caught:
        fail_noisily()
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert kept.read_text() == "noise\n"
    kept.unlink()
