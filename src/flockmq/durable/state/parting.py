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

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.state.wire import decode_members, decode_number, encode_members, encode_number
from flockmq.peering.kinds import META_MEMBERS
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.durable.state.facts import Facts
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.state import RaftState

LONELY_MS: Final = 10_000
"""Without a leader for so long a replica asks."""
AGAIN_MS: Final = 2_000
LEAVING_MS: Final = 500
ASKS_MAX: Final = 1_024


def is_lonely(state: RaftState) -> bool:
    """Whether no leader was heard for an election timeout. A quiet group has one: the host watches over its node."""
    return state.role != LEADER and not state.quiet and state.clock.elapsed >= state.loyal_until


class _Ask:
    def __init__(self, group: int, answer: Callable[[bytes | None], None]) -> None:
        self.group = group
        self.answer = answer


class Parting:
    """See the module. ``closed`` is called with a group that was removed here."""

    def __init__(self, engine: RaftEngine, calls: Calls, facts: Facts, rng: random.Random) -> None:
        self._engine = engine
        self._calls = calls
        self._facts = facts
        self._start = int(rng.random() * 1_024)
        self._lonely: dict[int, tuple[int, int]] = {}
        """Group -> when to ask, and how often that was done."""
        self._to_close: list[int] = []
        self._asks: list[_Ask] = []
        self.closed: list[Callable[[int], None]] = []
        self.is_leaving = False
        """This node wants to leave: it asks at once, whether it hears a leader or not."""
        calls.serve_later(META_MEMBERS, self._serve)

    def consider(self, group: int, now: int, peers: tuple[int, ...] = ()) -> None:
        """Look at a replica; call it now and then. ``peers``: who may lead it, else all that have group 0."""
        if not self.is_leaving and not is_lonely(self._engine.host.groups[group].state):
            self._lonely.pop(group, None)
            return
        ask_at, asked = self._lonely.setdefault(group, (now if self.is_leaving else now + LONELY_MS, self._start))
        if now < ask_at:
            return
        self._lonely[group] = (now + (LEAVING_MS if self.is_leaving else AGAIN_MS), asked + 1)
        able = [node for node in peers if node != self._engine.host.node]
        if not able:
            able = [node for node, head in self._facts.heads().items() if head.has_replica]
        if able:
            peer = sorted(able)[asked % len(able)]  # one after the other, since only the leader answers
            self._calls.ask(peer, META_MEMBERS, encode_number(group), partial(self._answered, group), now)

    def forget(self, group: int) -> None:
        """The replica is gone."""
        self._lonely.pop(group, None)

    def tick(self, now: int) -> None:
        """Time passes: answer others, remove what is over."""
        for group in self._to_close:
            if group in self._engine.replicas:
                self._engine.close_group(group)
                for closed in self.closed:
                    closed(group)
            self.forget(group)
        self._to_close = []
        asks = self._asks
        self._asks = []
        for ask in asks:
            self._engine.read(ask.group, partial(self._confirmed, ask), now)

    def _answered(self, group: int, body: bytes | None) -> None:
        node = self._engine.host.groups.get(group)
        if body is None or node is None or not (self.is_leaving or is_lonely(node.state)):
            return
        _, configuration = decode_members(body)
        if self._engine.host.node not in configuration.members():
            self._to_close.append(group)  # not now: this may be within a turn

    def _serve(self, peer: int, body: bytes, answer: Callable[[bytes | None], None]) -> None:  # noqa: ARG002
        group = decode_number(body)
        if self._engine.is_leader(group) and len(self._asks) < ASKS_MAX:
            self._asks.append(_Ask(group, answer))
        else:
            answer(None)

    def _confirmed(self, ask: _Ask, done: bool) -> None:
        node = self._engine.host.groups.get(ask.group)
        is_known = done and node is not None and self._engine.is_leader(ask.group)
        if node is None or not is_known or node.state.configuration_index > node.state.commit:
            ask.answer(None)  # a change that is not committed may be undone
            return
        ask.answer(encode_members(node.state.configuration_index, node.state.configuration))
