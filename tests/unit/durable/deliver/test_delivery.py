"""Committed messages reach those who subscribed: once, in order, wherever they are, slow clients included."""

from __future__ import annotations

import pytest

from delivery_world import World, ask, got, numbered
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.log.batch import BatchBuilder, BatchView
from flockmq.log.checksum import crc32c
from flockmq.log.columns import RETAIN
from flockmq.log.header import COVERED, HEADER_BYTES, seal
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import WALL_MS, make_properties

A = b"plant/a"
B = b"plant/b"


def plant(size: int = 1, on: tuple[int, ...] = (1,), settings: BrokerSettings | None = None) -> World:
    """A topic called plant with one shard, group 5."""
    world = World(size, settings)
    world.create("plant", 5, on=on)
    return world


def small_queue(messages: int) -> BrokerSettings:
    return BrokerSettings(limits=Limits(queue_messages_max=messages))


# --- live ---


def test_a_subscriber_gets_what_is_committed_after_it_subscribed() -> None:
    world = plant()
    world.commit(5, (A, b"before"))
    screen = world[1].client("screen")
    assert ask(screen, b"plant/#").reasons == [1]
    world.commit(5, (A, b"1"), (B, b"2"), (A, b"3"))
    assert [(one.topic, one.payload, one.qos) for one in screen.consume()] == [(A, b"1", 1), (B, b"2", 1), (A, b"3", 1)]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_version_and_qos(version: int, qos: int) -> None:
    world = plant()
    screen = world[1].client("screen", version)
    screen.subscribe(b"plant/#", qos)
    for published in (0, 1, 2):
        world.commit(5, (A, b"%d" % published), qos=published)
    assert [(one.payload, one.qos) for one in screen.consume()] == [
        (b"%d" % published, min(published, qos)) for published in (0, 1, 2)
    ]


def test_other_topics_are_not_delivered() -> None:
    world = plant()
    screen = world[1].client("screen")
    ask(screen, B)
    world.commit(5, (A, b"1"), (B, b"2"))
    assert got(screen.consume()) == [b"2"]


def test_no_local_is_by_the_publisher_in_the_record() -> None:
    world = plant()
    screen = world[1].client("screen")
    ask(screen, b"plant/#", no_local=True)
    world.commit(5, (A, b"own"), client=b"screen")
    world.commit(5, (A, b"other"))
    assert got(screen.consume()) == [b"other"]


def test_messages_of_several_publishers_in_one_batch_are_told_apart() -> None:
    world = plant()
    screen = world[1].client("screen")
    ask(screen, b"plant/#", no_local=True)
    builder = BatchBuilder()
    for client, payload in ((b"x", b"1"), (b"screen", b"2"), (b"x", b"3")):
        builder.add(A, client, WALL_MS, 1, payload)
    world.append(5, builder)
    assert got(screen.consume()) == [b"1", b"3"]


def test_an_expired_message_is_not_delivered_and_the_rest_of_its_time_is_told() -> None:
    world = plant()
    screen = world[1].client("screen")
    ask(screen, b"plant/#")
    builder = BatchBuilder()
    builder.add(A, b"x", WALL_MS, 1, b"late")
    builder.mark(expires_at=WALL_MS)
    builder.add(A, b"x", WALL_MS, 1, b"in time")
    builder.mark(expires_at=WALL_MS + 5_000)
    world.append(5, builder)
    messages = screen.consume()
    assert got(messages) == [b"in time"]
    assert messages[0].properties is not None
    assert messages[0].properties.message_expiry_s == 5


def test_who_subscribed_before_a_topic_was_created_gets_all_of_it() -> None:
    world = World()
    screen = world[1].client("screen")
    ask(screen, b"plant/#")
    world.create("plant", 5)
    world.commit(5, (A, b"1"))
    assert got(screen.consume()) == [b"1"]


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_new_shard_is_followed_from_its_beginning_however_late_a_node_hears_of_it(is_restored: bool) -> None:
    world = plant(2, on=(1,))
    screens = [world[number].client("screen") for number in (1, 2)]
    for screen in screens:
        ask(screen, b"plant/#")
    world.commit(5, (A, b"old shard"))
    entries = world.truths[5]
    world.create("plant", 5, 6, is_restored=is_restored)
    world.truths[5] = entries
    world.commit(6, (B, b"new shard"))
    assert [got(screen.consume()) for screen in screens] == [[b"old shard", b"new shard"]] * 2


def test_a_topic_that_is_deleted_is_not_followed_any_more() -> None:
    world = plant()
    ask(world[1].client("screen"), b"plant/#")
    assert list(world[1].delivery.streams.by_group) == [5]
    world.delete("plant")
    assert world[1].delivery.streams.by_group == {}


def test_nobody_follows_what_nobody_wants() -> None:
    world = plant(2, on=(1,))
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    ask(screen, b"other/#")
    assert list(world[2].delivery.streams.by_group) == [5]
    screen.unsubscribe(b"plant/#")
    world.settle()
    assert world[2].delivery.streams.by_group == {}
    sent = world.sent_bytes
    world.commit(5, (A, b"1"))
    assert world.sent_bytes == sent


# --- after a start ---


def test_what_was_committed_before_a_replica_caught_up_is_not_live() -> None:
    world = plant(2, on=(1, 2))
    world[2].delivery.caught_up.clear()  # it starts anew, and has applied nothing yet
    world[2].replicas.applied[5] = 0
    world.commit(5, (A, b"old"), apply=False)
    world.apply(1, 5)
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    world.apply(2, 5)
    assert got(screen.consume()) == []
    world.commit(5, (A, b"new"))
    assert got(screen.consume()) == [b"new"]


def test_a_suback_waits_until_it_is_known_where_live_begins() -> None:
    world = plant(2, on=(1, 2))
    world[2].delivery.caught_up.clear()
    world.cut(1, 2)
    screen = world[2].client("screen")
    with pytest.raises(AssertionError, match="No Suback came"):
        screen.subscribe(b"plant/#")
    world.mend(1, 2)
    world.run(700)
    assert screen.received() != []
    assert 5 in world[2].delivery.caught_up


def test_a_suback_does_not_wait_for_ever() -> None:
    world = plant(2, on=(1, 2))
    world[2].delivery.caught_up.clear()
    world.cut(1, 2)
    screen = world[2].client("screen")
    with pytest.raises(AssertionError, match="No Suback came"):
        screen.subscribe(b"plant/#")
    world.run(1_000)
    assert len(screen.received()) == 1


# --- nodes without a replica ---


def test_a_node_without_a_replica_is_fed() -> None:
    world = plant(3, on=(1, 2))
    screen = world[3].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, *numbered(A, 3))
    assert got(screen.consume()) == [b"0", b"1", b"2"]


def test_a_feed_goes_on_at_another_replica() -> None:
    world = plant(3, on=(1, 2))
    screen = world[3].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"1"))
    world.cut(1, 3)
    world.commit(5, (A, b"2"))
    world.cut(2, 3)
    world.commit(5, (A, b"3"))
    assert got(screen.consume()) == [b"1", b"2"]
    world.mend(1, 3)
    world.commit(5, (A, b"4"))
    assert got(screen.consume()) == [b"3", b"4"]


def test_a_feed_follows_a_replica_that_moved() -> None:
    world = plant(3, on=(1,))
    screen = world[3].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"1"))
    world.truths[5].replicas = (2,)
    world[2].replicas.applied[5] = 0
    world.lead(5, 2)
    del world[1].replicas.applied[5]
    world[1].delivery.closed(5, world.now)
    world.run(700)
    world.commit(5, (A, b"2"))
    assert got(screen.consume()) == [b"1", b"2"]


def test_a_replica_that_is_closed_here_is_followed_from_elsewhere() -> None:
    world = plant(2, on=(1, 2))
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"1"))
    world.truths[5].replicas = (1,)
    del world[2].replicas.applied[5]
    world[2].delivery.closed(5, world.now)
    world.commit(5, (A, b"2"))
    assert got(screen.consume()) == [b"1", b"2"]


def test_a_replica_that_is_new_here_takes_over_when_it_is_level() -> None:
    world = plant(2, on=(1,))
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"1"))
    world[2].replicas.applied[5] = 0
    world.truths[5].replicas = (1, 2)
    world.commit(5, (A, b"2"), apply=False)
    world.apply(1, 5)
    assert world[2].delivery.feeds.wants(5)
    world.apply(2, 5)
    world.run(700)
    assert not world[2].delivery.feeds.wants(5)
    world.commit(5, (A, b"3"))
    assert got(screen.consume()) == [b"1", b"2", b"3"]


def test_a_snapshot_leaves_no_gap() -> None:
    world = plant(3, on=(1, 2))
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"1"))
    for payload in (b"2", b"3"):
        world.commit(5, (A, payload), apply=False)
        world.apply(1, 5)
    world.install(2, 5)
    world.run(700)
    world.commit(5, (A, b"4"))
    world.run(700)
    world.commit(5, (A, b"5"))
    assert got(screen.consume()) == [b"1", b"2", b"3", b"4", b"5"]


def test_what_is_gone_everywhere_is_not_skipped_silently() -> None:
    world = plant(2, on=(1,))
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"1"))
    world.cut(1, 2)
    world.commit(5, *numbered(A, 3))
    world[1].replicas.kept[5] = 3
    world.mend(1, 2)
    world.run(700)
    assert got(screen.consume()) == [b"1", b"2"]
    assert world[2].delivery.readers.gone == 2
    assert "durable_gap" in [event.kind for event in world[2].broker.take_events()]


# --- shared groups ---


def test_members_of_a_shared_group_share_and_the_leader_alone_dispatches() -> None:
    world = plant(2, on=(1, 2))
    members = [world[1].client(name) for name in ("one", "two")]
    for member in members:
        member.subscribe(b"$share/g/plant/#", 1)
    world.commit(5, *numbered(A, 10))
    found = [got(member.consume()) for member in members]
    assert sorted(found[0] + found[1], key=int) == [b"%d" % number for number in range(10)]
    world.lead(5, 2)
    world.commit(5, (A, b"for nobody there"))
    assert [got(member.consume()) for member in members] == [[], []]


# --- hidden topics ---


def test_records_of_a_hidden_topic_are_neither_delivered_nor_retained() -> None:
    world = World(2)
    world.create(CAPTURE_TOPIC, 5, on=(1, 2))
    screen = world[1].client("screen")
    ask(screen, b"plant/#")
    member = world[1].client("member")
    ask(member, b"$share/workers/plant/#")
    world.commit(5, (A, b"1"), (B, b"2"), retain=True)
    assert got(screen.consume()) == got(member.consume()) == []
    assert world[1].broker.retained.get(A, world.now) is None
    world.delete(CAPTURE_TOPIC)
    world.create("plant", 6)
    world.commit(6, (A, b"3"))
    assert got(screen.consume()) == got(member.consume()) == [b"3"]


# --- retained messages ---


def test_replicas_retain_by_commit_order_and_agree() -> None:
    world = plant(2, on=(1, 2))
    world.commit(5, (A, b"1"), (A, b"2"), retain=True, wall_ms=WALL_MS + 5)
    world.commit(5, (A, b"3"), retain=True, wall_ms=WALL_MS)
    world.commit(5, (B, b"x"), retain=True)
    world.commit(5, (B, b""), retain=True)
    for number in (1, 2):
        screen = world[number].client("screen")
        screen.subscribe(b"plant/#")
        assert [(one.payload, one.retain) for one in screen.consume()] == [(b"3", True)]
    versions = [[world[number].broker.retained.version(topic) for topic in (A, B)] for number in (1, 2)]
    assert versions[0] == versions[1]


def test_a_record_is_retained_by_its_own_date_not_that_of_its_batch() -> None:
    """Its name was in another partition before."""
    world = plant()
    retained = world[1].broker.retained
    retained.share(1)
    retained.commit(A, None, WALL_MS + 5_000, 99, 1, world.now)
    builder = BatchBuilder()
    builder.add(B, b"publisher", WALL_MS, 1 | RETAIN, b"x")
    builder.add(A, b"publisher", WALL_MS + 5_001, 1 | RETAIN, b"new")
    world.append(5, builder)
    message = retained.get(A, world.now)
    assert message is not None
    assert message.run.payload(0) == b"new"


def test_the_leader_tells_nodes_without_a_replica_what_is_retained() -> None:
    world = plant(2, on=(1, 2))
    unsent = [world[number].broker.retained.keep_unsent() for number in (1, 2)]
    world.commit(5, (A, b"1"), retain=True)
    assert [list(one.topics) for one in unsent] == [[A], []]


# --- slow clients ---


def test_a_slow_client_loses_nothing() -> None:
    world = plant(settings=small_queue(10))
    slow = world[1].client("slow", properties=make_properties(receive_maximum=2))
    quick = world[1].client("quick")
    for client in (slow, quick):
        ask(client, b"plant/#")
    quick_got = []
    for first in range(0, 200, 5):
        world.commit(5, *numbered(A, 5, first))
        quick_got += got(quick.consume())
    assert quick_got == [b"%d" % number for number in range(200)]
    assert list(world[1].delivery.readers.catching) == [world[1].broker.sessions["slow"]]
    assert got(slow.consume()) == [b"%d" % number for number in range(200)]
    assert world[1].delivery.readers.catching == {}
    assert world[1].broker.stats.dropped_queue == 0
    world.commit(5, (A, b"live again"))
    assert got(slow.consume()) == [b"live again"]


def test_qos_0_does_not_overtake_what_waits_for_acknowledgements() -> None:
    world = plant()
    slow = world[1].client("slow", properties=make_properties(receive_maximum=2))
    ask(slow, b"plant/#", qos=2)
    for number in range(0, 60, 3):
        for qos in (1, 0, 2):
            world.commit(5, (A, b"%d" % (number + qos)), qos=qos)
    wanted = [b"%d" % (number + qos) for number in range(0, 60, 3) for qos in (1, 0, 2)]
    assert got(slow.consume()) == wanted
    assert world[1].delivery.readers.catching == {}
    assert world[1].broker.stats.dropped_slow == 0


def test_who_has_to_wait_does_not_read_the_log_in_every_turn() -> None:
    world = plant()
    stuck = world[1].client("stuck", properties=make_properties(receive_maximum=1))
    ask(stuck, b"plant/#", qos=1)
    for qos in (1, 1, 0):  # one in flight, one that waits, one that would overtake it
        world.commit(5, (A, b"%d" % qos), qos=qos)
    before = world[1].replicas.reads
    for _ in range(20):
        world[1].flush()
    assert world[1].replicas.reads <= before + 1
    assert got(stuck.consume()) == [b"1", b"1", b"0"]


def test_a_client_that_is_slow_in_one_partition_follows_others_live() -> None:
    world = World(settings=small_queue(10))
    world.create("plant", 5)
    world.create("other", 6)
    slow = world[1].client("slow", properties=make_properties(receive_maximum=1))
    ask(slow, b"plant/#")
    ask(slow, b"other/#", qos=0)
    world.commit(5, *numbered(A, 50))
    world.commit(6, (b"other/x", b"now"))
    messages = slow.messages()
    assert b"now" in got(messages)
    for message in messages:
        slow.acknowledge(message)
    assert len(messages) + len(slow.consume()) == 51


def test_a_client_that_does_not_read_loses_nothing() -> None:
    world = plant(settings=BrokerSettings(limits=Limits(queue_bytes_max=20_000, write_bytes_max=20_000)))
    slow = world[1].client("slow")
    ask(slow, b"plant/#")
    slow.block()
    for number in range(50):
        world.commit(5, (A, b"%03d" % number * 300))
    held = world[1].broker.sessions["slow"].outbound
    assert held is not None
    assert held.held <= 20_000
    slow.unblock()
    assert [payload[:3] for payload in got(slow.consume())] == [b"%03d" % number for number in range(50)]


def test_a_session_whose_client_is_away_goes_on_from_the_log() -> None:
    world = plant(settings=small_queue(10))
    away = world[1].client("away", session_expiry_s=600)
    ask(away, b"plant/#")
    away.drop()
    world.commit(5, *numbered(A, 50))
    back = world[1].client("away", clean_start=False, session_expiry_s=600)
    assert got(back.consume()) == [b"%d" % number for number in range(50)]


def test_a_session_that_ended_is_forgotten() -> None:
    world = plant(settings=small_queue(2))
    slow = world[1].client("slow", properties=make_properties(receive_maximum=1))
    ask(slow, b"plant/#")
    world.commit(5, *numbered(A, 9))
    assert len(world[1].delivery.readers.catching) == 1
    slow.drop()
    world.settle()
    assert world[1].delivery.readers.catching == {}


def test_a_run_larger_than_a_queue_comes_in_pieces() -> None:
    world = plant(settings=small_queue(4))
    screen = world[1].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, *numbered(A, 30))
    assert got(screen.consume()) == [b"%d" % number for number in range(30)]


def test_a_slow_client_is_served_by_another_replica_where_its_own_is_broken() -> None:
    world = plant(2, on=(1, 2), settings=small_queue(4))
    slow = world[2].client("slow", properties=make_properties(receive_maximum=1))
    ask(slow, b"plant/#")
    world[2].replicas.broken.add(5)
    world.commit(5, *numbered(A, 30))
    assert got(slow.consume()) == [b"%d" % number for number in range(30)]


def test_a_subscription_made_while_catching_up_gets_only_what_is_new() -> None:
    world = plant(settings=small_queue(4))
    slow = world[1].client("slow", properties=make_properties(receive_maximum=1))
    ask(slow, A)
    world.commit(5, *[record for number in range(20) for record in ((A, b"%d" % number), (B, b"old"))])
    ask(slow, B)
    world.commit(5, (B, b"new"), (A, b"20"))
    assert got(slow.consume()) == [*[b"%d" % number for number in range(20)], b"new", b"20"]


# --- what can't be delivered ---


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_batch_that_can_not_be_delivered_stops_nobody(number: int) -> None:
    world = plant(3, on=(1, 2), settings=small_queue(4))
    world.run(300)
    client = world[number].client("c")
    ask(client, b"plant/#")
    world.commit(5, (A, b"1"), (B, b"2"), apply=False)
    broken = bytearray(world.truths[5].entries[-1])
    at = BatchView(bytes(broken)).columns().spans["topic"][0]
    broken[at : at + 4] = (9).to_bytes(4, "little")  # a topic that the batch does not have
    view = BatchView(bytes(broken))
    covered = COVERED.unpack_from(broken, 8)
    sealed = seal(COVERED.pack(*covered[:4], crc32c(bytes(broken[HEADER_BYTES:])), *covered[5:]))
    world.truths[5].entries[-1] = sealed + bytes(broken[HEADER_BYTES:])
    assert view.count == 2
    for replica in (1, 2):
        world.apply(replica, 5)
    world.commit(5, *numbered(A, 20))
    assert got(client.consume()) == [b"%d" % one for one in range(20)]
    again = world[number].client("again")
    ask(again, b"plant/#", start="earliest")
    assert got(again.consume()) == [b"%d" % one for one in range(20)]
    assert "internal_error" in [event.kind for event in world[number].broker.take_events()]


# Sessions that are in the log.


def capture(world: World) -> None:
    """The hidden topic that keeps messages for persistent sessions, with one shard, group 9."""
    world.create(CAPTURE_TOPIC, 9)
    for node in world.nodes.values():
        table = node.broker.node.table
        topic = next(topic for topic in table.topics.topics.values() if topic.name == CAPTURE_TOPIC.encode())
        topic.is_capture = True
        table.capture_in(topic)


def log_in(world: World, client_id: str) -> None:
    """The session of a client has a record in the log from now on."""
    node = world[1]
    node.broker.sessions[client_id].is_logged = True
    node.delivery.streams.want_capture(world.now)
    world.settle()


def test_captured_messages_go_to_logged_sessions_alone() -> None:
    world = World()
    capture(world)
    logged, clean, plain = (world[1].client(name) for name in ("logged", "clean", "plain"))
    log_in(world, "logged")
    log_in(world, "plain")
    ask(logged, b"a/#", qos=1)
    ask(clean, b"a/#", qos=1)
    ask(plain, b"a/#", qos=0)
    world.commit(9, (b"a/b", b"1"), (b"b", b"2"))
    assert got(logged.consume()) == [b"1"]
    clean.expect_nothing()
    plain.expect_nothing()


def test_messages_know_where_in_the_log_they_stand() -> None:
    world = plant()
    capture(world)
    client = world[1].client("c")
    log_in(world, "c")
    ask(client, b"#", qos=1)
    world.commit(5, *numbered(A, 3))
    world.commit(9, (b"x", b"1"), (b"y", b"2"))
    outbound = world[1].broker.sessions["c"].outbound
    assert outbound is not None
    assert outbound.oldest_logged() == {5: 0, 9: 0}
    first, *rest = client.messages()
    client.acknowledge(first)
    assert outbound.oldest_logged() == {5: 1, 9: 0}
    for message in reversed(rest):
        client.acknowledge(message)
    assert outbound.oldest_logged() == {}


def test_logged_sessions_that_are_away_cost_nothing_per_turn() -> None:
    world = World()
    capture(world)
    client = world[1].client("c", session_expiry_s=60)
    log_in(world, "c")
    ask(client, b"a", qos=1)
    client.drop()
    readers = world[1].delivery.readers
    world.commit(9, *numbered(b"a", 3))
    world.commit(9, *numbered(b"a", 3, 3))
    assert [catchup.positions for catchup in readers.catching.values()] == [{9: 0}]
    assert not readers.active
    client = world[1].client("c", clean_start=False, session_expiry_s=60)
    world.settle()
    assert got(client.consume()) == [b"%d" % number for number in range(6)]
    world.settle()
    assert not readers.catching
    assert not readers.active


def test_a_session_that_ends_while_it_is_away_leaves_nothing() -> None:
    world = World()
    capture(world)
    client = world[1].client("c", session_expiry_s=5)
    log_in(world, "c")
    ask(client, b"a", qos=1)
    client.drop()
    world.commit(9, (b"a", b"1"))
    readers = world[1].delivery.readers
    assert readers.catching
    world.run(6_000)
    assert "c" not in world[1].broker.sessions
    assert not readers.catching


def test_a_logged_session_drops_nothing_when_its_queue_is_full() -> None:
    world = World(settings=small_queue(4))
    capture(world)
    client = world[1].client("c", properties=make_properties(receive_maximum=1))
    log_in(world, "c")
    ask(client, b"a", qos=1)
    world.commit(9, *numbered(b"a", 50))
    found = []
    for _ in range(60):
        found += got(client.consume())
        world.settle()
    assert found == [b"%d" % number for number in range(50)]
    assert world[1].broker.stats.dropped_queue == 0


def test_more_sessions_than_one_turn_serves_all_come_level() -> None:
    world = World()
    capture(world)
    count = 150
    clients = [world[1].client(f"c{number}", session_expiry_s=60) for number in range(count)]
    for number, client in enumerate(clients):
        log_in(world, f"c{number}")
        ask(client, b"a", qos=1)
        client.drop()
    world.commit(9, *numbered(b"a", 2))
    back = [world[1].client(f"c{number}", clean_start=False, session_expiry_s=60) for number in range(count)]
    world.settle()
    assert [got(client.consume()) for client in back] == [[b"0", b"1"]] * count
    world.settle()
    assert not world[1].delivery.readers.catching
