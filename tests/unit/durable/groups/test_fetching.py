"""Consumer groups on whole nodes: records are fetched, settled by token, delivered again."""

from __future__ import annotations

from flockmq.cluster.dead_letters import read_dead
from flockmq.log.batch import BatchView
from group_nodes import GroupNodes, payloads


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % one for one in range(start, start + count)]


def test_records_are_fetched_on_any_node_and_settled_on_any_other() -> None:
    nodes = GroupNodes()
    group = nodes.group()
    nodes.publish(b"t/a", *numbers(10))
    found = nodes.fetch(1, group, "m1", 4)
    found += nodes.fetch(2, group, "m2", 4)
    found += nodes.fetch(3, group, "m3", 4)
    assert sorted(payloads(found)) == numbers(10)
    assert {one.deliveries for one in found} == {1}
    assert nodes.ack(2, *found) == [""] * 10
    partition = nodes.partitions()[0]
    nodes.until(lambda: nodes.floor(group, partition) == 10)
    assert nodes.fetch(1, group, "m1", 4, 200) == []


def test_a_fetch_waits_for_records() -> None:
    nodes = GroupNodes()
    group = nodes.group(start="latest")
    promise = nodes.port(2).fetch(group.id, "m", 5, 10_000)
    nodes.run(3_000)
    assert not promise.is_set
    nodes.publish(b"t/a", b"x")
    assert payloads(nodes.answer(promise, 1_000)) == [b"x"]


def test_a_nack_brings_a_record_again_after_the_backoff_and_at_last_a_dead_letter() -> None:
    nodes = GroupNodes()
    group = nodes.group(max_deliver=3, backoff_ms=1_000)
    nodes.publish(b"t/poison", b"bad")
    for attempt in (1, 2, 3):
        found = nodes.fetch(attempt, group, f"m{attempt}", 10, 20_000)
        assert [(one.payload, one.deliveries) for one in found] == [(b"bad", attempt)]
        at = nodes.now
        assert nodes.nack(attempt, *found, reason="no such sensor") == [""]
        assert nodes.nack(attempt, *found) != [""], "the token is stale"
    assert nodes.now - at < 3_000
    dead = nodes.state.topics["default/work.dead"]
    nodes.until(lambda: nodes.payloads_of(dead) == [b"bad"])
    record = BatchView(
        nodes[nodes.leader_number(dead.partitions[0].group)].durable.local.read(dead.partitions[0].group, 0, 1_000)[0]
    ).record(0)
    letter = read_dead(record.user)
    assert record.topic == b"$dead/work/t/poison"
    assert (letter.group, letter.topic, letter.offset, letter.deliveries) == ("work", "t", 0, 3)
    assert (letter.reason, letter.member) == ("no such sensor", "m3")
    nodes.until(lambda: nodes.floor(group, nodes.partitions()[0]) == 1)
    nodes.run(10_000)
    assert nodes.payloads_of(dead) == [b"bad"]
    status = nodes.status(group)[0]
    assert (status.dead, status.dropped, status.redelivered, status.lag) == (1, 0, 2, 0)


def test_the_backoff_doubles_and_a_nack_may_name_its_own_delay() -> None:
    nodes = GroupNodes()
    group = nodes.group(backoff_ms=2_000, max_deliver=0)
    nodes.publish(b"t/a", b"x")
    waits = []
    for delay_ms in (None, None, 500):
        nodes.nack(1, *nodes.fetch(1, group, "m", 1, 20_000), delay_ms=delay_ms)
        at = nodes.now
        found = nodes.fetch(2, group, "m", 1, 20_000)
        waits.append((nodes.now - at) / 1_000)
        nodes.nack(2, *found, delay_ms=0)
        nodes.run(500)
    assert 1.5 < waits[0] < 4
    assert 7.5 < waits[1] < 10
    assert 0.3 <= waits[2] < 2


def test_a_record_that_is_not_settled_in_time_comes_again_and_its_token_is_stale() -> None:
    nodes = GroupNodes()
    group = nodes.group(ack_wait_ms=5_000)
    nodes.publish(b"t/a", b"x")
    first = nodes.fetch(1, group, "m1")
    assert nodes.fetch(2, group, "m2", 10, 3_000) == []
    again = nodes.fetch(2, group, "m2", 10, 5_000)
    assert [(one.payload, one.deliveries) for one in again] == [(b"x", 2)]
    assert "stale" in nodes.ack(1, *first)[0]
    assert nodes.ack(1, *again) == [""]
    assert nodes.ack(3, *again) == [""], "it may be said twice"


def test_extend_gives_a_holder_more_time_on_whichever_node_it_is_said() -> None:
    nodes = GroupNodes()
    group = nodes.group(ack_wait_ms=5_000)
    nodes.publish(b"t/a", b"x")
    found = nodes.fetch(1, group, "m1")
    for _ in range(3):
        nodes.run(4_000)
        assert nodes.answer(nodes.port(2).extend([one.token for one in found], 5_000)) == [""]
    assert nodes.fetch(2, group, "m2", 10, 1_000) == []
    assert nodes.ack(2, *found) == [""]


def test_tokens_that_are_none_or_of_another_generation_get_a_sentence() -> None:
    nodes = GroupNodes()
    group = nodes.group()
    nodes.publish(b"t/a", *numbers(3))
    held = nodes.fetch(1, group, "m")
    nodes.reset("work", "earliest")
    assert all("reset" in one for one in nodes.ack(1, *held))
    group = nodes.state.groups["default/work"]
    again = nodes.fetch(2, group, "m2")
    assert payloads(again) == numbers(3)
    assert nodes.ack(2, *again) == [""] * 3
    assert "no token" in nodes.answer(nodes.port(1).ack(["nonsense"]))[0]
    nodes.delete("work")
    nodes.until(lambda: not nodes[1].meta.state.groups)
    assert "deleted" in nodes.ack(1, *again)[0]


def test_a_paused_group_hands_out_nothing() -> None:
    nodes = GroupNodes()
    group = nodes.group(paused=True)
    nodes.publish(b"t/a", b"x")
    assert nodes.fetch(1, group, "m", 1, 2_000) == []
    nodes.alter("work", paused=False)
    assert payloads(nodes.fetch(1, group, "m", 1, 3_000)) == [b"x"]


def test_no_more_is_in_flight_than_the_group_allows_and_one_stuck_record_stops_no_other() -> None:
    nodes = GroupNodes()
    group = nodes.group(max_in_flight=5, ack_wait_ms=60_000)
    nodes.publish(b"t/a", *numbers(40))
    stuck = nodes.fetch(1, group, "stuck", 1)
    seen = payloads(stuck)
    for _ in range(13):
        found = nodes.fetch(2, group, "m", 10, 300)
        assert len(found) <= 4
        seen += payloads(found)
        nodes.ack(2, *found)
    assert sorted(seen, key=int) == numbers(40)
    assert nodes.floor(group, nodes.partitions()[0]) == 0
    assert nodes.ack(3, *stuck) == [""]
    nodes.until(lambda: nodes.floor(group, nodes.partitions()[0]) == 40)


def test_a_group_gets_the_records_that_its_bindings_select_and_passes_the_others() -> None:
    nodes = GroupNodes(shards=1)
    group = nodes.group("work", "t:topic:+/state")
    partition = nodes.partitions()[0]
    nodes.put(partition, (b"t/a/state", b"1"), (b"t/a", b"2"), (b"t/b/state", b"3"), (b"t/c/other", b"4"))
    found = nodes.fetch(1, group, "m")
    assert payloads(found) == [b"1", b"3"]
    assert nodes.ack(1, *found) == ["", ""]
    nodes.until(lambda: nodes.floor(group, partition) == 4)
    nodes.put(partition, (b"t/x", b"5"))
    nodes.fetch(1, group, "m", 1, 100)
    nodes.until(lambda: nodes.floor(group, partition) == 5)
    assert nodes.status(group)[0].lag == 0


def test_peek_and_status_say_what_waits() -> None:
    nodes = GroupNodes(shards=3)
    group = nodes.group()
    for number, partition in enumerate(nodes.partitions()):
        nodes.put(partition, *[(b"t/a", b"%d" % (10 * number + one)) for one in range(3)])
        nodes.run(100)
    found = nodes.answer(nodes.port(3).peek(group.id, 5))
    assert payloads(found) == [b"0", b"1", b"2", b"10", b"11"]
    assert {one.token for one in found} == {""}
    status = nodes.status(group, 2)
    assert [one.lag for one in status] == [3, 3, 3]
    assert all(one.oldest_ms > 0 and one.lag_bytes > 0 and one.leader for one in status)
    held = nodes.fetch(1, group, "m", 9)
    assert len(held) == 9
    holders = [holder for one in nodes.status(group) for holder in one.holders]
    assert {(holder.member, holder.node_id, holder.held) for holder in holders} == {("m", 1, 3)}


def test_what_a_fetcher_holds_takes_no_room_from_its_next_fetch() -> None:
    """A person with curl, or a worker that has not acknowledged its last batch, gets the next records at once."""
    nodes = GroupNodes()
    group = nodes.group()
    nodes.publish(b"t/a", *numbers(4))
    at = nodes.now
    found = [one for _ in range(4) for one in nodes.fetch(1, group, "curl", 1, 5_000)]
    assert payloads(found) == numbers(4)
    assert {one.deliveries for one in found} == {1}
    assert nodes.now - at < 2_000
