"""The window and the queue against a model that keeps every message by itself."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.run import Run
from flockmq.mqtt.scan import scan_run
from flockmq.session.outbound import PACKET_IDS, Outbound, encode_again, encode_flight


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

    @rule(count=st.integers(1, 9), qos=st.integers(1, 2))
    def offer(self, count: int, qos: int) -> None:
        payloads = [(self.number + index).to_bytes(2, "big") for index in range(count)]
        self.number = (self.number + count) % 60_000
        dropped = self.outbound.offer(run_of(payloads, qos), qos, False, b"", None)
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
