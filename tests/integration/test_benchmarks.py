"""The comparison harness end to end, as short as it gets, against FlockMQ alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from benchmarks import brokers
from benchmarks.cases import CASES, FLOCKMQ, MOSQUITTO, NATS, Case
from benchmarks.generators import Effort, measure
from benchmarks.run import main, run_case

from flockmq.errors import FlockError
from integration.support.programs import need

BY_NAME = {case.name: case for case in CASES}
SHORT = Effort(seconds=0.2, connections=50)


@pytest.mark.parametrize("name", ["qos1-10-10", "v5-v4-qos0", "acl-qos0", "tls-qos0", "ws-qos0", "latency", "memory"])
def test_a_case_yields_its_figures(name: str) -> None:
    case: Case = BY_NAME[name]
    line = run_case(case, [FLOCKMQ], SHORT, 1, ())
    assert line.notes.get(FLOCKMQ, "") == ""
    figures = line.figures[FLOCKMQ]
    assert figures.get("lost", 0) == 0 or case.load.qos == 0
    assert all(goal.figure in figures for goal in case.goals)
    assert figures.get("rate", 1) > 0
    assert line.notes[MOSQUITTO].startswith("left out")


def test_an_external_generator_is_understood(tmp_path: Path) -> None:
    program = tmp_path / "blast"
    said = "pub_rate=5000 deliver_rate=4000 got=9 expect=10 kb_per_conn=1.5 connect_rate=7"
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    effort = Effort(seconds=0.2, blast=str(program), hold=str(program))
    with brokers.start(FLOCKMQ, "plain") as running:
        rate, generator = measure(BY_NAME["qos0-1-1"], running, effort)
        memory, _ = measure(BY_NAME["memory"], running, effort)
    assert (rate["rate"], rate["lost"], generator) == (4000, 1, "external")
    assert memory == {"kb": 1.5, "connect_rate": 7}
    silent = Effort(blast="/bin/true")
    with brokers.start(FLOCKMQ, "plain") as running, pytest.raises(FlockError, match="nothing useful"):
        measure(BY_NAME["qos0-1-1"], running, silent)


@pytest.mark.parametrize("name", [MOSQUITTO, NATS])
def test_peers_start_and_stop(name: str) -> None:
    need(brokers.PROGRAMS[name])
    line = run_case(BY_NAME["qos0-1-1"], [name], SHORT, 1, ())
    assert line.figures[name]["rate"] > 0


def test_a_name_that_fits_no_case_is_refused() -> None:
    with pytest.raises(FlockError, match="No case is called"):
        main(["--only", "nonsense"])
