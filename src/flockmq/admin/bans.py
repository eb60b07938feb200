"""The operations on bans.

```
 with cluster state      Ban, Unban --> group 0 --> every node: BanList, connections that it hits end (server/bans.py)
 without cluster state   BanList of this node alone, in memory
```
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Final

from flockmq.admin import listings, model, views
from flockmq.admin.durable_common import change
from flockmq.admin.handlers import page
from flockmq.admin.moments import rfc3339
from flockmq.cluster.commands import Ban, Unban
from flockmq.cluster.model import BAN_KINDS, BanRecord
from flockmq.errors import INVALID_BODY, INVALID_PARAMETER, NOT_FOUND, REFUSED, ApiError, ErrorKind
from flockmq.session.connection import CONNECTED

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.operations import Call, NoQuery

CLIENTS_PER_SLICE: Final = 2_000
"""How many clients a ban looks at before it lets others have the loop."""


def list_bans(desk: Desk, call: Call[model.BanQuery, None]) -> model.Page[model.Ban]:
    """A page of bans."""
    return page(desk, "bans", call, lambda: listings.bans(desk.broker, call.query, desk.moments))


async def add_ban(desk: Desk, call: Call[NoQuery, model.BanRequest]) -> model.BanResult:
    """Ban, then disconnect the clients that it hits: in this order no client slips in between."""
    request = call.body
    value = _value(request.kind, request.value, INVALID_BODY)
    if desk.ports.durable is None:
        return await _add_here(desk, request, value)
    until_ms = 0 if request.duration_s is None else desk.moments.wall_ms + request.duration_s * 1000
    record = await change(desk, Ban(request.kind, value, request.reason, until_ms))
    kicked = await desk.ports.cluster.ban_hits(request.kind, value) if desk.ports.cluster is not None else 0
    if not isinstance(record, BanRecord):  # applied on another node: its value stays there
        record = BanRecord(request.kind, value, request.reason, desk.moments.wall_ms, until_ms)
    return model.BanResult(ban=_shown(request.kind, record), kicked=kicked)


async def remove_ban(desk: Desk, call: Call[NoQuery, None]) -> None:
    """Let them in again."""
    kind = call.path["kind"]
    if kind not in BAN_KINDS:
        raise ApiError(INVALID_PARAMETER, f"There are no bans of kind {kind!r}; kinds are client, username and address")
    value = _value(kind, call.path["value"], INVALID_PARAMETER)
    if desk.ports.durable is not None:
        await change(desk, Unban(kind, value))
    elif not desk.broker.bans.remove(kind, value):
        raise ApiError(
            NOT_FOUND, f"There is no ban of {kind} {call.path['value']!r}; list the bans to see those there are"
        )


async def _add_here(desk: Desk, request: model.BanRequest, value: str) -> model.BanResult:
    now = desk.clock()
    until = 0 if request.duration_s is None else now + request.duration_s * 1000
    if not desk.broker.bans.add(request.kind, value, until, request.reason, now):
        raise ApiError(REFUSED, "The list of bans is full; remove some, or block the addresses in a firewall")
    ban = desk.broker.bans.bans[(request.kind, value)]
    kicked = await _kick_banned(desk, request.kind, value)
    return model.BanResult(ban=views.ban(ban, desk.moments), kicked=kicked)


async def _kick_banned(desk: Desk, kind: str, value: str) -> int:
    if kind == "client":
        kicked = int(desk.broker.kick(value, desk.clock()))
        desk.ports.flush()
        return kicked
    kicked = 0
    for count, number in enumerate(list(desk.broker.connections), start=1):
        connection = desk.broker.connections.get(number)
        if connection is not None and connection.phase == CONNECTED and connection.session is not None:
            found = connection.peer if kind == "address" else connection.session.username
            if found == value:
                kicked += desk.broker.kick(connection.session.client_id, desk.clock())
        if count % CLIENTS_PER_SLICE == 0:
            desk.ports.flush()
            await asyncio.sleep(0)
    desk.ports.flush()
    return kicked


def _shown(kind: model.BanKind, record: BanRecord) -> model.Ban:
    return model.Ban(
        kind=kind,
        value=record.value,
        reason=record.reason,
        created_at=rfc3339(record.since_ms),
        expires_at=rfc3339(record.until_ms) if record.until_ms else None,
    )


def _value(kind: str, value: str, error_kind: ErrorKind) -> str:
    if kind != "address":
        return value
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise ApiError(
            error_kind, f"{value!r} is not an IP address; give one address, networks are a firewall's business"
        ) from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
