"""Messages between nodes: batches, acknowledgements, links that break, nodes that can't keep up."""

from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.peering.channels import RUNS
from flockmq.peering.forwarding import PART_BYTES
from flockmq.peering.stream import AGAIN, BATCH, BATCH_HEAD, HELLO, HELLO_FORM, STATE, Stream
from flockmq.routing.peer import Peer
from flockmq.testing.harness import HarnessClient
from flockmq.testing.stepped import SteppedCluster


class Pair:
    """Two nodes, a publisher on the first, a subscriber to everything on the second."""

    def __init__(self, settings: BrokerSettings | None = None, qos: int = 2) -> None:
        self.cluster = SteppedCluster(2, settings=settings)
        self.publisher: HarnessClient = self.cluster[1].client("publisher")
        self.subscriber: HarnessClient = self.cluster[2].client("subscriber")
        self.subscriber.subscribe(b"#", qos)
        self.sent = 0
        self.cluster.auto = False

    @property
    def peer(self) -> Peer:
        return self.cluster[1].forwarding.peer(2)

    @property
    def stream(self) -> Stream:
        return self.cluster[1].forwarding.streams[2]

    def publish(self, count: int = 1, qos: int = 1, size: int = 0) -> None:
        for _ in range(count):
            self.sent += 1
            self.publisher.publish(b"t", b"%d" % self.sent + b"." * size, qos)

    def batches(self) -> list[int]:
        """Sequences of the batches under way to the second node."""
        queue = self.cluster.wire.queues[1, 2]
        return [BATCH_HEAD.unpack_from(body)[2] for channel, body in queue if channel == RUNS and body[0] == BATCH]

    def is_waiting(self) -> bool:
        """Whether the publisher is not read."""
        return self.publisher.connection.reading_paused

    def turn(self) -> None:
        self.cluster.turn_of(self.cluster[1])

    def got(self) -> list[int]:
        return [int(message.payload.rstrip(b".")) for message in self.subscriber.consume()]


def test_all_runs_of_a_turn_are_one_part() -> None:
    pair = Pair()
    pair.publish(100, 1)
    pair.publish(100, 0)
    pair.turn()
    assert len(pair.cluster.wire.queues[1, 2]) == 1
    pair.cluster.settle()
    assert pair.got() == list(range(1, 201)), "in the order of publishing, whatever their QoS"


def test_batches_of_qos_0_are_not_numbered_and_not_acknowledged() -> None:
    pair = Pair()
    pair.publish(3, 0)
    pair.turn()
    assert pair.batches() == [0]
    assert pair.stream.unacknowledged == []
    pair.cluster.settle()
    assert pair.got() == [1, 2, 3]
    assert pair.cluster[2].forwarding.streams[1].taken == 0


def test_acknowledgements_of_a_turn_are_one() -> None:
    pair = Pair()
    for _ in range(5):
        pair.publish()
        pair.turn()
    assert pair.batches() == [1, 2, 3, 4, 5]
    while pair.cluster.wire.queues[1, 2]:
        pair.cluster.deliver((1, 2))
    assert pair.peer.kept_bytes > 0
    pair.cluster.turn_of(pair.cluster[2])
    parts = [body[0] for channel, body in pair.cluster.wire.queues[2, 1] if channel == RUNS]
    assert parts == [STATE]
    pair.cluster.settle()
    assert (pair.peer.kept_bytes, pair.stream.unacknowledged) == (0, [])


def test_a_large_turn_is_several_parts_and_runs_are_never_cut() -> None:
    pair = Pair()
    pair.publish(5, 1, PART_BYTES // 2)
    pair.turn()
    assert pair.batches() == [1, 2, 3]
    assert all(len(body) < 2 * PART_BYTES for _, body in pair.cluster.wire.queues[1, 2])
    pair.cluster.settle()
    assert pair.got() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("delivered", [0, 1, 2, 3])
@pytest.mark.parametrize("heard", [False, True])
def test_a_broken_link_loses_nothing_and_doubles_nothing(delivered: int, heard: bool) -> None:
    pair = Pair()
    cluster = pair.cluster
    for _ in range(3):
        pair.publish(2)
        pair.turn()
    for _ in range(delivered):
        cluster.deliver((1, 2))
    cluster.turn_of(cluster[2])
    if heard:
        while cluster.wire.queues[2, 1]:
            cluster.deliver((2, 1))
    cluster.cut(1, 2)
    pair.publish(2)
    pair.turn()
    pair.publish(2, 2)
    cluster.link(1, 2)
    pair.publish(2)
    cluster.settle()
    assert pair.got() == list(range(1, 13))
    assert (pair.peer.kept_bytes, pair.peer.out, pair.stream.unacknowledged) == (0, [], [])
    assert cluster[2].forwarding.streams[1].repeated == 0, "HELLO told where to go on"


def test_qos_0_in_a_numbered_batch_is_not_sent_again() -> None:
    pair = Pair()
    pair.publish(1, 1)
    pair.publish(1, 0)
    pair.turn()
    pair.cluster.cut(1, 2)
    pair.publish(1, 0)
    pair.publish(1, 1)
    pair.cluster.link(1, 2)
    pair.cluster.settle()
    assert pair.got() == [1, 4]
    assert pair.peer.dropped == 1, "that without a link; the other one was under way"


def test_a_lost_part_is_asked_for_again() -> None:
    pair = Pair()
    cluster = pair.cluster
    for _ in range(3):
        pair.publish()
        pair.turn()
    del cluster.wire.queues[1, 2][1]
    cluster.advance(2_000)
    cluster.settle()
    assert pair.got() == [1, 2, 3]
    assert pair.stream.resent >= 2


def test_who_asks_for_more_hears_what_comes_next() -> None:
    pair = Pair()
    pair.publish(3)
    body = HELLO_FORM.pack(HELLO, 1_000, 1_000, 0, 1, AGAIN)
    pair.cluster[1].forwarding.receive(2, body, pair.cluster.now)
    pair.cluster[1].speak()
    (answer,) = [body for channel, body in pair.cluster.wire.queues[1, 2] if channel == RUNS]
    assert answer[0] == HELLO
    assert HELLO_FORM.unpack(answer)[4] == pair.stream.first_to_come()


def test_a_lost_last_part_is_noticed_by_the_sender() -> None:
    pair = Pair()
    pair.publish()
    pair.turn()
    pair.cluster.wire.queues[1, 2].clear()
    pair.cluster.advance(1_000)
    pair.cluster.settle()
    assert pair.got() == []
    pair.cluster.advance(4_000)
    pair.cluster.settle()
    assert pair.got() == [1]


def test_what_is_slow_is_not_lost() -> None:
    pair = Pair()
    cluster = pair.cluster
    for _ in range(5):
        pair.publish()
        pair.turn()
        cluster.advance(2_000)
    assert len([body for channel, body in cluster.wire.queues[1, 2] if channel == RUNS and body[0] == HELLO]) == 1
    pair.publish()
    pair.turn()
    cluster.settle()
    assert pair.got() == [1, 2, 3, 4, 5, 6]
    assert (pair.stream.resent, pair.stream.asks) == (0, 0)


def test_a_lost_hello_is_asked_for_again() -> None:
    cluster = SteppedCluster(2, auto=False)
    cluster.cut(1, 2)
    cluster.link(1, 2)
    for sender, receiver in ((1, 2), (2, 1)):
        cluster[sender].speak()
        cluster.drop(sender, receiver, lambda channel, body: channel == RUNS and body[0] == HELLO)
    cluster.settle()
    assert not cluster[1].forwarding.peer(2).linked
    cluster.advance(1_500)
    cluster.settle()
    assert cluster[1].forwarding.peer(2).linked
    assert cluster[2].forwarding.peer(1).linked


def test_who_was_not_listened_to_at_first_is_asked_at_once() -> None:
    cluster = SteppedCluster(2, auto=False)
    cluster.cut(1, 2)
    cluster.link_one(1, 2)
    cluster[1].speak()
    assert [body[0] for channel, body in cluster.wire.queues[1, 2] if channel == RUNS] == [HELLO]
    cluster.wire.queues[1, 2].clear()  # node2 does not know yet that node1 is one of its cluster
    cluster.link_one(2, 1)
    cluster.settle()
    assert cluster[1].forwarding.peer(2).linked
    assert cluster[2].forwarding.peer(1).linked


def test_what_is_not_on_the_link_yet_is_known() -> None:
    pair = Pair()
    forwarding = pair.cluster[1].forwarding
    assert not forwarding.is_waiting(2)
    assert not forwarding.is_waiting(99)
    pair.publish()
    assert forwarding.is_waiting(2)
    pair.turn()
    assert not forwarding.is_waiting(2)
    pair.cluster.cut(1, 2)
    assert forwarding.is_waiting(2)


def test_a_batch_that_comes_twice_is_taken_once() -> None:
    pair = Pair()
    pair.publish()
    pair.turn()
    queue = pair.cluster.wire.queues[1, 2]
    queue.append(queue[0])
    pair.cluster.settle()
    assert pair.got() == [1]
    assert pair.cluster[2].forwarding.streams[1].repeated == 1


def test_what_was_kept_for_a_node_that_restarted_is_dropped() -> None:
    pair = Pair()
    cluster = pair.cluster
    pair.publish(3)
    cluster.kill(2)
    pair.turn()
    again = cluster.start(2, 2_000)
    cluster.settle()
    assert pair.stream.given_up == 3
    assert pair.peer.kept_bytes == 0
    cluster.auto = True
    client = again.client("subscriber")
    client.subscribe(b"#", 1)
    pair.publish()
    assert [message.payload for message in client.consume()] == [b"4"]


def test_a_dead_node_is_let_go_and_one_that_was_not_dead_goes_on() -> None:
    pair = Pair()
    cluster = pair.cluster
    pair.publish(2)
    pair.turn()
    cluster.deliver((1, 2))
    cluster.cut(1, 2)
    pair.publish()
    cluster[1].lose(2)
    cluster[2].lose(1)
    assert (pair.peer.kept_bytes, pair.stream.given_up) == (0, 3)
    cluster[1].meet(cluster[2])
    cluster[2].meet(cluster[1])
    cluster.link(1, 2)
    cluster.settle()
    pair.publish()
    cluster.settle()
    assert pair.got() == [1, 2, 4]


# --- congestion ---

SMALL = BrokerSettings(sys_interval_ms=0, forward_bytes_max=10_000, forward_grace_ms=2_000)


def test_publishers_wait_for_a_node_that_does_not_acknowledge() -> None:
    pair = Pair(SMALL)
    pair.cluster.cut(1, 2)
    while not pair.is_waiting():
        pair.publish()
    assert 5_000 < pair.peer.kept_bytes < 7_000
    pair.cluster.advance(1_000)
    assert pair.is_waiting()
    pair.cluster.link(1, 2)
    pair.cluster.settle()
    assert not pair.is_waiting()
    assert pair.got() == list(range(1, pair.sent + 1))
    assert pair.peer.dropped_kept == 0


def test_after_the_grace_what_does_not_fit_is_dropped_and_counted() -> None:
    pair = Pair(SMALL)
    pair.cluster.cut(1, 2)
    while not pair.is_waiting():
        pair.publish()
    pair.cluster.advance(2_500)
    assert not pair.is_waiting()
    pair.publish(200)
    assert pair.peer.kept_bytes <= 10_000
    assert pair.peer.dropped_kept > 0
    pair.cluster.link(1, 2)
    pair.cluster.settle()
    assert len(pair.got()) == pair.sent - pair.peer.dropped_kept
    assert not pair.peer.out_of_grace


def test_what_happened_is_counted_in_all() -> None:
    pair = Pair()
    pair.publish(2, 1)
    pair.publish(1, 0)
    pair.turn()
    pair.cluster.cut(1, 2)
    pair.publish(1, 0)
    totals = pair.cluster[1].forwarding.totals()
    assert (totals["messages_out"], totals["dropped_qos0"], totals["kept_bytes"] > 0) == (3, 1, True)
    pair.cluster.link(1, 2)
    pair.cluster.settle()
    assert pair.cluster[1].forwarding.totals()["resent"] == 1
    assert pair.cluster[2].forwarding.totals()["messages_in"] == 2


def test_a_dead_node_slows_nobody_down() -> None:
    pair = Pair(SMALL)
    pair.cluster.kill(2)
    while not pair.is_waiting():
        pair.publish()
    pair.cluster.bury(2)
    assert not pair.is_waiting()


def test_a_full_link_buffer_holds_messages_back_until_there_is_room() -> None:
    pair = Pair(SMALL)
    pair.cluster[1].forwarding.set_blocked(2, True)
    while not pair.is_waiting():
        pair.publish(1, 0)
        pair.turn()
    assert pair.batches() == []
    pair.cluster[1].forwarding.set_blocked(2, False)
    pair.cluster.settle()
    assert not pair.is_waiting()
    assert pair.got() == list(range(1, pair.sent + 1))


def test_a_subscriber_that_can_not_keep_up_slows_publishers_of_other_nodes_down() -> None:
    limits = Limits(write_bytes_max=20_000)
    pair = Pair(BrokerSettings(sys_interval_ms=0, limits=limits, congestion_grace_ms=500), qos=0)
    pair.subscriber.block()
    for _ in range(100):
        if pair.is_waiting():
            break
        pair.publish(1, 0, 200)
        pair.cluster.settle()
    assert pair.is_waiting()
    assert pair.peer.asked_to_wait
    pair.subscriber.unblock()
    pair.cluster.settle()
    assert not pair.is_waiting()
    assert pair.got() == list(range(1, pair.sent + 1))
    pair.subscriber.block()
    for _ in range(100):
        pair.publish(1, 0, 200)
        pair.cluster.settle()
        if pair.is_waiting():
            break
    pair.cluster.advance(1_000)
    pair.cluster.settle()
    assert not pair.is_waiting(), "its grace is over"
    assert not pair.peer.asked_to_wait


# --- strangers ---


@pytest.mark.parametrize("body", [b"", b"\0", bytes((BATCH,)), bytes((HELLO,)) * 33, bytes((STATE,)) * 17])
def test_what_can_not_be_read_ends_the_link(body: bytes) -> None:
    cluster = SteppedCluster(2)
    with pytest.raises(FlockError):
        cluster[1].forwarding.receive(2, body, cluster.now)


def test_a_batch_with_garbage_is_taken_off_the_list() -> None:
    pair = Pair()
    forwarding = pair.cluster[2].forwarding
    with pytest.raises(FlockError):
        forwarding.receive(1, BATCH_HEAD.pack(BATCH, 1_000, 1) + b"garbage", pair.cluster.now)
    assert forwarding.streams[1].taken == 1, "it would not read better the next time"


def test_kinds_of_newer_nodes_and_boots_that_are_gone_are_passed_over() -> None:
    pair = Pair()
    forwarding = pair.cluster[2].forwarding
    forwarding.receive(1, b"\x09future", pair.cluster.now)
    forwarding.receive(1, BATCH_HEAD.pack(BATCH, 999, 1) + b"garbage", pair.cluster.now)
    assert forwarding.streams[1].taken == 0
