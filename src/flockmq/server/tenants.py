"""Namespaces, clients and rules that the cluster agrees on, brought into force on this node.

```
 cluster state changed --follow--> namespaces --> Broker.set_namespaces
                                   clients, ACLs -> BrokerGate.set_clients --> Broker.review: which clients must go
```
A broker that let every client in (``allow_anonymous`` and no files) has no gate of its own until the first client is
registered: it is opened then. Files and cluster state together: a name that is in a file is judged by files alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import Versions
from flockmq.drivers.clock import now_ms
from flockmq.node.namespaces import NamespaceLimits
from flockmq.node.reviewing import Review

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.tables import Tables
    from flockmq.node.broker import Broker
    from flockmq.security.clients import ClientChanges
    from flockmq.security.gate import BrokerGate


KNOW_S_MAX: Final = 10.0
"""How long a node that was started again waits for the cluster's majority before it lets clients in by what it has."""
LOOK_S: Final = 0.02
CLIENTS_AT_ONCE: Final = 2_000
GAP_S: Final = 0.3
"""Between two looks at more clients than that."""


class Tenants:
    """Follows cluster state. ``gate`` is None as long as the broker lets every client in; ``open_gate`` makes one."""

    def __init__(
        self,
        broker: Broker,
        gate: BrokerGate | None,
        open_gate: Callable[[], BrokerGate],
        flush: Callable[[], None],
    ) -> None:
        self.gate = gate
        self._broker = broker
        self._open_gate = open_gate
        self._flush = flush
        self._seen = Versions(namespaces=-1, clients=-1)
        self._later: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def expect(self) -> None:
        """Cluster state is still to come: until then no client that it decides about is let in."""
        self._broker.node.spaces.set_known(False)

    def know_when(self, is_current: Callable[[], bool]) -> None:
        """Go on once the state is that of the cluster, or after a while with what was stored here."""
        self._wait(is_current, asyncio.get_running_loop().time() + KNOW_S_MAX)

    def know(self) -> None:
        """Let clients in without waiting for the cluster state."""
        self._broker.node.spaces.set_known(True)

    def _wait(self, is_current: Callable[[], bool], until: float) -> None:
        loop = asyncio.get_running_loop()
        if is_current() or loop.time() >= until:
            self.know()
        else:
            loop.call_later(LOOK_S, self._wait, is_current, until)

    def follow(self, state: Tables) -> None:
        """Bring changes since the last call into force."""
        seen, self._seen = self._seen, state.versions
        if seen.namespaces != state.versions.namespaces:
            self._broker.set_namespaces([_limits(state, name) for name in state.namespaces], now_ms())
        if seen.clients != state.versions.clients:
            self._clients_changed(state)
        self._flush()

    def _clients_changed(self, state: Tables) -> None:
        """Take over clients: at once, or where there are many no more often than a look at all of them allows."""
        if len(state.clients) <= CLIENTS_AT_ONCE:
            self._set_clients(state)
        elif self._later is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_at(max(self._due_s, loop.time()), self._take_clients, state)

    def _take_clients(self, state: Tables) -> None:
        self._later = None
        self._due_s = asyncio.get_running_loop().time() + GAP_S
        self._set_clients(state)
        self._flush()

    def review_all(self) -> None:
        """Files were read again: judge all subscriptions anew, bit by bit."""
        if self.gate is not None:
            self._broker.review(Review(self.gate.identify, namespaces=None), now_ms())

    def _set_clients(self, state: Tables) -> None:
        if self.gate is None and not state.clients and not state.acls:
            return
        is_new = self.gate is None
        gate = self.gate if self.gate is not None else self._open_gate()
        self.gate = gate
        changes = gate.set_clients(state.clients.values(), state.acls.values())
        if is_new:
            self._broker.use_gate(gate, gate.proving, now_ms())
            self.review_all()
        elif changes:
            self._broker.review(_review(gate, changes), now_ms())


def _review(gate: BrokerGate, changes: ClientChanges) -> Review:
    return Review(gate.identify, changes.removed, changes.changed, changes.rights, changes.namespaces)


def _limits(state: Tables, name: str) -> NamespaceLimits:
    limits = state.namespaces[name].limits
    return NamespaceLimits(
        name,
        limits.connections_max,
        limits.sessions_max,
        limits.retained_max,
        limits.messages_per_second_max,
        limits.stored_bytes_max,
        limits.captured_bytes_per_second_max,
    )
