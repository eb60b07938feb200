"""Consumer groups on whole nodes: records are fetched, settled by token, delivered again."""

from __future__ import annotations

from group_nodes import GroupNodes, payloads


def test_records_are_fetched_on_any_node_and_settled_on_any_other() -> None:
    nodes = GroupNodes()
    group = nodes.group()
    nodes.publish(b"t/a", *[b"%d" % one for one in range(10)])
    found = nodes.fetch(1, group, "m1", 4)
    found += nodes.fetch(2, group, "m2", 4)
    found += nodes.fetch(3, group, "m3", 4)
    assert sorted(payloads(found)) == [b"%d" % one for one in range(10)]
    assert {one.deliveries for one in found} == {1}
    assert nodes.ack(2, *found) == [""] * 10
    partition = nodes.partitions()[0]
    nodes.until(lambda: nodes.floor(group, partition) == 10)
    assert nodes.fetch(1, group, "m1", 4, 200) == []
