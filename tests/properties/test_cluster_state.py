"""Cluster state and what is decided from it, held against the obvious.

```
 filters_overlap, FilterTree   against all names over a small alphabet, with the matcher of MQTT itself
 ClusterState                  the same commands on two states, one of them encoded and decoded on the way
 placement                     any cluster: no node twice, zones apart, even in the end, no more moved than must be
 policy                        any deaths and returns: a quorum stays, and calm brings the right voters
```
"""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.cluster import commands as c
from flockmq.cluster import commands_groups as g
from flockmq.cluster.filters import FilterTree, filters_overlap
from flockmq.cluster.groups import Binding
from flockmq.cluster.model import ALIVE, DEAD, HIDDEN_TOPICS, AclRule, Limits
from flockmq.cluster.placement import next_moves, plan_repair
from flockmq.cluster.rebalance import plan_rebalance
from flockmq.cluster.state import ClusterState
from flockmq.mqtt.topics import matches
from policy_cluster import World
from state_cases import Machine, spread

LEVELS = [b"a", b"b", b"", b"$a"]
NAMES = [b"/".join(levels) for depth in (1, 2, 3, 4) for levels in product(LEVELS, repeat=depth)]


@st.composite
def topic_filters(draw: st.DrawFn) -> bytes:
    levels = draw(st.lists(st.sampled_from([b"a", b"b", b"+", b"", b"$a"]), min_size=1, max_size=3))
    if draw(st.booleans()):
        levels = [*levels[:2], b"#"] if draw(st.booleans()) else [b"#"]
    joined = b"/".join(levels)
    return joined or b"a"


@given(topic_filters(), topic_filters())
def test_overlap_is_what_brute_force_finds(one: bytes, other: bytes) -> None:
    expected = any(matches(one, name) and matches(other, name) for name in NAMES)
    assert filters_overlap(one, other) is expected
    assert filters_overlap(other, one) is expected


@given(st.lists(topic_filters(), max_size=12, unique=True), st.data())
def test_the_tree_finds_what_a_list_finds(filters: list[bytes], data: st.DataObject) -> None:
    tree = FilterTree()
    owners = {topic_filter: data.draw(st.sampled_from("xyz")) for topic_filter in filters}
    for topic_filter, owner in owners.items():
        tree.add(topic_filter, owner)
    for gone in data.draw(st.lists(st.sampled_from(filters), unique=True)) if filters else []:
        tree.remove(gone)
        del owners[gone]
    asked = data.draw(topic_filters())
    ignored = data.draw(st.sampled_from(["", "x"]))
    expected = {
        owner for topic_filter, owner in owners.items() if filters_overlap(topic_filter, asked) and owner != ignored
    }
    found = tree.owner_of_overlap(asked, ignored)
    assert found in expected if expected else found == ""


node_ids = st.integers(1, 6)
names = st.sampled_from(["a", "b", "c"])
hidden_names = st.sampled_from([*HIDDEN_TOPICS, "a"])
namespaces = st.sampled_from(["default", "default", "acme", "beta"])
user_filters = st.lists(st.sampled_from(["a", "a/b", "a/+", "b/#", "c/+/d", "+/x", "#", "bad/#/x"]), max_size=3).map(
    tuple
)
numbers = st.integers(0, 6)
replica_sets = st.lists(node_ids, max_size=4).map(tuple)
groups = st.integers(1, 12)

bindings = st.lists(
    st.builds(
        Binding,
        names,
        st.sampled_from(["", "fanout", "direct", "topic", "headers", "name", "x"]),
        st.sampled_from(["", "a", "a/+", "a.#", "#.b", "all:k=v", "any:"]),
    ),
    max_size=3,
).map(tuple)

any_command: st.SearchStrategy[c.Command] = st.one_of(
    st.builds(c.SetClusterId, st.integers(0, 2)),
    st.builds(c.NodeSeen, node_ids, names, st.just("h"), numbers, role=st.sampled_from([0, 0, 0, 1]), zone=names),
    st.builds(c.NodeSeen, node_ids, node_ids.map(str), st.just("h"), numbers),
    st.builds(c.NodeSeen, node_ids, node_ids.map(str), st.just("h"), numbers),
    st.builds(c.NodeStateChanged, node_ids, st.integers(0, 3)),
    st.builds(c.ForgetNode, node_ids),
    st.builds(c.ReplaceNode, node_ids, node_ids),
    st.builds(c.RemoveNode, node_ids, st.booleans()),
    st.builds(c.CreateNamespace, names, st.builds(Limits, numbers, numbers)),
    st.builds(c.CreateNamespace, st.just("acme")),
    st.builds(c.AlterNamespace, namespaces, topics_max=st.none() | numbers),
    st.builds(c.DeleteNamespace, namespaces),
    st.builds(c.PutClient, namespaces, names, st.sampled_from([None, "", "$argon2id$x", "plain"]), user_filters),
    st.builds(c.DeleteClient, namespaces, names),
    st.builds(c.Ban, st.sampled_from(["client", "address", "topic"]), names, names, st.sampled_from([0, 1, 2**40])),
    st.builds(c.Unban, st.just("client"), names),
    st.builds(c.PutAcl, namespaces, st.booleans(), st.just((AclRule(True, ("all",), "all", ("#",)),))),
    st.builds(c.DeleteAcl, namespaces),
    st.builds(c.SetSetting, st.sampled_from(["x", "partitions_max", "b/d"]), st.one_of(numbers, st.booleans(), names)),
    st.builds(c.DeleteSetting, names | st.just("x")),
    st.builds(c.CreateTopic, names, namespaces, user_filters, numbers, numbers),
    st.builds(c.CreateTopic, names, namespaces, user_filters, st.integers(1, 3)),
    st.builds(c.CreateTopic, names, namespaces, user_filters, st.integers(1, 3)),
    st.builds(c.AlterTopic, names, namespaces, st.none() | user_filters, st.none() | numbers, st.none() | numbers),
    st.builds(c.DeleteTopic, names, namespaces),
    st.builds(c.CreateHidden, hidden_names),
    st.builds(c.AlterTopic, hidden_names, shards=numbers),
    st.builds(c.DeleteTopic, hidden_names),
    st.builds(c.CreateCursor, names, hidden_names),
    st.builds(c.CreateCursor, names, names, namespaces, st.none() | st.booleans()),
    st.builds(c.DeleteCursor, names, namespaces),
    st.builds(g.CreateGroup, names, bindings, namespaces, dead_letter=st.sampled_from(["", "none", "a"])),
    st.builds(g.CreateGroup, names, st.builds(Binding, names).map(lambda one: (one,)), namespaces),
    st.builds(g.AlterGroup, names, namespaces, st.none() | bindings, paused=st.none() | st.booleans()),
    st.builds(g.DeleteGroup, names, namespaces, numbers),
    st.builds(g.ResetGroup, names, st.sampled_from(["latest", "offset:3", "time:2026", "x"]), namespaces),
    st.builds(g.ReadDead, names, namespaces),
    st.builds(g.ShareGroup, names, st.sampled_from(["a/#", "#", "+/b", "bad/#/x"]), namespaces),
    st.builds(c.SetTarget, groups, replica_sets, st.integers(0, 6)),
    st.builds(c.ReplicasAre, groups, replica_sets, numbers),
    st.builds(c.Rebalance, numbers),
)
begin: list[c.Command] = [
    c.NodeSeen(1, "1", "h", 1),
    c.NodeSeen(2, "2", "h", 2),
    c.NodeSeen(3, "3", "h", 3),
    c.CreateNamespace("acme"),
]


@settings(max_examples=300)
@given(st.lists(any_command, max_size=60), st.integers(0, 60))
def test_the_same_commands_make_the_same_state(commands: list[c.Command], cut: int) -> None:
    one = ClusterState()
    other = ClusterState()
    seen_groups: set[int] = set()
    for number, command in enumerate(begin + commands):
        envelope = c.encode_envelope(1, 2, number, 1_000 + number, command)
        if number == cut:
            other = ClusterState.decode(other.encode())
        before = set(one.places)
        previous = one.encode()
        result = one.apply(envelope)
        assert other.apply(envelope) == result
        new_groups = set(one.places) - before
        assert not new_groups & seen_groups, "a group was used again"
        seen_groups |= new_groups
        if not result.ok:
            one.index -= 1
            assert one.encode() == previous, "a refusal changed something"
            one.index += 1
        check(one)
    assert one.encode() == other.encode()
    assert ClusterState.decode(one.encode()).encode() == one.encode()


def check(state: ClusterState) -> None:
    """What must hold after each command."""
    topics = list(state.topics.values())
    for number, topic in enumerate(topics):
        for other in topics[:number]:
            assert not any(filters_overlap(a, b) for a in topic.filters for b in other.filters)
        assert len(topic.partitions) == topic.shards
        for shard, partition in enumerate(topic.partitions):
            assert partition.shard == shard
            assert state.places[partition.group] == (f"{topic.namespace}/{topic.name}", shard)
            for nodes in (partition.replicas, partition.target, partition.founders, partition.first):
                assert len(set(nodes)) == len(nodes)
            assert partition.replicas
            assert partition.preferred in partition.target
            assert set(partition.founders) <= set(partition.first) & set(partition.replicas)
            assert all(node in state.nodes for node in partition.target)
    partitions = state.partitions()
    assert state.loads.partitions == len(partitions) == len(state.places)
    for node, count in state.loads.replicas.items():
        assert count == sum(1 for partition in partitions if node in partition.target)
    for node, count in state.loads.leaders.items():
        assert count == sum(1 for partition in partitions if node == partition.preferred)
    assert all(topic.namespace in state.namespaces for topic in topics)
    assert all(client.namespace in state.namespaces for client in state.clients.values())
    assert all(namespace in state.namespaces for namespace in state.acls)
    assert all(f"{each.namespace}/{each.topic}" in state.topics for each in state.cursors.values())
    assert state.moving() == [partition for partition in partitions if partition.is_moving]


@settings(max_examples=60)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_a_cluster_gets_even_and_stays_so(
    nodes: int, topics: list[tuple[int, int]], joining: int, zone_count: int
) -> None:
    zones = ("x", "y", "z")[:zone_count]
    machine = Machine(nodes, zones=zones)
    for number, (shards, factor) in enumerate(topics):
        machine.topic(f"t{number}", shards, factor)
    for node in range(nodes + 1, nodes + joining + 1):
        machine.node(node, zone=zones[node % zone_count])
    settle(machine)
    state = machine.state
    alive = list(state.nodes)
    labels = {node.zone for node in state.nodes.values()}
    for topic in state.topics.values():
        for partition in topic.partitions:
            assert len(set(partition.target)) == len(partition.target) == min(topic.replication_factor, len(alive))
            used = [state.nodes[node].zone for node in partition.target]
            assert len(set(used)) == min(len(used), len(labels))
    if zone_count == 1:
        assert spread(state.loads.replicas, alive) <= 1
        if all(factor > 1 for _, factor in topics):
            assert spread(state.loads.leaders, alive) <= 1


@settings(max_examples=60)
@given(st.integers(2, 6), st.integers(1, 20), st.integers(1, 3), st.data())
def test_what_a_lost_node_had_is_rebuilt_and_nothing_else_moves(
    nodes: int, shards: int, factor: int, data: st.DataObject
) -> None:
    machine = Machine(nodes)
    machine.topic("t", shards, factor)
    lost = data.draw(st.integers(1, nodes))
    machine.done(c.NodeStateChanged(lost, DEAD))
    before = {partition.group: partition.target for partition in machine.state.partitions()}
    while moves := plan_repair(machine.state, (lost,), 5):
        machine.follow(moves)
    for partition in machine.state.partitions():
        was = before[partition.group]
        if lost not in was or was == (lost,):
            assert partition.target == was
        else:
            assert lost not in partition.target
            assert set(was) - {lost} <= set(partition.target)
            assert len(partition.target) == min(factor, nodes - 1)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 3))
def test_no_more_replicas_move_than_the_new_node_needs(nodes: int, shards: int, factor: int) -> None:
    machine = Machine(nodes)
    machine.topic("t", shards, min(factor, nodes))
    machine.node(nodes + 1)
    before = {partition.group: set(partition.target) for partition in machine.state.partitions()}
    moved = sum(len(set(move.target) - before[move.group]) for move in plan_rebalance(machine.state))
    total = shards * min(factor, nodes)
    assert moved <= -(-total // (nodes + 1))


def settle(machine: Machine) -> None:
    """Do what is planned until nothing is; it must end."""
    for _ in range(2_000):
        moves = next_moves(machine.state, (), 5)
        if not moves:
            return
        machine.follow(moves)
    raise AssertionError("the plans never end")


happenings = st.lists(
    st.tuples(st.integers(1, 7), st.sampled_from(["dies", "returns", "waits", "waits long", "decides", "decides"])),
    max_size=40,
)


@settings(max_examples=200)
@given(st.integers(1, 7), happenings)
def test_group_0_never_loses_itself_and_finds_its_voters(count: int, story: list[tuple[int, str]]) -> None:
    world = World(count)
    world.calm(4)
    for node, what in story:
        if what == "waits":
            world.wait(31_000)
        elif what == "waits long":
            world.wait(301_000)
        elif what == "decides":
            if world.leader:
                decide_safely(world)
        elif node <= count:
            world.says(node, DEAD if what == "dies" else ALIVE)
    for node in world.members:
        world.says(node, ALIVE)
    for _ in range(15):
        decide_safely(world)
    assert sorted(world.machine.state.nodes) == list(range(1, count + 1))
    assert len(world.current.voters) == {1: 1, 2: 2, 3: 3, 4: 3}.get(count, 5)
    assert world.current.learners == ()
    assert world.decide().configuration is None


def decide_safely(world: World) -> None:
    """One round; each configuration it steps to can be decided by those alive, with the leader in it."""
    leader = world.leader
    before = world.current
    world.round()
    alive = {node for node, member in world.members.items() if member.state == ALIVE}
    assert world.current.has_quorum(alive)
    assert leader in world.current.voters
    assert not set(world.current.learners) & set(world.current.voters)
    added = set(world.current.voters) - set(before.voters)
    assert added <= set(before.learners), "nobody votes who has not learned"
