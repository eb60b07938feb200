"""A node becomes the owner of a client in a partition: ADOPT in its log, then the packet ids that the log holds.

```
 here: adopt(partition, client, epoch, since) ... flush --> one call per partition --> its leader
 there: ADOPT, committed and applied: nothing of an older epoch changes the client's ids in this partition any more
 here: the ids that the client has not released <-------------------------------------'
        None: no leader said so in time, or a newer owner has the client
```
``since`` is the epoch with which the session began: ids of an earlier session are void.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.machine.control_bodies import ADOPT, COMMANDS_MAX, Statement, encode_statements, read_statements
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U16, U32, Reader
from flockmq.peering.kinds import ADOPT_CALL
from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.tasks import Task

ADOPT_MS: Final = 3_000
ANSWER_BYTES_MAX: Final = 900_000
_IS_OWNER: Final = 1
_IS_NOT: Final = 0

Adopted = Promise["list[int] | None"]
"""The client's packet ids in the partition; None: not known."""


class Adopting:
    """See the module."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines) -> None:
        self._calls = calls
        self._control = control
        self._machines = machines
        self._open: dict[int, list[tuple[Statement, Adopted]]] = {}
        """Partition -> the adoptions of this turn."""
        calls.serve_leader(ADOPT_CALL, self._on_adopt)

    def adopt(self, group: int, client: bytes, epoch: int, since: int) -> Adopted:
        """Make this node the owner of a client in a partition from ``epoch`` on."""
        opened = self._open.get(group)
        if opened is None:
            opened = self._open[group] = []
            self._calls.engine.wake()
        told: Adopted = Promise()
        opened.append((Statement(ADOPT, client, epoch, [], since), told))
        if len(opened) >= COMMANDS_MAX:
            self._ask(group)
        return told

    def flush(self, now: int) -> None:
        """A turn ends: tell the leaders."""
        self._calls.now = now
        for group in list(self._open):
            self._ask(group)

    def _ask(self, group: int) -> None:
        opened = self._open.pop(group)
        body = encode_statements([statement for statement, _ in opened])
        told = [told for _, told in opened]
        self._calls.ask_leader(group, ADOPT_CALL, body, ADOPT_MS).then(partial(_settle, told))

    def _on_adopt(self, group: int, reader: Reader) -> Task[Reply]:
        statements = [one for one in read_statements(reader) if one.what == ADOPT]
        is_done = yield from self._control.mark(group, statements, self._calls.now)
        machine = self._machines.by_group.get(group)
        if not is_done or machine is None:
            return Reply(LATER)
        parts = [U32.pack(len(statements))]
        size = 0
        for statement in statements:
            known = machine.client(statement.client)
            size += 3 if known is None else 3 + 2 * len(known.ids)
            if known is None or known.epoch != statement.epoch or size > ANSWER_BYTES_MAX:
                parts.append(bytes((_IS_NOT,)) + U16.pack(0))
                continue
            ids = b"".join([U16.pack(packet_id) for packet_id in sorted(known.ids)])
            parts.append(bytes((_IS_OWNER,)) + U16.pack(len(known.ids)) + ids)
        return Reply(OK, b"".join(parts))


def _settle(told: list[Adopted], reply: Reply) -> None:
    found: list[list[int] | None] = [None] * len(told)
    if reply.code == OK:
        with suppress(RemoteProtocolError):  # an unreadable answer counts as none
            found = _read_answer(reply.body, len(told))
    for one, ids in zip(told, found, strict=True):
        one.set(ids)


def _read_answer(body: bytes, count: int) -> list[list[int] | None]:
    reader = Reader(body)
    found: list[list[int] | None] = []
    if reader.count(COMMANDS_MAX, 3) != count:
        return [None] * count
    for _ in range(count):
        is_owner = reader.u8() == _IS_OWNER
        ids = [reader.u16() for _ in range(reader.u16())]
        found.append(ids if is_owner else None)
    return found
