"""`cluster join` and `cluster leave`: a node that runs goes to another cluster, or becomes one of its own.

```
 leave   others take over what it stores --> clients go to other nodes --> goodbye --> empty store --> a new cluster id
 join    the same, if it was among others -----------------------------------------> the other cluster's id
                                              no client is let in before the node knows its new cluster
```
What could not be given to others stays in the data folder, under another name. A note of the move is there from its
begin to its end (``move_note``).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flockmq.cluster.model import ALIVE, LEFT
from flockmq.discovery.manual import ManualDiscovery
from flockmq.drivers.clock import now_ms
from flockmq.drivers.links import HelloError
from flockmq.durable.state.meta import GROUP
from flockmq.errors import FlockError
from flockmq.gossip.member import EDGE
from flockmq.peering.contact import parse_contact
from flockmq.peering.joining import MOVE, REFUSE, Belongings, plan_join, plan_leave
from flockmq.server.link_address import unreachable_from
from flockmq.server.move_note import Acquaintance, MoveNote, carry_out, drop_note, write_note

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from flockmq.admin.cluster_model import JoinResult
    from flockmq.durable.node import DurableNode
    from flockmq.server.cluster import ClusterService

PART_S_MAX: Final = 25.0
JOIN_S_MAX: Final = 15.0
READY_S_MAX: Final = 5.0
SEND_S_MAX: Final = 2.0
T = TypeVar("T")


class ClusterMoves:
    """See the module. One move at a time; once begun it goes on, even if its caller leaves."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def join(self, address: str, discard_data: bool) -> JoinResult:
        """Become part of another node's cluster; FlockError says why not."""
        return await asyncio.shield(self._task(self._join(address, discard_data)))

    async def leave(self, discard_data: bool) -> JoinResult:
        """Take leave of the others and be a cluster of one, once they have all that this node stored for them."""
        return await asyncio.shield(self._task(self._leave(discard_data)))

    async def wait_whole(self) -> None:
        """Wait, but not for long, until a node alone knows itself and can store topics."""
        await self._wait(self._is_whole)

    async def _join(self, address: str, discard_data: bool) -> JoinResult:
        service = self._service
        contact = parse_contact(address.rpartition("@")[2])
        refusal = unreachable_from(contact, service.me)
        if refusal:
            raise FlockError(refusal)
        async with self._lock:
            try:
                info = await service.links.call(contact.host, contact.port)
            except HelloError as error:
                if error.peer is None or not error.peer.cluster_id:
                    raise
                info = error.peer
            target = info.cluster_id
            plan = plan_join(self._belongings(), target, discard_data=discard_data)
            if plan.kind == REFUSE:
                raise FlockError(plan.reason)
            if plan.kind != MOVE:
                service.node.swim.join([(contact.host, contact.port)], now_ms())  # it may not know where the others are
                return _result(target, changed=False)
            if plan.leave_first:
                await self._part("`flockmq cluster leave --discard-data` goes all the same.")
            met = Acquaintance(info.node_id, info.name, contact.host, contact.port)
            keep = not plan.leave_first and self._has_something()
            note = MoveNote(service.node.cluster_id, target, keep, met)
            kept = await self._go(note, say_goodbye=plan.leave_first)
            service.points = (*service.points, contact)
            if isinstance(service.discovery, ManualDiscovery):
                service.discovery.add(contact)
            service.has_others = True
            service.belong(target)
            await asyncio.to_thread(drop_note, service.folder)
            opening = self._task(self._open_doors(service.is_level))
            await self._wait_for_others()
            await asyncio.wait([opening], timeout=READY_S_MAX)
            return _result(target, changed=True, set_aside=kept)

    async def _leave(self, discard_data: bool) -> JoinResult:
        service = self._service
        async with self._lock:
            plan = plan_leave(self._belongings(), discard_data=discard_data)
            if plan.kind == REFUSE:
                raise FlockError(plan.reason)
            if plan.kind != MOVE:
                return _result(service.node.cluster_id, changed=False)
            if plan.hand_over:
                await self._part("Repeat with --discard-data to leave all the same.")
            keep = not plan.hand_over and self._has_something()
            note = MoveNote(service.node.cluster_id, secrets.randbits(63) + 1, keep)
            kept = await self._go(note, say_goodbye=True)
            service.points = ()
            service.has_others = False
            service.found(note.cluster_id)
            await asyncio.to_thread(drop_note, service.folder)
            await asyncio.wait([self._task(self._open_doors(self._is_whole))], timeout=READY_S_MAX)
            return _result(note.cluster_id, changed=True, set_aside=kept)

    # --- what is there ---

    def _belongings(self) -> Belongings:
        service = self._service
        alive = len(service.node.swim.alive())
        topics, known = 0, alive
        if service.durable is not None:
            state = service.durable.node.meta.state
            topics = len(state.topics)
            known = max(alive, sum(1 for one in state.nodes.values() if one.state != LEFT))
        is_edge = service.node.swim.me.role == EDGE
        return Belongings(service.node.cluster_id, alive, topics, len(service.broker.sessions), known, is_edge)

    def _has_something(self) -> bool:
        """Whether this node stores anything that would be missed."""
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
        except BaseException:
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

    async def _go(self, note: MoveNote, *, say_goodbye: bool) -> str:
        """Out of the old cluster, with an empty store; where the old one is, if it is.

        If that fails in the middle no client is let in: it would be told that its messages are kept.
        """
        service = self._service
        await asyncio.to_thread(write_note, service.folder, note)
        try:
            service.broker.move_out(now_ms())
            await self._wait(self._has_sent_all, SEND_S_MAX)
            if say_goodbye:
                await service.say_goodbye()
                for member in service.node.swim.alive():
                    service.links.forget_peer(member.node_id)
            if service.durable is not None:
                # Not sooner: a node that has not heard the goodbye would take this one for one that stays.
                service.durable.node.set_leaving(False)
                await service.durable.stop()
                service.durable.node.forget_cluster(now_ms())
            kept = await asyncio.to_thread(carry_out, service.folder, note)
            service.known.load()
            if service.durable is not None:
                await service.open_anew()
        except BaseException as error:
            text = f"This node was on its way to another cluster ({error!r}); restart it, then it is there."
            service.log.event("error", "move_failed", message=text)
            raise FlockError(text) from error
        return str(kept) if kept is not None else ""

    def _has_sent_all(self) -> bool:
        """Whether nothing of this node is on its way into a log: wills of the clients that went are."""
        durable = self._service.durable
        return durable is None or not durable.node.engine.appends.without_outcome()

    async def _open_doors(self, condition: Callable[[], bool]) -> None:
        """Let clients in once it knows what there is."""
        await self._wait(condition, 0)
        self._service.broker.move_in()

    async def _wait(self, condition: Callable[[], bool], seconds: float = READY_S_MAX) -> None:
        """Wait for it; 0: for ever."""
        until = time.monotonic() + seconds
        while not condition() and (not seconds or time.monotonic() < until):
            self._service.runner.runner.flush_soon()
            await asyncio.sleep(0.02)

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _wait_for_others(self) -> None:
        until = time.monotonic() + JOIN_S_MAX
        while len(self._service.node.swim.alive()) < 2:
            if time.monotonic() > until:
                raise FlockError(
                    "This node belongs to that cluster now, but none of its nodes answers by UDP; check that the port "
                    "is open for UDP, too. It goes on trying."
                )
            await asyncio.sleep(0.05)


def _result(cluster_id: int, *, changed: bool, set_aside: str = "") -> JoinResult:
    from flockmq.admin.cluster_model import JoinResult

    return JoinResult(id=f"{cluster_id:016x}", changed=changed, set_aside=set_aside)
