"""Each rule of the simulator, broken on purpose: a checker that can't fail checks nothing."""

from __future__ import annotations

import pytest

from flockmq.log.batch import NOOP, BatchBuilder, control_batch, stamp
from flockmq.raft.entry import Entry, entry_of
from flockmq.testing.simulation.consensus.history import GroupHistory
from flockmq.testing.simulation.world import Violation


def data(index: int, term: int, offset: int, *payloads: bytes) -> Entry:
    builder = BatchBuilder()
    for payload in payloads:
        builder.add(b"t", payload.partition(b" ")[0], 0, 1, payload)
    return entry_of(stamp(builder.build(), term, index, offset))


def noop(index: int, term: int, offset: int = 0) -> Entry:
    return entry_of(stamp(control_batch(NOOP), term, index, offset))


def history(*submitted: bytes) -> GroupHistory:
    group = GroupHistory(7)
    group.submitted.update(submitted)
    return group


def test_one_leader_a_term() -> None:
    group = history()
    group.leads(1, 1, 5, 0, 0)
    group.leads(1, 1, 5, 0, 0)
    group.leads(2, 1, 6, 0, 0)
    with pytest.raises(Violation, match=r"election safety: group 7: nodes 1 .* and 3"):
        group.leads(3, 1, 5, 0, 0)


def test_a_node_that_restarted_must_not_lead_its_old_term() -> None:
    group = history()
    group.leads(1, 1, 5, 0, 0)
    with pytest.raises(Violation, match="election safety"):
        group.leads(1, 2, 5, 0, 0)


def test_a_vote_is_given_once_a_term() -> None:
    group = history()
    group.voted(1, 5, 2)
    group.voted(1, 5, 2)
    group.voted(1, 6, 3)
    group.voted(2, 5, 3)
    with pytest.raises(Violation, match="one vote a term"):
        group.voted(1, 5, 3)


def test_a_snapshot_is_the_state_it_stands_for_and_never_goes_back() -> None:
    group = history()
    group.applied(1, 1, 1, noop(1, 1))
    group.restored(2, 0, 0)
    group.restored(2, 1, group.chains[1])
    group.installed(2, 0, 1)
    with pytest.raises(Violation, match="another state"):
        group.restored(2, 1, 7)
    with pytest.raises(Violation, match="another state"):
        group.restored(2, 2, 7)
    with pytest.raises(Violation, match="went back"):
        group.installed(2, 1, 0)


def test_logs_match() -> None:
    group = history()
    group.appended(1, 0, [noop(1, 1), noop(2, 1)])
    group.appended(2, 0, [noop(1, 1), noop(2, 1), noop(3, 2)])
    group.appended(3, 1, [noop(3, 3)])
    with pytest.raises(Violation, match="log matching"):
        group.appended(3, 3, [noop(3, 2)])
    with pytest.raises(Violation, match=r"log matching.*other bytes"):
        group.appended(3, 0, [noop(1, 1, offset=4)])


def test_leaders_have_all_that_was_committed_before_their_term() -> None:
    group = history()
    group.applied(1, 2, 1, noop(1, 1))
    group.applied(1, 4, 2, noop(2, 3))
    assert group.completeness_index(5) == 2
    assert group.completeness_index(4) == 1
    assert group.completeness_index(2) == 0
    group.leads(1, 1, 5, 2, 3)
    group.leads(2, 1, 4, 1, 1)
    with pytest.raises(Violation, match="leader completeness"):
        group.leads(3, 1, 6, 1, -1)
    with pytest.raises(Violation, match="leader completeness"):
        group.leads(3, 1, 7, 9, 2)


def test_everybody_applies_the_same() -> None:
    group = history()
    group.applied(1, 1, 1, noop(1, 1))
    group.applied(2, 1, 1, noop(1, 1))
    with pytest.raises(Violation, match="state machine safety"):
        group.applied(3, 2, 1, noop(1, 2))
    with pytest.raises(Violation, match="state machine safety"):
        group.applied(1, 1, 2, noop(3, 1))
    with pytest.raises(Violation, match="state machine safety"):
        group.applied(1, 1, 3, noop(3, 1))


def test_offsets_are_dense() -> None:
    group = history(b"w 1", b"w 2", b"w 3")
    group.applied(1, 1, 1, data(1, 1, 0, b"w 1", b"w 2"))
    with pytest.raises(Violation, match="monotonic offsets"):
        group.applied(1, 1, 2, data(2, 1, 3, b"w 3"))


def test_no_record_that_nobody_sent_none_refused_none_twice() -> None:
    group = history(b"w 1", b"w 2")
    with pytest.raises(Violation, match="no client sent"):
        group.applied(1, 1, 1, data(1, 1, 0, b"w 9"))
    group = history(b"w 1", b"w 2")
    group.applied(1, 1, 1, data(1, 1, 0, b"w 1"))
    with pytest.raises(Violation, match="both hold"):
        group.applied(1, 1, 2, data(2, 1, 1, b"w 1"))
    group = history(b"w 1", b"w 2")
    group.refuse([b"w 2"])
    with pytest.raises(Violation, match="was refused"):
        group.applied(1, 1, 1, data(1, 1, 0, b"w 2"))
    group = history(b"w 1")
    group.applied(1, 1, 1, data(1, 1, 0, b"w 1"))
    with pytest.raises(Violation, match="was refused"):
        group.refuse([b"w 1"])


def test_a_sender_is_not_reordered() -> None:
    group = history(b"v 1", b"w 1", b"w 2")
    group.applied(1, 1, 1, data(1, 1, 0, b"w 2"))
    group.applied(1, 1, 2, data(2, 1, 1, b"v 1"))
    with pytest.raises(Violation, match="no reorder"):
        group.applied(1, 1, 3, data(3, 1, 2, b"w 1"))


def test_an_acknowledgement_is_a_promise() -> None:
    group = history(b"w 1", b"w 2")
    group.applied(1, 1, 1, data(1, 1, 0, b"w 1", b"w 2"))
    group.acknowledge([b"w 1", b"w 2"], 0)
    assert group.acknowledged_index == 1
    with pytest.raises(Violation, match="acknowledged is committed"):
        group.acknowledge([b"w 1"], 1)
    with pytest.raises(Violation, match="acknowledged is committed"):
        group.acknowledge([b"w 3"], 2)


def test_a_read_sees_what_was_acknowledged_or_read_before_it() -> None:
    group = history(b"w 1")
    group.applied(1, 1, 1, noop(1, 1))
    group.applied(1, 1, 2, data(2, 1, 0, b"w 1"))
    floor = group.read_floor()
    group.acknowledge([b"w 1"], 0)
    group.read_answered(2, floor, 1)
    assert group.read_floor() == 2
    with pytest.raises(Violation, match="no stale read"):
        group.read_answered(2, group.read_floor(), 1)
    with pytest.raises(Violation, match="no node applied"):
        group.read_answered(2, 2, 3)
