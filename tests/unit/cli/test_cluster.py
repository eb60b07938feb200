"""What `cluster status` and `node list` print."""

from __future__ import annotations

from typing import Any

import pytest

from flockmq.admin.cluster_model import Cluster, Decisions, Member
from flockmq.cli.cluster import print_members, summary


def member(name: str, **changes: Any) -> Member:
    values: dict[str, Any] = {"id": "2" * 16, "host": "h", "port": 16000, "state": "alive", "role": "core"}
    values |= {"version": "1", "is_self": False, "linked": True, "rtt_ms": 1.0, "clock_offset_ms": 0.0, "clients": 0}
    return Member(name=name, **values | {"routes": 0, "unsent_bytes": 0} | changes)


def cluster(**changes: Any) -> Cluster:
    values: dict[str, Any] = {"index": 9, "leader": "n1@a", "voters": ["n1@a", "n2@b"], "learners": [], "topics": 1}
    values |= {
        "partitions": 6,
        "without_leader": 0,
        "moving": 0,
        "few_copies": 0,
        "replica_away": 0,
        "stopped": 0,
        "warning": "",
    }
    return Cluster(
        id="1" * 16,
        node="n1@a",
        state="formed",
        reason="",
        members=[member("n1@a")],
        decisions=Decisions(**values | changes),
    )


def test_what_is_well_is_told_in_few_words() -> None:
    fields = dict(summary(cluster()))
    assert fields["partitions"] == "6 of 1 durable topic"
    assert "warning" not in fields


def test_what_is_not_well_is_counted() -> None:
    fields = dict(summary(cluster(few_copies=6, replica_away=2, warning="Two nodes decide.")))
    assert fields["partitions"] == "6 of 1 durable topic, 2 with a replica away, 6 with too few copies"
    assert fields["warning"] == "Two nodes decide."


def test_zones_are_shown_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    print_members([member("n1@a"), member("n2@b")])
    assert "ZONE" not in capsys.readouterr().out
    print_members([member("n1@a"), member("n2@b", zone="east")])
    heading, one, two = capsys.readouterr().out.splitlines()
    assert heading.split()[:5] == ["NODE", "STATE", "ROLE", "ZONE", "ADDRESS"]
    assert (one.split()[3], two.split()[3]) == ("-", "east")


def test_hidden_partitions_are_counted_apart_and_named_when_they_have_no_leader() -> None:
    fields = dict(summary(cluster(hidden_partitions=4)))
    assert fields["partitions"] == "6 of 1 durable topic, 4 hidden"
    assert "warning" not in fields
    unwell = summary(cluster(hidden_partitions=4, hidden_without_leader=["$sessions/0", "$sessions/3"], warning="Two."))
    first, second = [text for name, text in unwell if name == "warning"]
    assert first == "Two."
    assert str(second).startswith("$sessions/0, $sessions/3 have no leader: ")
