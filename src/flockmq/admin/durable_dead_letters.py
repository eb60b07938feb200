"""The operations on dead letters of a consumer group: listed, brought back to where they were published, or dropped.

```
 dead letters in NAME.dead --> $dead/NAME, a group of its own --> peek                   listed
                                                             |--> fetch, publish, ack    redriven
                                                             `--> fetch, ack             dropped
```
The reader of dead letters is made at first need. A redriven record goes to the end of its topic under its own name, so
other readers of the topic see it again. A record is redriven twice when a node dies between its publish and its ack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flockmq.admin import durable_groups_model as model
from flockmq.admin.durable_common import change, durable, owner_of
from flockmq.admin.durable_group_views import payload_parts, properties_view, text_of
from flockmq.admin.durable_groups import begin, find_group
from flockmq.admin.durable_port import Message
from flockmq.admin.moments import rfc3339
from flockmq.cluster.commands_groups import ReadDead
from flockmq.cluster.dead_letters import REDRIVEN, original_name, read_dead, without_dead
from flockmq.cluster.filters import namespace_prefix
from flockmq.cluster.groups import reader_name
from flockmq.errors import INVALID_BODY, ApiError, RemoteProtocolError
from flockmq.mqtt.properties import IN_PUBLISH, Properties, decode_properties

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_model import InNamespace
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.operations import Call
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord
    from flockmq.durable.groups.port import Fetched

MEMBER: Final = "redrive"
LOOKED_AT_MAX: Final = 10_000
"""Dead letters that one request takes up to find those that were named."""


async def list_dead(desk: Desk, call: Call[model.PeekQuery, None]) -> model.DeadLetters:
    """Dead letters that wait for a decision."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    reader = await _reader(desk, group)
    found = await port.groups.peek(reader.id, call.query.limit)
    status = await port.groups.status(reader.id)
    total = sum(one.lag for one in status) if all(one.leader for one in status) else None
    items = [_view(group.namespace, one) for one in found]
    return model.DeadLetters(dead_letter=group.dead_letter, items=items, total=total)


async def redrive_dead(desk: Desk, call: Call[InNamespace, model.DeadSelection]) -> model.DeadOutcome:
    """Publish dead letters again where they came from; each is then settled."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    reader = await _reader(desk, group)
    taken, refused, left = await _take(port, reader, call.body)
    problems = await _publish(port, group, taken)
    done = [one.token for one, problem in zip(taken, problems, strict=True) if not problem]
    kept = [one.token for one, problem in zip(taken, problems, strict=True) if problem]
    refused += [
        model.RefusedToken(token=_id(one), reason=problem)
        for one, problem in zip(taken, problems, strict=True)
        if problem
    ]
    await _settle(port, done, kept)
    return model.DeadOutcome(done=len(done), refused=refused, left=left)


async def drop_dead(desk: Desk, call: Call[InNamespace, model.DeadSelection]) -> model.DeadOutcome:
    """List dead letters no more. Their topic keeps the records as long as its retention says."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    reader = await _reader(desk, group)
    taken, refused, left = await _take(port, reader, call.body)
    await _settle(port, [one.token for one in taken], [])
    return model.DeadOutcome(done=len(taken), refused=refused, left=left)


async def _reader(desk: Desk, group: ConsumerGroup) -> ConsumerGroup:
    port = durable(desk)
    await change(desk, ReadDead(group.name, group.namespace))
    reader = find_group(port, group.namespace, reader_name(group.name))
    await begin(port, reader)
    return reader


async def _take(
    port: DurablePort, reader: ConsumerGroup, asked: model.DeadSelection
) -> tuple[list[Fetched], list[model.RefusedToken], bool]:
    """The dead letters that a request means, ids that there are not, and whether there may be more."""
    if asked.all == bool(asked.ids):
        raise ApiError(INVALID_BODY, "Name dead letters in `ids`, or say `all`; one of the two")
    wanted = dict.fromkeys(asked.ids)
    taken: list[Fetched] = []
    others: list[str] = []
    left = True
    try:
        while len(taken) + len(others) < LOOKED_AT_MAX and (wanted or asked.all):
            room = model.REDRIVE_MAX - len(taken) if asked.all else model.REDRIVE_MAX
            if not room:
                break
            found = await port.groups.fetch(reader.id, MEMBER, room, 0)
            if not found:
                left = False
                break
            for one in found:
                if asked.all or _id(one) in wanted:
                    wanted.pop(_id(one), None)
                    taken.append(one)
                else:
                    others.append(one.token)
    finally:
        if others:
            await port.groups.nack(others, 0, "")
    missing = "There is no such dead letter, or it was redriven or dropped before; list them to see which there are."
    refused = [model.RefusedToken(token=one, reason=missing) for one in wanted]
    return taken, refused, left or bool(others)


async def _publish(port: DurablePort, group: ConsumerGroup, taken: Sequence[Fetched]) -> list[str]:
    """Publish dead letters again, those of one topic and client together; for each why that can't be, or empty."""
    problems = [""] * len(taken)
    together: dict[tuple[str, bytes], list[int]] = {}
    owners: dict[str, TopicRecord] = {}
    for at, one in enumerate(taken):
        name = original_name(group.namespace, one.topic)
        owner = owner_of(port.state(), name) if name else None
        if owner is None:
            shown = text_of((name or one.topic).removeprefix(namespace_prefix(group.namespace)))[:80]
            problems[at] = (
                f"No durable topic takes {shown!r} any more; create one with a filter for it, or drop the dead letter."
            )
        else:
            owners[owner.name] = owner
            together.setdefault((owner.name, one.client), []).append(at)
    for (owner_name, client), some in together.items():
        who = client.removeprefix(namespace_prefix(group.namespace))
        messages = [_message(group, taken[at]) for at in some]
        outcomes = await port.publish(owners[owner_name], who, messages)
        for at, outcome in zip(some, outcomes, strict=True):
            problems[at] = outcome if isinstance(outcome, str) else ""
    return problems


def _message(group: ConsumerGroup, one: Fetched) -> Message:
    """A dead letter as it was published, with the note that it was redriven."""
    user = [*without_dead(one.user_properties), (REDRIVEN, group.name.encode())]
    properties = _properties(one.properties)
    properties.user = [(text_of(key), text_of(value)) for key, value in user]
    return Message(original_name(group.namespace, one.topic), one.payload, False, properties)


def _properties(block: bytes) -> Properties:
    """What the publisher sent besides user properties. The record does not expire any more: a person wants it."""
    properties = Properties()
    if not block:
        return properties
    try:
        properties = decode_properties(block, 0, len(block), IN_PUBLISH)
    except RemoteProtocolError:
        return Properties()
    properties.message_expiry_s = None
    properties.topic_alias = None
    properties.subscription_identifiers = []
    return properties


async def _settle(port: DurablePort, done: Sequence[str], kept: Sequence[str]) -> None:
    if done:
        await port.groups.ack(done)
    if kept:
        await port.groups.nack(kept, 0, "")


def _id(one: Fetched) -> str:
    return f"{one.shard}:{one.offset}"


def _view(namespace: str, one: Fetched) -> model.DeadLetterInfo:
    prefix = namespace_prefix(namespace)
    letter = read_dead(one.user_properties)
    text, encoded = payload_parts(one.payload)
    return model.DeadLetterInfo(
        id=_id(one),
        topic=text_of((original_name(namespace, one.topic) or one.topic).removeprefix(prefix)),
        reason=letter.reason,
        deliveries=letter.deliveries,
        member=letter.member,
        durable_topic=letter.topic,
        shard=letter.shard,
        offset=letter.offset,
        dead_at=rfc3339(one.timestamp_ms),
        payload=text,
        payload_base64=encoded,
        client=text_of(one.client.removeprefix(prefix)),
        user_properties=properties_view(without_dead(one.user_properties)),
    )
