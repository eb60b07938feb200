"""Replicas that were taken out of their group, and how they find out.

```
 no leader heard for a while --> META_MEMBERS(group) to nodes that may lead it
        the leader, confirmed by a quorum just now: "you are not in it" --> the replica and its log are removed
```
The last a replica hears before it is taken out may be that it is a member: the change that ends its membership is not
sent to it. Without a word it would ask for votes for ever. Only a leader whose quorum has confirmed it answers; and
what it says counts only if no leader was heard here since: a replica that is being added again hears one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.state.group0 import is_lonely
from flockmq.durable.state.read_index import read_index
from flockmq.durable.state.wire import decode_members, decode_number, encode_members, encode_number
from flockmq.peering.kinds import META_MEMBERS
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.durable.state.facts import Facts
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

LONELY_MS: Final = 10_000
"""Without a leader for so long a replica asks."""
AGAIN_MS: Final = 2_000
LEAVING_MS: Final = 500


class ReplicaRemoval:
    """See the module. ``closed`` is called with a group that was removed here."""

    def __init__(
        self, engine: RaftEngine, calls: Calls, facts: Facts, rng: random.Random, closed: Callable[[int], None]
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._facts = facts
        self._start = int(rng.random() * 1_024)
        self._lonely: dict[int, tuple[int, int]] = {}
        """Group -> when to ask, and how often that was done."""
        self._closed = closed
        self.is_leaving = False
        """This node wants to leave: it asks at once, whether it hears a leader or not."""
        calls.serve_task(META_MEMBERS, self._tell_members)

    def set_leaving(self, is_leaving: bool) -> None:
        """This node wants to leave, or to stay after all."""
        self.is_leaving = is_leaving

    def consider(self, group: int, now: int, peers: tuple[int, ...] = ()) -> None:
        """Look at a replica; call it now and then. ``peers``: nodes that may lead it, else all that have group 0."""
        if not self.is_leaving and not is_lonely(self._engine.host.groups[group].state):
            self._lonely.pop(group, None)
            return
        ask_at, asked = self._lonely.setdefault(group, (now if self.is_leaving else now + LONELY_MS, self._start))
        if now < ask_at:
            return
        self._lonely[group] = (now + (LEAVING_MS if self.is_leaving else AGAIN_MS), asked + 1)
        able = [node for node in peers if node != self._engine.host.node_id]
        if not able:
            able = [node for node, head in self._facts.heads().items() if head.has_replica]
        if able:
            peer = sorted(able)[asked % len(able)]  # one after the other, since only the leader answers
            self._calls.tasks.start("ask whether a replica was removed", self._ask(group, peer))

    def forget(self, group: int) -> None:
        """The replica is gone."""
        self._lonely.pop(group, None)

    def _ask(self, group: int, peer: int) -> Task[None]:
        """Ask a node that may lead a group; remove the replica here if the leader says that it is not in it."""
        body = yield from self._calls.ask(peer, META_MEMBERS, encode_number(group))
        if body is None or self._engine.host.node_id in decode_members(body)[1].members():
            return
        yield Sleep(0)  # not within a turn
        node = self._engine.host.groups.get(group)
        if node is None or group not in self._engine.replicas or not (self.is_leaving or is_lonely(node.state)):
            return
        self._engine.close_group(group)
        self._closed(group)
        self.forget(group)

    def _tell_members(self, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        group = decode_number(body)
        is_confirmed = yield from read_index(self._engine, group, self._calls.now)
        node = self._engine.host.groups.get(group)
        if node is None or not is_confirmed or not self._engine.is_leader(group):
            return None
        if node.state.configuration_index > node.state.commit:
            return None  # a change that is not committed may be undone
        return encode_members(node.state.configuration_index, node.state.configuration)
