"""Where a session that is made of its record reads on: nothing twice, nothing from before a start, nothing missed."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from flockmq.cluster.commands import CreateTopic
from flockmq.durable.deliver.interest import Interest
from flockmq.durable.machine.session_bodies import NO_LOCAL, StoredSubscription
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.sessions.restoring import places_of, restore
from flockmq.routing.durable import DurableTopic
from flockmq.routing.table import SubscriptionTable
from flockmq.session.places import POSITION, START
from flockmq.testing.harness import BrokerHarness
from session_nodes import SessionNodes

GROUPS = (5, 6)
FILTERS = (b"a/#", b"b/#", b"#")


def interest_with_capture(table: SubscriptionTable) -> Interest:
    topic = DurableTopic(b"default", b"$capture", [], list(GROUPS))
    topic.is_capture = True
    table.capture_in(topic)
    interest = Interest(table)
    interest.wants_capture = True
    return interest


def record_of(starts: dict[bytes, dict[int, int]], positions: dict[int, int]) -> SessionRecord:
    record = SessionRecord(b"c")
    record.epoch = 9
    record.version = 5
    record.expiry_s = 60
    record.user = b"ann"
    for group, offset in positions.items():
        record.advance(group, offset)
    for index, (topic_filter, known) in enumerate(starts.items()):
        record.put(StoredSubscription(topic_filter, 1, 0, 0, dict(known)), index + 1)
    return record


def test_a_session_has_all_that_the_record_says() -> None:
    harness = BrokerHarness(node_id=1)
    node = harness.broker.node
    record = record_of({b"a/#": {5: 3, 6: 0}}, {})
    record.put(StoredSubscription(b"$share/g/s/#", 2, NO_LOCAL | 2 << 2, 77, {}), 2)
    session = restore(node, "c", record, None, interest_with_capture(node.table), harness.now)
    assert (session.username, session.expiry_s, session.record_epoch) == ("ann", 60, 9)
    assert session.is_logged
    shared = session.subscriptions[b"$share/g/s/#"]
    assert (shared.group, shared.topic_filter, shared.qos, shared.no_local) == (b"g", b"s/#", 2, True)
    assert (shared.retain_handling, shared.identifier, shared.retain_as_published) == (2, 77, False)
    assert node.table.count_own(b"", b"a/#") == 1


def test_a_name_stands_in_its_own_partition_alone() -> None:
    table = SubscriptionTable(100, "round_robin", random.Random(1))
    interest = interest_with_capture(table)
    record = record_of({b"a/b": {5: 1, 6: 1}}, {})
    harness = BrokerHarness(node_id=1)
    session = restore(harness.broker.node, "c", record, None, interest, harness.now)
    assert len({place.group for place in places_of(session, record, interest)}) == 1


offsets = st.dictionaries(st.sampled_from(GROUPS), st.integers(0, 9))


@given(st.dictionaries(st.sampled_from(FILTERS), offsets, min_size=1), offsets)
def test_a_session_reads_on_where_the_record_says(
    starts: dict[bytes, dict[int, int]], positions: dict[int, int]
) -> None:
    harness = BrokerHarness(node_id=1)
    node = harness.broker.node
    interest = interest_with_capture(node.table)
    record = record_of(starts, positions)
    session = restore(node, "c", record, None, interest, harness.now)
    places = places_of(session, record, interest)
    for group in GROUPS:
        reads_from = [place.offset for place in places if place.group == group and place.kind == POSITION]
        begins = {place.topic_filter: place.offset for place in places if place.group == group and place.kind == START}
        assert len(reads_from) == 1
        for topic_filter, known in starts.items():
            gets_from = max(reads_from[0], begins.get(topic_filter, 0))
            assert gets_from == max(known.get(group, 0), positions.get(group, reads_from[0]))


# Whole nodes.


def test_nothing_from_before_a_subscription_comes_to_a_restored_session() -> None:
    nodes = SessionNodes()
    nodes.subscriber(2, "other", b"#")
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/1", [b"before a"])
    nodes.run(500)  # until the subscriber's node has applied it too
    device = nodes.subscriber(1, "c", b"a/#")
    nodes.publish_all(publisher, b"b/1", [b"before b"])
    nodes.run(500)
    nodes.subscribe(device, b"b/#")
    nodes[1].kill()
    nodes.publish_all(publisher, b"a/1", [b"a"])
    nodes.publish_all(publisher, b"b/1", [b"b"])
    assert sorted(nodes.got(nodes.connect(3, "c"))) == [b"a", b"b"]


def test_nothing_comes_twice_after_a_detach() -> None:
    nodes = SessionNodes()
    publisher = nodes.clean(2, "p")
    device = nodes.subscriber(1, "c", b"a/#")
    sent: list[bytes] = []
    found: list[bytes] = []
    for number in range(6):
        payload = b"%d" % number
        sent.append(payload)
        nodes.publish_all(publisher, b"a/%d" % number, [payload])
        if number % 2:
            found += nodes.got(device)
            nodes.drop(device)
            device = nodes.connect(1 + number % 3, "c")
    found += nodes.got(device)
    assert sorted(found) == sent


def test_a_topic_that_is_declared_while_a_session_is_away_is_read_from_its_beginning() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"#")
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"d/1", [b"captured"])
    assert nodes.until_got(device, 1) == [b"captured"]
    nodes.drop(device)
    nodes.publish_all(publisher, b"d/1", [b"away"])
    nodes.submit(1, CreateTopic("d", filters=("d/#",), shards=2))
    nodes.run(2_000)
    nodes.publish_all(publisher, b"d/1", [b"declared"])
    assert sorted(nodes.got(nodes.connect(3, "c"))) == [b"away", b"declared"]


def test_options_of_subscriptions_outlive_their_node() -> None:
    nodes = SessionNodes()
    nodes.subscriber(1, "c", b"a/#", 2)
    nodes[1].kill()
    device = nodes.connect(2, "c")
    publisher = nodes.clean(3, "p")
    assert nodes.publish(publisher, b"a/b", b"two", 2) < 0x80
    nodes.run(2_000)
    device.look()
    assert [(message.payload, message.qos) for message in device.messages] == [(b"two", 2)]
