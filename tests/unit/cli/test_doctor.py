"""What the doctor makes of a cluster's view of itself."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from flockmq.admin.cluster_model import Cluster, Member
from flockmq.cli.doctor import FAIL, OK, WARN, Finding, examine, look_at_cookie, reach


def member(name: str = "n2@b", **changes: Any) -> Member:
    values: dict[str, Any] = {
        "name": name,
        "id": "2" * 16,
        "host": "127.0.0.1",
        "port": 16000,
        "state": "alive",
        "role": "core",
        "version": "1.0",
        "is_self": False,
        "linked": True,
        "rtt_ms": 0.4,
        "clock_offset_ms": -3.0,
        "clients": 5,
        "routes": 1,
        "unsent_bytes": 0,
    }
    return Member(**values | changes)


def cluster(*members: Member, **changes: Any) -> Cluster:
    me = member("n1@a", is_self=True, rtt_ms=None, clock_offset_ms=None)
    values: dict[str, Any] = {"id": "1" * 16, "node": "n1@a", "state": "formed", "reason": ""}
    return Cluster(**values | changes, members=[me, *members])


def verdicts(findings: list[Finding], check: str) -> list[str]:
    return [finding.verdict for finding in findings if finding.check == check]


def test_a_healthy_cluster() -> None:
    findings = examine(cluster(member(), member("n3@c")))
    assert {finding.verdict for finding in findings} == {OK}
    assert {finding.check for finding in findings} == {"cluster", "member", "round trip", "clock", "versions"}


@pytest.mark.parametrize(("rtt_ms", "verdict"), [(9.9, OK), (10.1, WARN), (99.0, WARN), (100.1, FAIL), (None, WARN)])
def test_round_trips(rtt_ms: float | None, verdict: str) -> None:
    assert verdicts(examine(cluster(member(rtt_ms=rtt_ms))), "round trip") == [verdict]


@pytest.mark.parametrize(
    ("offset_ms", "verdict"), [(900.0, OK), (-1_100.0, WARN), (60_001.0, FAIL), (-60_001.0, FAIL), (None, WARN)]
)
def test_clocks(offset_ms: float | None, verdict: str) -> None:
    assert verdicts(examine(cluster(member(clock_offset_ms=offset_ms))), "clock") == [verdict]


@pytest.mark.parametrize(
    ("state", "linked", "found"),
    [
        ("alive", True, [OK]),
        ("alive", False, [FAIL]),
        ("suspect", True, [WARN]),
        ("dead", False, [FAIL]),
        ("left", False, []),
    ],
)
def test_members(state: str, linked: bool, found: list[str]) -> None:
    assert verdicts(examine(cluster(member(state=state, linked=linked))), "member") == found


def test_versions_quorum_and_formation() -> None:
    assert verdicts(examine(cluster(member(version="1.1"))), "versions") == [WARN]
    assert verdicts(examine(cluster(member())), "quorum") == [WARN]
    assert verdicts(examine(cluster(member(role="edge"))), "quorum") == []
    assert verdicts(examine(cluster(state="waiting", reason="nobody answers")), "cluster") == [FAIL]
    assert verdicts(examine(cluster(state="off")), "cluster") == [WARN]


def test_names_and_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        findings = reach(
            cluster(member(port=port), member("n3@c", host="no-such-host.invalid"), member("n4@d", state="dead"))
        )
    assert verdicts(findings, "name") == [OK, OK, FAIL]
    assert [finding.verdict for finding in findings if finding.check == "port" and finding.subject == "n2@b"] == [OK]
    assert not [finding for finding in findings if finding.subject == "n4@d"]


def test_the_cookie_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "cookie"
    assert [one.verdict for one in look_at_cookie(file)] == [FAIL]
    file.write_text("secret")
    file.chmod(0o640)
    assert [one.verdict for one in look_at_cookie(file)] == [FAIL]
    file.chmod(0o600)
    assert [one.verdict for one in look_at_cookie(file)] == [OK]
