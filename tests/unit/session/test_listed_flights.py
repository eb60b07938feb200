"""Messages in flight by the record of a session: in the order of their ids, and no id given twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.machine.session_sent import SentMessage, SentMessages
from flockmq.durable.sessions.restoring import put_under_way
from flockmq.mqtt.run import payloads_run
from flockmq.session.outbound import PACKET_IDS, Outbound

near = st.one_of(st.integers(1, 20), st.integers(PACKET_IDS - 10, PACKET_IDS))


@given(st.dictionaries(near, st.booleans(), max_size=12), near, st.integers(1, 30))
def test_no_listed_id_is_given_to_another_message(listed: dict[int, bool], next_pid: int, count: int) -> None:
    sent = SentMessages()
    sent.by_id = {one: SentMessage(5, place, is_received) for place, (one, is_received) in enumerate(listed.items())}
    outbound = Outbound(0, 0)
    outbound.next_pid = next_pid
    put_under_way(outbound, sent)
    assert outbound.inflight == len(listed)
    assert outbound.releasing == {one: True for one, is_received in listed.items() if is_received}
    unread = {one for one, is_received in listed.items() if not is_received}
    assert set(outbound.unfinished()) == unread
    for one in unread:
        flight = outbound.flight_of(one)
        assert flight is not None
        assert flight.is_unread()
        assert flight.offset_at(one - flight.first) == sent.by_id[one].offset
    outbound.offer(payloads_run(4, 2, False, b"t", [b"x"] * count, b"", 0), 2, False, b"", None)
    given_ids: list[int] = []
    while outbound.queued:
        flight = outbound.launch(outbound.room(100)) if outbound.room(100) else None
        if flight is not None:
            given_ids += range(flight.first, flight.first + flight.high - flight.low)
            continue
        if unread:  # acknowledged by and by
            one = outbound.unfinished()[0]
            assert outbound.settle(one, 2)
            unread.discard(one)
            outbound.releasing[one] = True
        else:
            assert outbound.finish(next(iter(outbound.releasing)))
    assert set(given_ids).isdisjoint(one for one in listed if one in outbound.releasing or one in unread)


def test_an_id_whose_pubrel_was_not_sent_is_not_finished() -> None:
    outbound = Outbound(0, 0)
    outbound.releasing[7] = False
    outbound.inflight = 1
    assert not outbound.finish(7)
    outbound.releasing[7] = True
    assert outbound.finish(7)
    assert outbound.inflight == 0
