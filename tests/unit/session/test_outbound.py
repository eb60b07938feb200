"""The window and the queue against a model that keeps every message by itself."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.run import Run
from flockmq.mqtt.scan import scan_run
from flockmq.session.outbound import PACKET_IDS, LogSource, Outbound, encode_again, encode_flight


def run_of(payloads: list[bytes], qos: int) -> Run:
    wire = b"".join(encode_packet(Publish(b"t", payload, qos, packet_id=1), 4) for payload in payloads)
    run = scan_run(wire, 0, len(wire), 4, 1 << 20)
    assert run is not None
    return run


def sent(data: bytes) -> list[tuple[int, bytes]]:
    """(packet id, payload) of each packet; all payloads here are two bytes on topic t."""
    assert len(data) % 9 == 0
    return [(data[at + 5] << 8 | data[at + 6], data[at + 7 : at + 9]) for at in range(0, len(data), 9)]


class OutboundMachine(RuleBasedStateMachine):
    """Random offers, launches and acknowledgements; ids run around quickly because they start near the end."""

    def __init__(self) -> None:
        super().__init__()
        self.outbound = Outbound(messages_max=40, bytes_max=0)
        self.outbound.next_pid = PACKET_IDS - 5
        self.queue: list[tuple[int, bytes]] = []  # QoS, payload
        self.flying: dict[int, tuple[int, bytes]] = {}
        self.releasing: list[int] = []
        self.number = 0
        self.logged: dict[bytes, int] = {}
        """Payload -> partition of the log that the message was read from; its number is the offset there."""

    @rule(count=st.integers(1, 9), qos=st.integers(1, 2), partition=st.integers(0, 2))
    def offer(self, count: int, qos: int, partition: int) -> None:
        payloads = [(self.number + index).to_bytes(2, "big") for index in range(count)]
        source = LogSource(partition, self.number) if partition else None
        self.logged.update(dict.fromkeys(payloads, partition))
        self.number = (self.number + count) % 60_000
        dropped = self.outbound.offer(run_of(payloads, qos), qos, False, b"", source)
        fits = min(count, 40 - len(self.queue))
        assert dropped == count - fits
        self.queue += [(qos, payload) for payload in payloads[:fits]]

    @rule(window=st.integers(1, 30))
    def pump(self, window: int) -> None:
        while (room := self.outbound.room(window)) > 0:
            flight = self.outbound.launch(room)
            if flight is None:
                assert not self.queue
                return
            for pid, payload in sent(encode_flight(flight, 4, 0)):
                assert pid not in self.flying
                assert pid not in self.releasing
                qos, wanted = self.queue.pop(0)
                assert payload == wanted
                self.flying[pid] = (qos, payload)
        assert len(self.flying) + len(self.releasing) >= min(window, 1) or not self.queue

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        pid = data.draw(st.sampled_from(sorted(self.flying)))
        qos, _ = self.flying.pop(pid)
        assert not self.outbound.settle(pid, 3 - qos)
        assert self.outbound.settle(pid, qos)
        assert not self.outbound.settle(pid, qos)
        if qos == 1:
            self.outbound.inflight -= 1
        else:
            self.outbound.releasing[pid] = True
            self.releasing.append(pid)

    @precondition(lambda self: self.releasing)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        pid = data.draw(st.sampled_from(self.releasing))
        self.releasing.remove(pid)
        assert self.outbound.finish(pid)
        assert not self.outbound.finish(pid)

    @rule(pid=st.integers(1, PACKET_IDS))
    def acknowledge_unknown(self, pid: int) -> None:
        if pid not in self.flying:
            assert not self.outbound.settle(pid, 1)
            assert not self.outbound.settle(pid, 2)

    @rule()
    def shrink(self) -> None:
        self.outbound.shrink()

    @invariant()
    def agrees(self) -> None:
        outbound = self.outbound
        assert outbound.queued == len(self.queue)
        assert outbound.inflight == len(self.flying) + len(self.releasing)
        again: dict[int, bytes] = {}
        for pid in outbound.unfinished():
            flight = outbound.flight_of(pid)
            assert flight is not None
            packet = encode_again(flight, pid, 4, 0)
            assert packet[0] & 0x08
            again.update(sent(packet))
            assert pid in again
        assert again == {pid: payload for pid, (_, payload) in self.flying.items()}
        deliveries = outbound.waiting_runs()
        assert outbound.held == sum(delivery.held for delivery in deliveries)

    @invariant()
    def knows_the_oldest_of_each_log(self) -> None:
        oldest: dict[int, int] = {}
        for _, payload in [*self.flying.values(), *self.queue]:
            partition = self.logged[payload]
            if partition:
                offset = int.from_bytes(payload, "big")
                oldest[partition] = min(offset, oldest.get(partition, offset))
        assert self.outbound.oldest_logged() == oldest


TestOutbound = OutboundMachine.TestCase
TestOutbound.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_id_is_not_given_again_before_the_oldest_is_done() -> None:
    outbound = Outbound(messages_max=0, bytes_max=0)
    for _ in range(PACKET_IDS):
        outbound.offer(run_of([b"ab"], 1), 1, False, b"", None)
        flight = outbound.launch(outbound.room(PACKET_IDS))
        assert flight is not None
        if flight.first != 1:
            assert outbound.settle(flight.first, 1)
            outbound.inflight -= 1
    outbound.offer(run_of([b"ab"], 1), 1, False, b"", None)
    assert outbound.inflight == 1
    assert outbound.room(PACKET_IDS) == 0
    assert outbound.settle(1, 1)
    outbound.inflight -= 1
    flight = outbound.launch(outbound.room(PACKET_IDS))
    assert flight is not None
    assert flight.first == 1


def test_bytes_are_bounded_and_parts_that_are_done_are_let_go() -> None:
    outbound = Outbound(messages_max=0, bytes_max=3_000)
    big = run_of([b"ab"] * 100, 1)
    assert outbound.offer(big, 1, False, b"", None) == 0
    assert outbound.offer(big, 1, False, b"", None) == 0
    dropped = outbound.offer(big, 1, False, b"", None)
    assert 0 < dropped < 100, "as much of a run as fits"
    assert outbound.held <= 3_000
    assert outbound.queued == 300 - dropped
    flight = outbound.launch(100)
    assert flight is not None
    for pid in range(1, 100):
        assert outbound.settle(pid, 1)
        outbound.inflight -= 1
    assert outbound.offer(big, 1, False, b"", None) < dropped, "what is done made room"
    assert outbound.held <= 3_000
    assert outbound.settle(100, 1)


def kept_bytes(outbound: Outbound) -> int:
    """Bytes of runs that the lists of an Outbound keep alive, in use or not."""
    return sum(len(delivery.run.wire) for delivery in {*outbound.queue, *outbound.flights})


def test_what_is_acknowledged_is_let_go_while_other_messages_wait() -> None:
    outbound = Outbound(1_000, 100_000)
    large = [b"x" * 9_000]
    for _ in range(5):
        assert not outbound.offer(run_of(large, 1), 1, False, b"", None)
    for _ in range(200):
        flight = outbound.launch(1)
        assert flight is not None
        assert not outbound.offer(run_of(large, 1), 1, False, b"", None)
        assert outbound.settle(flight.first, 1)
        outbound.inflight -= 1
    assert kept_bytes(outbound) <= 100_000


def test_what_expired_is_let_go_while_other_messages_wait() -> None:
    outbound = Outbound(1_000, 100_000)
    for _ in range(600):
        assert not outbound.offer(run_of([b"x" * 9_000], 1), 1, False, b"", None)
        if outbound.queued > 5:
            assert outbound.forget_next() == 1
    assert kept_bytes(outbound) <= 100_000
    assert len(outbound.queue) < 600, "the list itself does not grow for ever"


def test_a_full_queue_makes_room_with_what_expired() -> None:
    outbound = Outbound(5, 0)
    for expires_at in (50, 50, 0, 50, 50):
        run = run_of([b"xx"], 1)
        run.expires_at = expires_at
        assert outbound.offer(run, 1, False, b"", None, 10) == 0
    assert outbound.offer(run_of([b"xx"], 1), 1, False, b"", None, 20) == 1, "nothing expired yet"
    assert outbound.offer(run_of([b"xx"] * 2, 1), 1, False, b"", None, 60) == 2, "two expired, two came in their place"
    assert outbound.queued == 5


def test_a_run_cut_into_single_messages_leaves_room_for_others() -> None:
    """Each piece counts the run that it came from until pieces are copied out, which needs no acknowledgement."""
    outbound = Outbound(10_000, 100_000)
    assert not outbound.offer(run_of([b"xx"] * 500, 1), 1, False, b"", None)
    for _ in range(400):
        assert outbound.launch(1) is not None
    for _ in range(10):
        assert not outbound.offer(run_of([b"xx"], 1), 1, False, b"", None)
    assert outbound.held <= 100_000


def test_an_id_that_waits_for_pubcomp_is_not_given_again() -> None:
    """Also when PUBRECs came out of order, so that the first to be released is not the oldest."""
    outbound = Outbound(1 << 20, 0)
    outbound.offer(run_of([b"xx"] * 3, 2), 2, False, b"", None)
    assert outbound.launch(3) is not None
    for pid in (3, 1, 2):
        assert outbound.settle(pid, 2)
        outbound.releasing[pid] = True
    given = 0
    while given < PACKET_IDS:
        outbound.offer(run_of([b"xx"] * 1_000, 1), 1, False, b"", None)
        room = outbound.room(PACKET_IDS)
        flight = outbound.launch(min(room, 1_000)) if room else None
        if flight is None:
            break
        for pid in range(flight.first, flight.first + flight.high - flight.low):
            assert pid not in outbound.releasing
            assert outbound.settle(pid, 1)
            outbound.inflight -= 1
            given += 1
    assert given == PACKET_IDS - 3
    assert outbound.finish(1)
    assert outbound.room(PACKET_IDS)
    flight = outbound.launch(1_000)
    assert flight is not None
    assert (flight.first, flight.high - flight.low) == (1, 1)
