"""RELEASE and FORGET on their way into the logs of partitions, one call per partition and turn.

```
 tell(partition, statement) ... flush --> the partition's leader --> committed: True
                                                              `----> not known in time: False
```
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.machine.control_bodies import (
    COMMANDS_MAX,
    FORGET,
    RELEASE,
    Statement,
    encode_statements,
    read_statements,
)
from flockmq.peering.kinds import RELEASE_CALL
from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.peering.fields import Reader
    from flockmq.tasks import Task

RELEASE_MS: Final = 10_000
"""How long a PUBCOMP may take."""


class Telling:
    """See the module."""

    def __init__(self, calls: PartitionCalls, control: Control) -> None:
        self._calls = calls
        self._control = control
        self._open: dict[int, list[tuple[Statement, Promise[bool]]]] = {}
        calls.serve_leader(RELEASE_CALL, self._on_release)

    def tell(self, group: int, statement: Statement) -> Promise[bool]:
        """Send a statement about the packet ids of a client to a partition."""
        opened = self._open.get(group)
        if opened is None:
            opened = self._open[group] = []
            self._calls.engine.wake()
        told: Promise[bool] = Promise()
        opened.append((statement, told))
        if len(opened) >= COMMANDS_MAX:
            self._ask(group)
        return told

    def flush(self) -> None:
        """A turn ends: tell the leaders."""
        for group in list(self._open):
            self._ask(group)

    def _ask(self, group: int) -> None:
        opened = self._open.pop(group)
        body = encode_statements([statement for statement, _ in opened])
        told = [told for _, told in opened]
        self._calls.ask_leader(group, RELEASE_CALL, body, RELEASE_MS).then(partial(_settle, told))

    def _on_release(self, group: int, reader: Reader) -> Task[Reply]:
        statements = [one for one in read_statements(reader) if one.what in (RELEASE, FORGET)]
        is_done = yield from self._control.mark(group, statements, self._calls.now)
        return Reply(OK if is_done else LATER)


def _settle(told: list[Promise[bool]], reply: Reply) -> None:
    for one in told:
        one.set(reply.code == OK)
