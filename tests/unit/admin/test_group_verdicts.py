from __future__ import annotations

from flockmq.admin.group_verdicts import group_verdicts
from flockmq.cluster.commands import CreateTopic
from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, ReadDead
from flockmq.cluster.groups import Binding
from unit.admin.durable_desks import WALL_MS, MemoryDurable


def port() -> MemoryDurable:
    made = MemoryDurable()
    made.apply(CreateTopic("plant"))
    made.apply(CreateTopic("other"))
    return made


async def told(durable: MemoryDurable, name: bytes = b"plant/7") -> dict[str, tuple[str, str]]:
    return {one.group: (one.takes, " ".join(one.reasons)) for one in await group_verdicts(durable, name)}


async def test_groups_take_what_their_bindings_select() -> None:
    durable = port()
    bindings = {
        "all": Binding("plant"),
        "seven": Binding("plant", "direct", "7"),
        "eight": Binding("plant", "direct", "8"),
        "tagged": Binding("plant", "headers", "all:a=b"),
        "elsewhere": Binding("other"),
    }
    for name, binding in bindings.items():
        durable.apply(CreateGroup(name, (binding,)))
    durable.apply(ReadDead("all"))
    found = await told(durable)
    assert {name: takes for name, (takes, _) in found.items()} == {
        "all": "yes",
        "seven": "yes",
        "eight": "maybe",
        "tagged": "maybe",
    }
    assert found["all"][1] == "No member takes part now: the record waits."
    assert "Its routing key is '7'" in found["seven"][1]
    assert "Its own key is '7'" in found["eight"][1]
    assert await told(durable, b"nowhere/7") == {}


async def test_the_members_are_named() -> None:
    durable = port()
    durable.apply(CreateGroup("work", (Binding("plant"),), mode="key"))
    group = durable.state().consumer_group("default", "work")
    durable.log(durable.state().topic("default", "plant").partitions[0].group).append(
        [(b"plant/1", b"", b"x", [])] * 2, WALL_MS
    )
    await durable.groups.fetch(group.id, "m1", 1, 0)
    await durable.groups.fetch(group.id, "m2", 1, 0)
    assert await told(durable) == {"work": ("yes", "One of 2 members gets it, the one that has its key: m1, m2.")}
    durable.apply(AlterGroup("work", paused=True))
    assert await told(durable) == {"work": ("yes", "The group is paused: the record waits.")}
