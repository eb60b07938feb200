"""Durable topics on a real engine: whatever happens in whatever order, acknowledgements and keys keep theirs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_broker import DurableBroker
from flockmq.log.batch import DATA, BatchView
from flockmq.mqtt.packets import PUBACK, PUBREC, Ack, Publish
from flockmq.mqtt.run import make_run
from flockmq.raft.ready import Ready
from flockmq.routing.durable import BY_PROPERTY, DurableTopic
from flockmq.testing.harness import make_properties

KEYS = 3
SHARDS_MAX = 5
Step = tuple[str, int, int]


def other(*names: str) -> list[Step]:
    return [(name, 0, 0) for name in names]


def around_a_change(first: Step, second: Step, third: Step) -> list[Step]:
    """Messages before, between and after the moments at which leader and node hear of a change."""
    between = [second, *other("turn"), second, *other("turn")]
    return [first, *other("turn", "leader_learns"), *between, *other("node_learns"), third]


PUBLISH = st.tuples(st.just("publish"), st.integers(0, 2), st.integers(0, KEYS - 1))
EVENTS = ["turn", "turn", "write", "plain", "leader_learns", "node_learns", "tick"]
STEPS = st.lists(
    st.one_of(
        st.lists(PUBLISH, min_size=1, max_size=4),
        st.sampled_from(EVENTS).map(other),
        st.builds(around_a_change, PUBLISH, PUBLISH, PUBLISH),
    ),
    min_size=5,
    max_size=20,
).map(lambda parts: [step for part in parts for step in part])


class Growing(DurableBroker):
    """One topic that gets more and more shards; its leaders and this node hear of it at different times."""

    def __init__(self, by_property: bool) -> None:
        super().__init__()
        self.by_property = by_property
        self.committed: list[bytes] = []
        self.newest = self.topic(b"t", key=BY_PROPERTY if by_property else 0, key_property=b"k")
        for group in range(2, SHARDS_MAX + 1):
            self.open(group)  # beforehand, so that nothing is settled when it is needed

    def grow(self) -> None:
        """The topic gets another shard; leaders know."""
        topic = self.newest
        if len(topic.groups) == SHARDS_MAX:
            return
        group = topic.groups[-1] + 1
        groups = [*topic.groups, group]
        index = topic.index + 10
        self.newest = DurableTopic(
            topic.namespace, topic.name, topic.filters, groups, 0, topic.key, topic.key_property, index
        )
        for one in groups:
            self.host.rules.least[one] = index

    def _applied(self, group: int, ready: Ready) -> None:
        super()._applied(group, ready)
        for entry in ready.committed:
            if entry.kind == DATA:
                view = BatchView(entry.data)
                self.committed += [view.record(position).payload for position in range(view.count)]


@settings(max_examples=30, deadline=None)
@given(STEPS, st.booleans(), st.sampled_from([4, 5]))
def test_everything_arrives_once_and_in_order(steps: list[Step], by_property: bool, version: int) -> None:
    broker = Growing(by_property)
    client = broker.client("c", version)
    number = 0
    expected: list[tuple[int, int]] = []
    published: list[bytes] = []
    for what, qos, key in steps:
        if what == "publish":
            number += 1
            payload = b"%d %d" % (key, number)
            published.append(payload)
            topic = b"t/x" if by_property else b"t/%d" % key
            has_property = by_property and version == 5
            properties = make_properties(user=[("k", str(key))]) if has_property else None
            client.send(Publish(topic, payload, qos, packet_id=number if qos else 0, properties=properties))
            if qos:
                expected.append((PUBACK if qos == 1 else PUBREC, number))
        elif what == "plain":
            number += 1
            client.send(Publish(b"plain", b"", 1, packet_id=number))
            expected.append((PUBACK, number))
        elif what == "leader_learns":
            broker.grow()
        elif what == "node_learns":
            broker.tell(broker.newest)
        elif what == "turn":
            broker.turn()
        elif what == "write":
            broker.write()
        else:
            broker.wait(20)
    broker.tell(broker.newest)
    for _ in range(6):
        broker.settle()
    found = [(packet.kind, packet.packet_id) for packet in client.received() if isinstance(packet, Ack)]
    assert found == expected
    assert sorted(broker.committed) == sorted(published)
    for key in range(KEYS):
        start = b"%d " % key
        assert [p for p in broker.committed if p.startswith(start)] == [p for p in published if p.startswith(start)]
    assert not client.connection.reading_paused
    assert all(not lane.unsettled and not lane.is_waiting() for lane in broker.appending.lanes.values())


def test_the_admin_is_told_everything_it_published() -> None:
    broker = Growing(False)
    told: list[object] = []
    for number in range(5):
        run = make_run(5, 1, False, b"t/%d" % number, b"%d 1" % number)
        broker.appending.publish(broker.newest, run, b"admin", told.append, broker.now)
    broker.settle()
    assert told == [[(0, number)] for number in range(5)]
