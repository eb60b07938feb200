"""The state behind a partition, entry by entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.machine.control_bodies import (
    ADOPT,
    COMMIT,
    DELETE,
    FORGET,
    RELEASE,
    RESET,
    CursorCommand,
    Statement,
    cursor_body,
    marker_body,
)
from flockmq.durable.machine.machine import KEPT_MS, PartitionMachine
from flockmq.log.batch import CURSOR, MARKER, BatchBuilder, control_batch, stamp
from flockmq.raft.entry import Entry, entry_of

NOW = 1_700_000_000_000


class Log:
    """Entries for machines, one behind the other."""

    def __init__(self) -> None:
        self.index = 0
        self.offset = 0
        self.entries: list[Entry] = []

    def add(self, batch: bytes) -> Entry:
        self.index += 1
        entry = entry_of(stamp(batch, 1, self.index, self.offset))
        self.offset = entry.next_offset
        self.entries.append(entry)
        return entry

    def publish(self, client: bytes, epoch: int, *ids: int, now: int = NOW) -> Entry:
        builder = BatchBuilder()
        for packet_id in ids:
            builder.add(b"t", client, now, 2, b"x")
            builder.mark(packet_id=packet_id, session_epoch=epoch)
        return self.add(builder.build())

    def mark(self, *statements: Statement, now: int = NOW) -> Entry:
        return self.add(control_batch(MARKER, marker_body(now, list(statements))))

    def move(self, *commands: CursorCommand, now: int = NOW) -> Entry:
        return self.add(control_batch(CURSOR, cursor_body(now, list(commands))))


def ids_of(machine: PartitionMachine, client: bytes = b"c") -> set[int]:
    known = machine.client(client)
    return set() if known is None else set(known.ids)


def test_cursors_go_forwards_unless_they_are_reset() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.move(CursorCommand(COMMIT, b"default/a", 10), CursorCommand(COMMIT, b"default/b", 3)))
    machine.apply(log.move(CursorCommand(COMMIT, b"default/a", 4)))
    assert machine.cursors == {b"default/a": 10, b"default/b": 3}
    machine.apply(log.move(CursorCommand(RESET, b"default/a", 4), CursorCommand(DELETE, b"default/b", 0)))
    assert machine.cursors == {b"default/a": 4}


def test_a_cursor_at_the_very_beginning_is_a_position() -> None:
    machine = PartitionMachine(7)
    machine.apply(Log().move(CursorCommand(COMMIT, b"default/a", 0)))
    assert machine.cursors == {b"default/a": 0}


def test_ids_wait_until_they_are_released_and_may_be_used_again() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1, 2))
    assert ids_of(machine) == {1, 2}
    machine.apply(log.mark(Statement(RELEASE, b"c", 5, [1, 2])))
    assert ids_of(machine) == set()
    machine.apply(log.publish(b"c", 5, 1))
    assert ids_of(machine) == {1}
    assert machine.end_offset == 3


def test_another_owner_keeps_the_ids_and_earlier_ones_are_not_heard_any_more() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1, 2))
    machine.apply(log.mark(Statement(ADOPT, b"c", 9, [])))
    assert ids_of(machine) == {1, 2}
    machine.apply(log.mark(Statement(RELEASE, b"c", 5, [1])))
    assert ids_of(machine) == {1, 2}
    machine.apply(log.mark(Statement(RELEASE, b"c", 9, [1])))
    machine.apply(log.publish(b"c", 5, 3))
    assert ids_of(machine) == {2}
    assert machine.epoch_of(b"c") == 9


def test_a_session_that_ended_leaves_nothing_also_not_by_what_comes_late() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1))
    machine.apply(log.mark(Statement(FORGET, b"c", 5, [], 6)))
    assert machine.client(b"c") is None, "a leader admits nothing of it any more"
    machine.apply(log.mark(Statement(ADOPT, b"c", 7, [], 7)))
    machine.apply(log.publish(b"c", 7, 3))
    machine.apply(log.mark(Statement(FORGET, b"c", 5, [], 6), Statement(FORGET, b"c", 7, [], 7)))
    assert ids_of(machine) == {3}, "what the next session stored stays"


def test_an_owner_that_goes_on_under_a_newer_epoch_keeps_its_ids() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1))
    machine.apply(log.publish(b"c", 8, 2))
    assert ids_of(machine) == {1, 2}
    machine.apply(log.publish(b"c", 5, 3))
    assert ids_of(machine) == {1, 2}


def test_ids_of_an_earlier_session_are_void_for_the_owner_of_a_later_one() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1))
    machine.apply(log.publish(b"c", 8, 2))
    machine.apply(log.mark(Statement(ADOPT, b"c", 9, [], 8)))
    assert ids_of(machine) == {2}
    assert machine.ids_total == 1


def test_a_release_or_an_end_makes_no_client_known() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.mark(Statement(RELEASE, b"c", 5, [1]), Statement(FORGET, b"d", 5, [], 6)))
    assert (machine.client(b"c"), machine.client(b"d")) == (None, None)


def test_clients_are_forgotten_by_the_time_of_the_log() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1))
    machine.apply(log.publish(b"d", 5, 1, now=NOW + KEPT_MS - 1))
    assert ids_of(machine) == {1}
    machine.apply(log.publish(b"d", 5, 2, now=NOW + KEPT_MS))
    assert ids_of(machine) == set()
    assert ids_of(machine, b"d") == {1, 2}


def test_epochs_without_ids_are_kept_as_long() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.mark(Statement(ADOPT, b"c", 6, [])))
    assert machine.epoch_of(b"c") == 6
    machine.apply(log.mark(Statement(ADOPT, b"d", 6, []), now=NOW + KEPT_MS - 1))
    assert machine.epoch_of(b"c") == 6
    machine.apply(log.mark(Statement(ADOPT, b"d", 6, []), now=NOW + KEPT_MS))
    assert machine.epoch_of(b"c") == 0


def test_what_clients_can_grow_is_bounded() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.clients_max = 3
    machine.ids_total_max = 6
    for number in range(5):
        machine.apply(log.publish(b"c%d" % number, 5, 1))
    assert list(machine.clients) == [b"c2", b"c3", b"c4"]
    machine.apply(log.publish(b"c4", 5, 2, 3, 4, 5, 6))
    assert machine.ids_total <= 6
    assert list(machine.clients) == [b"c4"]
    assert machine.evicted == 4


def test_control_batches_and_sections_of_later_versions_are_left_alone() -> None:
    log = Log()
    machine = PartitionMachine(7)
    machine.apply(log.publish(b"c", 5, 1))
    later = marker_body(NOW, []) + bytes((77,)) + (3).to_bytes(4, "little") + b"xyz"
    machine.apply(log.add(control_batch(MARKER, later)))
    machine.apply(log.add(control_batch(MARKER, b"\x09nonsense")))
    machine.apply(log.add(control_batch(CURSOR, b"")))
    assert machine.unreadable == 2
    assert ids_of(machine) == {1}
    machine.sections[40] = b"of a later version"
    again = PartitionMachine(7)
    again.decode(machine.encode())
    assert again.sections == {40: b"of a later version"}
    assert again.encode() == machine.encode()


def test_other_bytes_are_no_state() -> None:
    with pytest.raises(ValueError, match="not the state"):
        PartitionMachine(7).decode(b"something else")


CLIENT = st.sampled_from([b"a", b"b", b"c"])
NONE: list[int] = []
STEP: st.SearchStrategy[tuple[str, bytes, int, list[int]]] = st.one_of(
    st.tuples(st.just("publish"), CLIENT, st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=4)),
    st.tuples(st.just("release"), CLIENT, st.integers(1, 5), st.lists(st.integers(1, 9), max_size=4)),
    st.tuples(st.just("adopt"), CLIENT, st.integers(1, 5), st.just(NONE)),
    st.tuples(st.just("forget"), CLIENT, st.integers(1, 5), st.just(NONE)),
    st.tuples(st.just("commit"), CLIENT, st.integers(0, 50), st.just(NONE)),
)
WHAT = {"release": RELEASE, "adopt": ADOPT, "forget": FORGET}


@given(st.lists(STEP, max_size=30), st.integers(0, 30))
def test_a_machine_is_the_obvious_table_and_survives_checkpoints(
    steps: list[tuple[str, bytes, int, list[int]]], cut: int
) -> None:
    log = Log()
    for what, client, epoch, ids in steps:
        if what == "publish":
            log.publish(client, epoch, *ids)
        elif what == "commit":
            log.move(CursorCommand(COMMIT, client, epoch))
        else:
            log.mark(Statement(WHAT[what], client, epoch, ids, epoch))
    whole = PartitionMachine(7)
    resumed = PartitionMachine(7)
    for entry in log.entries:
        whole.apply(entry)
        if entry.index == cut:
            resumed = PartitionMachine(7)
            resumed.decode(whole.encode())
        else:
            resumed.apply(entry)
    assert resumed.encode() == whole.encode()
    table: dict[bytes, tuple[int, dict[int, int]]] = {}
    for what, client, epoch, ids in steps:
        if what == "commit":
            continue
        if client not in table and what in {"release", "forget"}:
            continue
        known, waiting = table.pop(client, (epoch, {}))
        if epoch >= known:
            known = epoch
            if what == "publish":
                waiting = waiting | dict.fromkeys(ids, epoch)
            elif what == "release":
                waiting = {one: of for one, of in waiting.items() if one not in ids}
            else:
                waiting = {one: of for one, of in waiting.items() if of >= epoch}
            if what == "forget" and not waiting:
                continue
        table[client] = (known, waiting)
    for client in (b"a", b"b", b"c"):
        known, waiting = table.get(client, (0, {}))
        assert ids_of(whole, client) == set(waiting)
        assert whole.epoch_of(client) == known
    assert whole.ids_total == sum(len(waiting) for _, waiting in table.values())
