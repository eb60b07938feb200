"""`cluster join` and `cluster leave`: a node that runs goes to another cluster, or becomes one of its own.

```
 leave   others take over what it stores --> clients go to other nodes --> goodbye --> empty store --> a new cluster id
 join    the same, if it was among others -----------------------------------------> the other cluster's id
                                              nobody is let in meanwhile, until the node knows what there is
```
What could not be given to others stays in the data folder, under another name.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import ALIVE, LEFT
from flockmq.discovery.manual import ManualDiscovery
from flockmq.drivers.clock import now_ms
from flockmq.drivers.links import HelloError
from flockmq.durable.meta import GROUP
from flockmq.errors import FlockError
from flockmq.gossip.member import EDGE
from flockmq.peering.contact import parse_contact
from flockmq.peering.joining import MOVE, REFUSE, Belongings, plan_join, plan_leave
from flockmq.server.durable import clear_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.admin.cluster_model import JoinResult
    from flockmq.durable.node import DurableNode
    from flockmq.server.cluster import ClusterService

PART_S_MAX: Final = 25.0
JOIN_S_MAX: Final = 15.0
READY_S_MAX: Final = 5.0


class ClusterMoves:
    """See the module. One move at a time."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._lock = asyncio.Lock()

    async def join(self, address: str, discard_data: bool) -> JoinResult:
        """Become part of another node's cluster; FlockError says why not."""
        contact = parse_contact(address.rpartition("@")[2])
        service = self._service
        async with self._lock:
            try:
                info = await service.links.call(contact.host, contact.port)
                target = info.cluster_id
            except HelloError as error:
                if error.peer is None or not error.peer.cluster_id:
                    raise
                target = error.peer.cluster_id
            plan = plan_join(self._belongings(), target, discard_data=discard_data)
            if plan.kind == REFUSE:
                raise FlockError(plan.reason)
            if plan.kind != MOVE:
                return _result(target, changed=False)
            if plan.leave_first:
                await self._part("`flockmq cluster leave --discard-data` goes all the same.")
            try:
                service.broker.move_out(now_ms())
                if plan.leave_first:
                    await service.say_goodbye()
                service.points = (*service.points, contact)
                if isinstance(service.discovery, ManualDiscovery):
                    service.discovery.add(contact)
                service.known.forget()
                kept = await self._start_over(keep=not plan.leave_first and self._has_something())
                service.has_others = True
                service.belong(target)
                await self._wait_for_others()
                await _until(service.is_level)
            finally:
                service.broker.move_in()
            return _result(target, changed=True, set_aside=kept)

    async def leave(self, discard_data: bool) -> JoinResult:
        """Take leave of the others and be a cluster of one, once they have all that this node stored for them."""
        service = self._service
        async with self._lock:
            plan = plan_leave(self._belongings(), discard_data=discard_data)
            if plan.kind == REFUSE:
                raise FlockError(plan.reason)
            if plan.kind != MOVE:
                return _result(service.node.cluster_id, changed=False)
            if plan.hand_over:
                await self._part("Repeat with --discard-data to leave all the same.")
            try:
                service.broker.move_out(now_ms())
                await service.say_goodbye()
                for member in service.node.swim.alive():
                    service.links.forget_peer(member.node_id)
                if service.durable is not None:
                    # Not sooner: whoever has not heard the goodbye would take this node for one that stays.
                    service.durable.node.set_leaving(False)
                service.points = ()
                service.known.forget()
                kept = await self._start_over(keep=not plan.hand_over and self._has_something())
                service.has_others = False
                service.found(secrets.randbits(63) + 1)
                await self.wait_whole()
            finally:
                service.broker.move_in()
            return _result(service.node.cluster_id, changed=True, set_aside=kept)

    async def wait_whole(self) -> None:
        """Wait, but not for long, until a node alone knows itself and can store topics."""
        await _until(self._is_whole)

    # --- what is there ---

    def _belongings(self) -> Belongings:
        service = self._service
        alive = len(service.node.swim.alive())
        topics, known = 0, alive
        if service.durable is not None:
            state = service.durable.node.meta.state
            topics = len(state.topics)
            known = max(alive, sum(1 for one in state.nodes.values() if one.state != LEFT))
        return Belongings(service.node.cluster_id, alive, topics, len(service.broker.sessions), known)

    def _has_something(self) -> bool:
        """Whether this node stores what somebody may miss."""
        durable = self._service.durable
        if durable is None:
            return False
        state = durable.node.meta.state
        is_used = bool(state.topics or state.clients or len(state.namespaces) > 1)
        return is_used or bool(durable.node.engine.replicas.keys() - {GROUP})

    def _is_whole(self) -> bool:
        service = self._service
        if service.durable is None or service.node.swim.me.role == EDGE:
            return True
        me = service.durable.node.meta.state.nodes.get(service.node.node_id)
        return me is not None and me.state == ALIVE and service.durable.node.is_ready()

    # --- what is done ---

    async def _part(self, otherwise: str) -> None:
        """Let the others take over replicas and votes; FlockError when they can't."""
        durable = self._service.durable
        if durable is None:
            return
        node = durable.node
        node.set_leaving(True)
        try:
            await self._hand_all_over(node, otherwise)
        except (FlockError, asyncio.CancelledError):
            node.set_leaving(False)  # this node stays, and is to get replicas and a vote again
            raise

    async def _hand_all_over(self, node: DurableNode, otherwise: str) -> None:
        until = time.monotonic() + PART_S_MAX
        while node.belongings():
            if time.monotonic() > until:
                raise FlockError(
                    f"{node.belongings()} replicas could not be moved to other nodes within {PART_S_MAX:g} s, so this "
                    "node stays. See `flockmq cluster status`: most of the others must be there, and have room. "
                    + otherwise
                )
            node.hand_over()
            await asyncio.sleep(0.1)

    async def _start_over(self, *, keep: bool) -> str:
        """What this node stored is the former cluster's: begin with an empty store; where the old one is, if it is."""
        service = self._service
        if service.durable is None:
            return ""
        await service.durable.stop()
        service.durable.node.forget_topics(now_ms())
        label = f"{service.node.cluster_id:016x}"
        kept = await asyncio.to_thread(clear_store, service.folder, label, keep=keep)
        await service.open_anew()
        return str(kept) if kept is not None else ""

    async def _wait_for_others(self) -> None:
        until = time.monotonic() + JOIN_S_MAX
        while len(self._service.node.swim.alive()) < 2:
            if time.monotonic() > until:
                raise FlockError(
                    "This node belongs to that cluster now, but none of its nodes answers by UDP; check that the port "
                    "is open for UDP, too. It goes on trying."
                )
            await asyncio.sleep(0.05)


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for it, but not for long."""
    until = time.monotonic() + READY_S_MAX
    while not condition() and time.monotonic() < until:  # noqa: ASYNC110  (the pure node knows no event)
        await asyncio.sleep(0.02)


def _result(cluster_id: int, *, changed: bool, set_aside: str = "") -> JoinResult:
    from flockmq.admin.cluster_model import JoinResult

    return JoinResult(id=f"{cluster_id:016x}", changed=changed, set_aside=set_aside)
