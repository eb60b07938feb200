from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from benchmarks.cases import CASES, FLOCKMQ, MOSQUITTO, NATS
from benchmarks.report import Line, as_json, file_name, markdown, save, table
from benchmarks.run import choose, processors
from rich.console import Console

from flockmq.errors import FlockError

BY_NAME = {case.name: case for case in CASES}
MACHINE = {"cpu": "ACME(R) Zap 9000 CPU @ 3.00GHz", "cores": 2, "build": "compiled"}


def drawn(*lines: Line) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(table(lines, "title"))
    return stream.getvalue()


def test_a_line_shows_figures_ratios_and_whether_the_target_is_met() -> None:
    line = Line(BY_NAME["fan-out"], {FLOCKMQ: {"rate": 3_000_000}, MOSQUITTO: {"rate": 100_000, "lost": 7}})
    line.notes[NATS] = "not installed: nats-server is not on this machine"
    text = drawn(line)
    for word in ("3,000,000/s", "100,000/s", "(7 lost)", "not installed", "30.00x", ">= 20x mosquitto", "met"):
        assert word in text


def test_a_peer_that_is_missing_leaves_the_target_open() -> None:
    line = Line(BY_NAME["qos2-10-10"], {FLOCKMQ: {"rate": 1.0}})
    line.notes[MOSQUITTO] = "not installed: mosquitto is not on this machine"
    text = drawn(line)
    assert "no figure of mosquitto" in text
    assert "?" in text


def test_other_kinds_of_figures_have_their_units() -> None:
    text = drawn(
        Line(BY_NAME["latency"], {FLOCKMQ: {"p50_us": 61.4, "p99_us": 200.0}}),
        Line(BY_NAME["memory"], {FLOCKMQ: {"kb": 1.234}}),
        Line(BY_NAME["wildcards-known"], {FLOCKMQ: {"few_us": 0.5, "many_us": 0.75}}),
    )
    for word in ("61 / 200 us", "1.23 KB", "0.50 -> 0.75 us", "1.50x"):
        assert word in text


def test_the_file_says_when_and_on_what_but_not_whose_machine(tmp_path: Path) -> None:
    result = as_json([Line(BY_NAME["memory"], {FLOCKMQ: {"kb": 1.0}})], MACHINE, {"repeats": 1})
    name = file_name(result)
    assert name.endswith("-acme-zap-9000-2-cores-compiled.json")
    assert name[:10] == str(result["date"])[:10]
    assert [path.name for path in save(result, keep=False, folder=tmp_path)] == ["latest.json"]
    assert [path.name for path in save(result, keep=True, folder=tmp_path)] == ["latest.json", name]
    saved = json.loads((tmp_path / name).read_text())
    assert saved["cases"][0]["targets"] == [{"target": "<= 4 KB", "figure": "kb", "ratio": 1.0, "met": True}]


def test_cases_are_chosen_by_how_they_begin() -> None:
    assert [case.name for case in choose(["tls"])] == ["tls-qos0", "tls-qos1"]
    assert choose(None) == list(CASES)
    assert not any(case.name.endswith("-qos1") for case in choose(None, quick=True))
    with pytest.raises(FlockError, match="qos0-1-1"):
        choose(["nothing"])


def test_processors_of_broker_and_load() -> None:
    assert processors("") == ((), ())
    assert processors("0:1,2") == ((0,), (1, 2))
    with pytest.raises(FlockError, match="like 0:1"):
        processors("0")


def test_a_kept_result_becomes_a_table_for_the_documentation() -> None:
    about = {**MACHINE, "flockmq": "1.0", "mosquitto": "m 2", "nats": None, "kernel": "k", "python": "p"}
    line = Line(BY_NAME["fan-out"], {FLOCKMQ: {"rate": 100.0}, MOSQUITTO: {"rate": 10.0}})
    text = markdown(as_json([line], about, {"repeats": 3, "seconds": 4.0}))
    assert "| QoS 0, 1 -> 20 fan-out | 100/s | 10/s | - | 10.0x | >= 20x mosquitto **missed** |" in text
    assert "median of 3 runs of 4 s" in text
