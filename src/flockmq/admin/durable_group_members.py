"""The operations of members of a consumer group: records are fetched, and settled by their tokens, on any node.

```
 POST .../fetch   ack what is done, then wait for records --> tokens
 POST .../ack     done         POST .../nack    again, after a delay, or a dead letter at once
 POST .../extend  more time    GET  .../peek    only look
```
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from flockmq.admin import durable_groups_model as model
from flockmq.admin.durable_common import durable
from flockmq.admin.durable_group_views import message_view
from flockmq.admin.durable_groups import find_group
from flockmq.durable.groups.fetching import SENTENCES
from flockmq.durable.groups.messages import LATER
from flockmq.durable.groups.tokens import read_token
from flockmq.errors import Conflict, NoLeader

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_model import InNamespace
    from flockmq.admin.operations import Call
    from flockmq.cluster.groups import ConsumerGroup

_NO_LEADER: Final = SENTENCES[LATER]


async def fetch_records(desk: Desk, call: Call[InNamespace, model.FetchRequest]) -> model.Fetch:
    """Records for a member, at once or when there are some."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    asked = call.body
    refused: list[model.RefusedToken] = []
    if asked.ack:
        refused = _refused(asked.ack, await _settle(group, asked.ack, port.groups.ack))
    with desk.polls.waits(asked.wait_ms):
        found = await port.groups.fetch(group.id, asked.member or "http", asked.max, asked.wait_ms)
    if found and call.is_gone():
        # The caller hung up while it waited: other members get the records at once.
        await port.groups.nack([one.token for one in found], 0, "the member hung up")
        found = []
    return model.Fetch(messages=[message_view(group.namespace, one) for one in found], refused=refused)


async def ack_records(desk: Desk, call: Call[InNamespace, model.AckRequest]) -> model.Settled:
    """Records are done; answered after commit."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    tokens = call.body.tokens
    return _settled(tokens, await _settle(group, tokens, port.groups.ack))


async def nack_records(desk: Desk, call: Call[InNamespace, model.NackRequest]) -> model.Settled:
    """Records shall be delivered again, or are dead letters."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    asked = call.body
    if asked.dead:
        return _settled(asked.tokens, await _settle(group, asked.tokens, port.groups.bury, asked.reason))
    return _settled(asked.tokens, await _settle(group, asked.tokens, port.groups.nack, asked.delay_ms, asked.reason))


async def extend_records(desk: Desk, call: Call[InNamespace, model.ExtendRequest]) -> model.Settled:
    """A member needs longer for some records."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    asked = call.body
    return _settled(asked.tokens, await _settle(group, asked.tokens, port.groups.extend, asked.ms))


async def peek_records(desk: Desk, call: Call[model.PeekQuery, None]) -> model.GroupMessages:
    """The oldest records that are not settled."""
    port = durable(desk)
    group = find_group(port, call.query.namespace, call.path["group"])
    found = await port.groups.peek(group.id, call.query.limit)
    return model.GroupMessages(messages=[message_view(group.namespace, one) for one in found])


async def _settle(
    group: ConsumerGroup, tokens: Sequence[str], how: Callable[..., Awaitable[list[str]]], *more: object
) -> list[str]:
    """Settle those tokens that are of the group: a caller that mixes groups up changes nothing in the other one."""
    own = [one for one in tokens if _is_of(group, one)]
    found = dict(zip(own, await how(own, *more) if own else [], strict=True))
    return [found.get(one, f"The token is not one of the group {group.name}.") for one in tokens]


def _is_of(group: ConsumerGroup, text: str) -> bool:
    token = read_token(text)
    return token is None or token.group == group.id


def _refused(tokens: Sequence[str], outcomes: Sequence[str]) -> list[model.RefusedToken]:
    return [
        model.RefusedToken(token=token, reason=reason, retry=reason == _NO_LEADER)
        for token, reason in zip(tokens, outcomes, strict=True)
        if reason
    ]


def _settled(tokens: Sequence[str], outcomes: Sequence[str]) -> model.Settled:
    refused = _refused(tokens, outcomes)
    if len(refused) == len(tokens):
        raise NoLeader(_NO_LEADER) if any(one.retry for one in refused) else Conflict(refused[0].reason)
    return model.Settled(done=len(tokens) - len(refused), refused=refused)
