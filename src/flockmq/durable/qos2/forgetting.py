"""Clients that start clean: what an owner which died left of them in logs is void, wherever that is.

```
 add(client, epoch) ... tick --> FORGET to every node that is alive, all clients together --> in the groups it leads
                                        `-- a group has no leader, or no answer came: again, a few times
```
No client waits for it: one that starts clean knows no ids that could be mixed up with old ones. It is said so that a
later session of the client does not inherit them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.machine.control_bodies import FORGET, Statement, encode_statements, read_statements
from flockmq.peering.fields import Reader
from flockmq.peering.kinds import FORGET_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.facts import Membership

RETRY_MS: Final = 1_000
ATTEMPTS: Final = 10
CLIENTS_MAX: Final = 1_000
"""In one question; a hundred times as many may wait."""
AGAIN_MAX: Final = 1_000
"""Questions that wait to be asked again."""


class Forgetting:
    """See the module."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines, members: Membership) -> None:
        self._calls = calls
        self._control = control
        self._machines = machines
        self._members = members
        self._fresh: dict[bytes, int] = {}
        """Clients with the epoch from which on ids count."""
        self._again: list[tuple[int, int, bytes, int]] = []
        """(when, node, question, attempts left) of those that did not get through."""
        calls.serve_replica(FORGET_CALL, self._on_question)

    def add(self, client: bytes, epoch: int, now: int) -> None:
        """Ids of a client that are older than this epoch are void."""
        if self._calls.layout.has_groups() and len(self._fresh) < CLIENTS_MAX * 100:
            self._calls.now = now
            self._fresh[client] = epoch

    def tick(self, now: int) -> None:
        """Tell what is new, and what has to be told again."""
        self._calls.now = now
        if self._fresh:
            self._tell()
        again = self._again
        if again and again[0][0] <= now:
            self._again = [one for one in again if one[0] > now]
            for due_at, node, body, attempts in again:
                if due_at <= now:
                    self._ask(node, body, attempts)

    def _tell(self) -> None:
        items = list(self._fresh.items())
        self._fresh = {}
        for at in range(0, len(items), CLIENTS_MAX):
            statements = [Statement(FORGET, client, epoch, []) for client, epoch in items[at : at + CLIENTS_MAX]]
            body = encode_statements(statements)
            for node in self._members.alive():
                self._ask(node, body, ATTEMPTS)

    def _ask(self, node: int, body: bytes, attempts: int) -> None:
        self._calls.ask_replica(node, FORGET_CALL, body).then(partial(self._on_answer, node, body, attempts))

    def _on_answer(self, node: int, body: bytes, attempts: int, reply: Reply) -> None:
        if reply.code != OK and attempts > 1 and node in self._members.alive() and len(self._again) < AGAIN_MAX:
            self._again.append((self._calls.now + RETRY_MS, node, body, attempts - 1))

    def _on_question(self, body: bytes) -> Reply:
        """Forget these clients in all groups that this node leads; LATER when another one has to do a part of it."""
        statements = read_statements(Reader(body))
        by_group: dict[int, list[Statement]] = {}
        engine = self._calls.engine
        alive = set(self._members.alive())
        is_all = True
        for statement in statements:
            for group in self._machines.by_client.get(statement.client, ()):
                if engine.is_leader(group):
                    by_group.setdefault(group, []).append(Statement(FORGET, statement.client, statement.epoch, []))
                elif engine.leader_of(group) not in alive:
                    is_all = False
        for group, chosen in by_group.items():
            self._control.mark(group, chosen, self._calls.now)
        return Reply(OK if is_all else LATER)
