from __future__ import annotations

import dataclasses

import pytest

from flockmq.admin import durable_dead_letters, durable_group_members, durable_groups, durable_topics
from flockmq.admin import durable_groups_model as model
from flockmq.admin.desk import Desk
from flockmq.admin.durable_model import InNamespace, TopicRequest
from flockmq.cluster.dead_letters import DeadLetter, dead_name, dead_properties
from flockmq.errors import ApiError, NoLeader
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import WALL_MS, MemoryDurable


async def with_group(*bindings: str | model.GroupBinding, shards: int = 1) -> tuple[Desk, MemoryDurable]:
    port = MemoryDurable()
    desk = make_desk(BrokerHarness(), durable=port)
    await durable_topics.create_topic(desk, call(body=TopicRequest(name="plant", shards=shards)))
    asked = model.GroupRequest(name="work", bindings=list(bindings or ["plant"]), start="earliest")
    await durable_groups.create_group(desk, call(body=asked))
    return desk, port


def publish(port: MemoryDurable, *payloads: bytes, topic: bytes = b"plant/1") -> None:
    group = port.state().topic("default", "plant").partitions[0].group
    port.log(group).append([(topic, b"c", one, [(b"a", b"b")]) for one in payloads], WALL_MS)


async def fetch(desk: Desk, most: int = 10, **fields: object) -> model.Fetch:
    body = model.FetchRequest(max=most, **fields)  # type: ignore[arg-type]
    return await durable_group_members.fetch_records(desk, call(InNamespace(), body, group="work"))


async def details(desk: Desk) -> model.GroupDetails:
    return await durable_groups.get_group(desk, call(InNamespace(), group="work"))


async def test_a_group_is_made_altered_and_forgotten() -> None:
    desk, port = await with_group("plant:topic:+/state", model.GroupBinding(topic="plant", type="direct", key="x"))
    found = await details(desk)
    assert [one.text for one in found.bindings] == ["plant:topic:+/state", "plant:direct:x"]
    assert (found.mode, found.dead_letter, found.generation, found.start) == ("share", "work.dead", 1, "earliest")
    change = model.GroupChange(bindings=["plant"], mode="key", ack_wait_ms=500, dead_letter="none")
    changed = await durable_groups.alter_group(desk, call(InNamespace(), change, group="work"))
    assert (changed.mode, changed.ack_wait_ms, changed.dead_letter, changed.max_deliver) == ("key", 500, None, 5)
    assert (await durable_groups.pause_group(desk, call(InNamespace(), group="work"))).paused
    assert not (await durable_groups.resume_group(desk, call(InNamespace(), group="work"))).paused
    reset = model.GroupReset(to="latest")
    again = await durable_groups.reset_group(desk, call(InNamespace(), reset, group="work"))
    assert (again.generation, again.reset_to) == (2, "latest")
    await durable_groups.delete_group(desk, call(InNamespace(), group="work"))
    assert not port.state().groups
    with pytest.raises(ApiError, match="group list"):
        await details(desk)


async def test_what_can_not_be_is_refused_in_plain_sentences() -> None:
    with pytest.raises(ApiError, match="needs a key"):
        await with_group("plant:direct")
    with pytest.raises(ApiError, match="no topic"):
        await with_group("gone")
    with pytest.raises(ApiError, match="is no binding"):
        await with_group("")
    desk, port = await with_group()
    port.groups.slow = ["Partition 0 has no leader."]
    with pytest.raises(ApiError, match="not all of its partitions"):
        await durable_groups.reset_group(desk, call(InNamespace(), model.GroupReset(to="latest"), group="work"))


async def test_groups_are_listed_with_lags_when_asked() -> None:
    desk, port = await with_group(shards=2)
    publish(port, b"1", b"2")
    [plain] = (await durable_groups.list_groups(desk, call(model.GroupPage()))).items
    assert plain.lag is None
    [found] = (await durable_groups.list_groups(desk, call(model.GroupPage(lag=True)))).items
    assert found.lag is not None
    assert (found.lag.messages, found.lag.bytes, found.lag.members, found.lag.problem) == (2, 200, 0, "")
    port.leaderless = {port.state().topic("default", "plant").partitions[1].group}
    [found] = (await durable_groups.list_groups(desk, call(model.GroupPage(lag=True)))).items
    assert found.lag is not None
    assert found.lag.messages is None
    assert "No leader of 1 partition answers, such as plant/1" in found.lag.problem
    assert not (await durable_groups.list_groups(desk, call(model.GroupPage(namespace="acme")))).items


async def test_members_fetch_and_settle() -> None:
    desk, port = await with_group()
    publish(port, b"1", b"2", b"\xff")
    found = await fetch(desk, 2, member="m1")
    assert [(one.payload, one.deliveries, one.topic, one.offset) for one in found.messages] == [
        ("1", 1, "plant/1", 0),
        ("2", 1, "plant/1", 1),
    ]
    assert [(one.name, one.value) for one in found.messages[0].user_properties] == [("a", "b")]
    told = await details(desk)
    assert [(one.member, one.node, one.held, one.shards) for one in told.members] == [("m1", "n1@host", 2, ["plant/0"])]
    assert [(one.lag, one.floor, one.in_flight) for one in told.partitions] == [(3, 0, 2)]
    tokens = [one.token or "" for one in found.messages]
    more = await fetch(desk, ack=[tokens[0], "stale"])
    assert len(more.messages) == 1
    assert "stale" in more.refused[0].reason
    nack = model.NackRequest(tokens=[tokens[1]], delay_ms=50, reason="busy")
    done = await durable_group_members.nack_records(desk, call(InNamespace(), nack, group="work"))
    assert (done.done, port.groups.nacks) == (1, [(tokens[1], 50, "busy")])
    [again] = (await fetch(desk)).messages
    assert again.deliveries == 2
    extend = model.ExtendRequest(tokens=[tokens[1]], ms=5_000)
    await durable_group_members.extend_records(desk, call(InNamespace(), extend, group="work"))
    assert port.groups.extended == [(tokens[1], 5_000)]
    bury = model.NackRequest(tokens=[tokens[1]], dead=True, reason="poison")
    await durable_group_members.nack_records(desk, call(InNamespace(), bury, group="work"))
    assert list(port.groups.buried.values()) == ["poison"]
    ack = model.AckRequest(tokens=[tokens[0], tokens[1]])
    with pytest.raises(ApiError, match="stale") as refused:
        await durable_group_members.ack_records(desk, call(InNamespace(), ack, group="work"))
    assert refused.value.status == 409
    last = more.messages[0].token or ""
    ack = model.AckRequest(tokens=[tokens[0], last])
    settled = await durable_group_members.ack_records(desk, call(InNamespace(), ack, group="work"))
    assert (settled.done, [one.token for one in settled.refused]) == (1, [tokens[0]])


async def test_a_token_whose_leader_is_silent_may_be_used_again() -> None:
    desk, port = await with_group()
    publish(port, b"1", b"2")
    one, two = [message.token or "" for message in (await fetch(desk)).messages]
    port.groups.leaderless = {one}
    settled = await durable_group_members.ack_records(
        desk, call(InNamespace(), model.AckRequest(tokens=[one, two]), group="work")
    )
    assert [(refused.token, refused.retry) for refused in settled.refused] == [(one, True)]
    with pytest.raises(NoLeader):
        await durable_group_members.ack_records(desk, call(InNamespace(), model.AckRequest(tokens=[one]), group="work"))


async def test_a_look_hands_nothing_out() -> None:
    desk, port = await with_group()
    publish(port, b"1", b"2")
    found = await durable_group_members.peek_records(desk, call(model.PeekQuery(limit=1), group="work"))
    assert [(one.payload, one.token) for one in found.messages] == [("1", None)]
    assert len((await fetch(desk)).messages) == 2


def bury(port: MemoryDurable, *names: bytes) -> None:
    topic = port.state().topic("default", "work.dead")
    letters = [
        (
            dead_name("default", "work", name),
            b"c",
            b"poison " + name,
            [(b"a", b"b"), *dead_properties(DeadLetter("work", "plant", 0, at, 5, "too often", "m1"))],
        )
        for at, name in enumerate(names)
    ]
    port.log(topic.partitions[0].group).append(letters, WALL_MS)


async def dead(desk: Desk) -> model.DeadLetters:
    return await durable_dead_letters.list_dead(desk, call(model.PeekQuery(), group="work"))


async def redrive(desk: Desk, **which: object) -> model.DeadOutcome:
    body = model.DeadSelection(**which)  # type: ignore[arg-type]
    return await durable_dead_letters.redrive_dead(desk, call(InNamespace(), body, group="work"))


async def test_dead_letters_are_listed_with_their_reasons() -> None:
    desk, port = await with_group()
    assert (await dead(desk)).items == []
    bury(port, b"plant/1", b"plant/2")
    found = await dead(desk)
    assert (found.dead_letter, found.total) == ("work.dead", 2)
    one = found.items[1]
    assert (one.id, one.topic, one.reason, one.deliveries, one.member) == ("0:1", "plant/2", "too often", 5, "m1")
    assert (one.durable_topic, one.shard, one.offset, one.payload) == ("plant", 0, 1, "poison plant/2")
    assert [(pair.name, pair.value) for pair in one.user_properties] == [("a", "b")]
    groups = (await durable_groups.list_groups(desk, call(model.GroupPage()))).items
    assert [one.name for one in groups] == ["work"], "the reader of dead letters is not listed"


async def test_each_is_brought_back_once() -> None:
    desk, port = await with_group()
    bury(port, b"plant/1", b"plant/2", b"other/3")
    outcome = await redrive(desk, ids=["0:1", "0:7"])
    assert (outcome.done, [one.token for one in outcome.refused]) == (1, ["0:7"])
    assert "no such dead letter" in outcome.refused[0].reason
    assert [one.id for one in (await dead(desk)).items] == ["0:0", "0:2"]
    [back] = (await fetch(desk)).messages
    assert (back.topic, back.payload) == ("plant/2", "poison plant/2")
    assert {one.name: one.value for one in back.user_properties} == {"a": "b", "flockmq-redriven": "work"}
    again = await redrive(desk, ids=["0:1"])
    assert (again.done, len(again.refused)) == (0, 1)
    outcome = await redrive(desk, all=True)
    assert outcome.done == 1
    assert "No durable topic takes 'other/3'" in outcome.refused[0].reason
    assert [one.id for one in (await dead(desk)).items] == ["0:2"], "what could not be published stays"
    with pytest.raises(ApiError, match="one of the two"):
        await redrive(desk)
    with pytest.raises(ApiError, match="one of the two"):
        await redrive(desk, all=True, ids=["0:0"])


async def test_dropped_ones_are_listed_no_more() -> None:
    desk, port = await with_group()
    bury(port, b"plant/1", b"plant/2")
    body = model.DeadSelection(all=True)
    outcome = await durable_dead_letters.drop_dead(desk, call(InNamespace(), body, group="work"))
    assert (outcome.done, outcome.left) == (2, False)
    assert (await dead(desk)).items == []
    assert not (await fetch(desk)).messages


async def test_records_of_a_caller_that_hung_up_go_back() -> None:
    desk, port = await with_group()
    publish(port, b"1", b"2")
    asked = dataclasses.replace(call(InNamespace(), model.FetchRequest(), group="work"), is_gone=lambda: True)
    assert (await durable_group_members.fetch_records(desk, asked)).messages == []
    assert len(port.groups.nacks) == 2
    assert [one.deliveries for one in (await fetch(desk)).messages] == [2, 2]
