"""QoS 2 messages that a record lists: SEND2, REC2, DONE2, their order, their bounds, and what a next owner needs."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_bodies import (
    CLEAN_START,
    SAME_EPOCH,
    ClaimStatement,
    DetachStatement,
    SentStatement,
    StoredSubscription,
    SubscribeStatement,
    session_body,
)
from flockmq.durable.machine.session_record import RECORD_BYTES_MAX, SUBSCRIPTION_BYTES_MAX, SessionRecord
from flockmq.durable.machine.session_sent import SENT_MAX, SentChange, SentMessage, SentMessages, read_change, read_sent
from flockmq.durable.machine.session_table import SessionTable, decode_sessions
from flockmq.durable.sessions.serving import results_of
from flockmq.durable.sessions.submitting import DONE, REFUSED_FULL, VOID
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import Reader

GROUP = 5


def change(
    stamp: int,
    sent: dict[int, int] | None = None,
    received: list[int] | None = None,
    done: list[int] | None = None,
    floor: int = 0,
) -> SentChange:
    """``sent``: packet id -> offset."""
    made = SentChange(stamp)
    made.sent = {packet_id: SentMessage(GROUP, offset) for packet_id, offset in (sent or {}).items()}
    made.received = received or []
    made.done = done or []
    made.floors = {GROUP: floor} if floor else {}
    return made


def facts(messages: SentMessages) -> tuple[dict[int, tuple[int, bool]], list[int]]:
    """Offset and state by packet id, and the offsets that are done."""
    return {one: (it.offset, it.is_received) for one, it in messages.by_id.items()}, [at for _, at in messages.done]


class Log:
    """A table with one session, and entries for it."""

    def __init__(self) -> None:
        self.table = SessionTable()
        self.index = 0
        self.claim()

    def claim(self, flags: int = 0, owner: int = 1) -> SessionRecord:
        self.index += 1
        epoch = self.record.epoch if flags & SAME_EPOCH else 0
        claim = ClaimStatement(b"c", self.index, epoch, owner, 1, None, 60, 5, flags)
        self.table.apply(session_body(1, [claim]), self.index, 1)
        return self.record

    @property
    def record(self) -> SessionRecord:
        return self.table.records[b"c"]

    def say(self, said: SentChange, epoch: int = -1) -> int:
        """The result of a statement."""
        self.index += 1
        statement = SentStatement(b"c", self.record.epoch if epoch < 0 else epoch, said)
        self.table.apply(session_body(1, [statement]), self.index, 1)
        return results_of(self.table, [statement], 1)[0].code


def test_a_message_is_listed_received_done_and_gone() -> None:
    messages = SentMessages()
    assert messages.apply(change(1, {7: 20, 8: 22}))
    assert facts(messages) == ({7: (20, False), 8: (22, False)}, [])
    assert messages.needed() == {GROUP: 20}
    assert messages.apply(change(2, received=[7]))
    assert facts(messages) == ({7: (20, True), 8: (22, False)}, [])
    assert messages.needed() == {GROUP: 22}
    assert messages.apply(change(3, done=[7]))
    assert facts(messages) == ({8: (22, False)}, [20])
    assert messages.offsets() == {GROUP: [20, 22]}
    assert messages.apply(change(4, floor=22))
    assert facts(messages) == ({8: (22, False)}, [])


def test_what_came_before_or_twice_changes_nothing() -> None:
    messages = SentMessages()
    messages.apply(change(1, {7: 20}))
    messages.apply(change(2, {7: 30}, done=[7]))
    before = messages.encode()
    assert not messages.apply(change(1, {7: 20}))
    assert not messages.apply(change(2, {7: 30}, done=[7]))
    assert messages.encode() == before


def test_a_packet_id_means_one_message() -> None:
    messages = SentMessages()
    messages.apply(change(1, {7: 20}))
    messages.apply(change(2, {7: 30}))
    assert facts(messages) == ({7: (30, False)}, [20])


def test_the_same_record_may_be_under_way_twice() -> None:
    """A subscription asked for history again."""
    messages = SentMessages()
    messages.apply(change(1, {7: 20, 8: 20}))
    messages.apply(change(2, done=[7]))
    assert messages.offsets() == {GROUP: [20]}
    assert facts(messages) == ({8: (20, False)}, [20])


def test_what_is_listed_is_bounded_with_what_is_done() -> None:
    messages = SentMessages()
    assert messages.apply(change(1, {number: number for number in range(1, SENT_MAX)}))
    assert messages.apply(change(2, {SENT_MAX: 0}, done=[1, 2]))
    before = messages.encode()
    assert not messages.apply(change(3, {9_999: 9_999}))
    assert messages.encode() == before


def test_the_largest_list_fits_into_a_record() -> None:
    sent = SentMessages()
    sent.apply(change(1, {number: number for number in range(1, SENT_MAX + 1)}))
    names_and_positions = 2 * 65_537 + 4_096 * 16 + 1_024 * 16 + 200
    assert len(sent.encode()) + names_and_positions + SUBSCRIPTION_BYTES_MAX <= RECORD_BYTES_MAX


def test_changes_and_lists_are_read_as_they_were_written() -> None:
    said = change(9, {7: 20, 65_535: 1}, [3], [4, 5], 11)
    assert read_change(Reader(said.encode())).encode() == said.encode()
    messages = SentMessages()
    messages.apply(change(1, {7: 20, 9: 21}))
    messages.apply(change(2, received=[7], done=[9]))
    assert read_sent(Reader(messages.encode())).encode() == messages.copy().encode() == messages.encode()


@pytest.mark.parametrize("sent", [{0: 1}, {7: 1 << 63}])
def test_what_can_not_be_is_not_believed(sent: dict[int, int]) -> None:
    with pytest.raises(RemoteProtocolError):
        read_change(Reader(change(1, sent).encode()))


# In the table.


def test_statements_have_results_and_move_positions() -> None:
    log = Log()
    assert log.say(change(1, {7: 20})) == DONE
    assert log.say(change(1, {7: 20})) == DONE, "said twice"
    assert log.say(change(2, done=[7], floor=21)) == DONE
    assert (log.record.positions, log.record.sent.count()) == ({GROUP: 21}, 0)
    assert log.say(change(3, {number: number for number in range(1, SENT_MAX + 2)})) == REFUSED_FULL
    assert log.say(change(3, {7: 30}), epoch=log.record.epoch + 1) == VOID
    assert log.record.sent.count() == 0


def test_another_owner_goes_on_with_the_list_and_numbers_anew() -> None:
    log = Log()
    old = log.record.epoch
    log.say(change(5, {7: 20}))
    log.claim(owner=2)
    assert facts(log.record.sent) == ({7: (20, False)}, [])
    assert log.say(change(6, received=[7]), epoch=old) == VOID
    assert log.say(change(1, received=[7])) == DONE
    assert facts(log.record.sent) == ({7: (20, True)}, [])


def test_an_owner_that_makes_sure_goes_on_numbering() -> None:
    log = Log()
    log.say(change(5, {7: 20}))
    log.claim(SAME_EPOCH)
    assert log.say(change(5, {7: 99})) == DONE, "applied before"
    assert facts(log.record.sent) == ({7: (20, False)}, [])


def test_a_clean_start_drops_the_list() -> None:
    log = Log()
    log.say(change(1, {7: 20}))
    assert log.claim(CLEAN_START).sent.count() == 0


def test_positions_of_a_detach_pass_what_is_done() -> None:
    log = Log()
    log.say(change(1, {7: 20, 8: 21}))
    log.say(change(2, done=[7, 8]))
    assert log.record.sent.count() == 2
    detach = DetachStatement(b"c", log.record.epoch, 60, {GROUP: 21})
    log.index += 1
    log.table.apply(session_body(1, [detach]), log.index, 1)
    assert facts(log.record.sent) == ({}, [21])
    assert decode_sessions(log.table.encode(), log.index).encode() == log.table.encode()


def test_captured_messages_wait_for_what_may_have_to_be_sent_again() -> None:
    log = Log()
    log.say(change(1, {7: 20, 8: 25}, floor=30))
    assert log.table.least_positions([GROUP, 6]) == {GROUP: 20}
    stored = StoredSubscription(b"a", 2, 0, 0, {GROUP: 0})
    log.index += 1
    log.table.apply(session_body(1, [SubscribeStatement(b"c", log.record.epoch, [stored])]), log.index, 1)
    log.say(change(2, received=[7]))
    assert log.table.least_positions([GROUP]) == {GROUP: 25}
    log.say(change(3, received=[8]))
    assert log.table.least_positions([GROUP]) == {GROUP: 30}


def test_memory_is_counted() -> None:
    log = Log()
    before = log.table.bytes
    log.say(change(1, {7: 20}))
    assert log.table.bytes > before
    assert decode_sessions(log.table.encode(), log.index).bytes == log.table.bytes
