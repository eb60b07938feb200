"""What the doctor makes of a cluster's view of itself."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flockmq.admin.cluster_model import Cluster, Decisions, Member
from flockmq.cli.doctor import FAIL, OK, WARN, Finding, examine, look_at_cookie, look_at_secrets, reach


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
    assert verdicts(examine(cluster(reason="b:1 is in another cluster")), "cluster") == [OK, WARN]


def decisions(**changes: Any) -> Decisions:
    values: dict[str, Any] = {"index": 9, "leader": "n1@a", "voters": ["n1@a", "n2@b"], "learners": [], "topics": 1}
    values |= {
        "partitions": 4,
        "without_leader": 0,
        "moving": 0,
        "few_copies": 0,
        "replica_away": 0,
        "stopped": 0,
        "warning": "",
    }
    return Decisions(**values | changes)


def test_voters_and_partitions() -> None:
    found = examine(cluster(member(), member("n3@c"), decisions=decisions(warning="Two nodes decide.")))
    assert [one.text for one in found if one.check == "quorum"] == ["Two nodes decide."]
    assert verdicts(found, "partitions") == [OK]
    found = examine(cluster(decisions=decisions(few_copies=4, replica_away=1, without_leader=1)))
    assert verdicts(found, "partitions") == [FAIL, WARN, WARN]
    assert verdicts(examine(cluster(decisions=decisions(stopped=1))), "partitions") == [FAIL]
    assert verdicts(examine(cluster(decisions=decisions(partitions=0))), "partitions") == []


@pytest.mark.parametrize("topics", [0, 1])
def test_without_a_majority_of_voters_nothing_is_decided(topics: int) -> None:
    voters = decisions(voters=["n1@a", "n2@b", "n3@c"], topics=topics, partitions=4 * topics)
    dead = [member("n2@b", state="dead", linked=False), member("n3@c", state="dead", linked=False)]
    [found] = [one for one in examine(cluster(*dead, decisions=voters)) if one.check == "quorum"]
    assert found.verdict == FAIL
    assert "1 of 3 voters is alive" in found.text
    assert "start n2@b, n3@c" in found.text
    assert verdicts(examine(cluster(dead[0], member("n3@c"), decisions=voters)), "quorum") == [WARN]
    assert verdicts(examine(cluster(member("n2@b"), decisions=voters)), "quorum") == [WARN], "the third is not seen"
    pair = decisions(voters=["n1@a", "n2@b"], warning="Two nodes decide.")
    assert verdicts(examine(cluster(dead[0], decisions=pair)), "quorum") == [FAIL]


def test_a_majority_without_a_leader_is_told() -> None:
    voters = decisions(voters=["n1@a", "n2@b", "n3@c"], leader=None)
    assert verdicts(examine(cluster(member(), member("n3@c"), decisions=voters)), "quorum") == [WARN]


def test_who_decides_is_not_known_where_no_core_node_is_alive() -> None:
    unknown = decisions(voters=[], leader=None)
    edge = cluster(member("n2@b", state="dead"), decisions=unknown)
    edge = msgspec.structs.replace(
        edge, members=[msgspec.structs.replace(edge.members[0], role="edge"), edge.members[1]]
    )
    [found] = [one for one in examine(edge) if one.check == "quorum"]
    assert (found.verdict, "start n2@b" in found.text) == (FAIL, True)


def test_a_dead_node_is_taken_out_by_itself() -> None:
    [found] = [one for one in examine(cluster(member(state="dead"))) if one.check == "member"]
    assert "taken out by itself" in found.text
    assert "leave" not in found.text


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


def test_a_cluster_without_core_nodes_says_why_nothing_is_decided() -> None:
    me = member("n1@a", is_self=True, role="edge")
    alone = Cluster(id="1" * 16, node="n1@a", state="formed", reason="", members=[me])
    [found] = [one for one in examine(alone) if one.check == "quorum"]
    assert (found.verdict, "no core node" in found.text) == (FAIL, True)
    nowhere = decisions(voters=[], index=0, leader=None)
    [found] = [one for one in examine(cluster(member(), member("n3@c"), decisions=nowhere)) if one.check == "quorum"]
    assert (found.verdict, "an edge node founded" in found.text) == (FAIL, True)


def test_a_name_with_a_dead_and_a_live_id_is_alive() -> None:
    former = member("n3@c", id="4" * 16, state="dead", linked=False)
    found = examine(cluster(member(), member("n3@c", id="3" * 16), former))
    assert verdicts(found, "quorum") == []


def test_keys_and_passwords_should_be_private(tmp_path: Path) -> None:
    key, passwords = tmp_path / "key", tmp_path / "passwords"
    for file in (key, passwords):
        file.touch(0o600)
    config = {
        "tls": {"key_file": str(key), "cert_file": str(tmp_path)},
        "listeners": {"tls": {"default": {"key_file": str(key)}}},
        "security": {"password_file": str(passwords), "jwt_secret_file": ""},
        "admin": {"token_file": str(tmp_path / "elsewhere")},
    }
    assert look_at_secrets(config) == []
    key.chmod(0o644)
    passwords.chmod(0o660)
    assert [(one.subject, one.verdict, one.text.split()[6]) for one in look_at_secrets(config)] == [
        (str(key), WARN, "read"),
        (str(passwords), WARN, "change"),
    ]


def test_hidden_partitions_count_and_are_named_when_they_have_no_leader() -> None:
    alone = decisions(topics=0, partitions=0, hidden_partitions=4)
    assert verdicts(examine(cluster(decisions=alone)), "partitions") == [OK]
    unwell = decisions(hidden_partitions=4, without_leader=1, hidden_without_leader=["$sessions/2"])
    found = [one for one in examine(cluster(decisions=unwell)) if one.check == "partitions"]
    assert [one.verdict for one in found] == [FAIL, WARN]
    assert found[1].text.startswith("$sessions/2 has no leader: ")
