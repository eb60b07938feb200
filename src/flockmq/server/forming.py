"""The way of a node into its cluster, and how it keeps in touch with the others afterwards; runs as a task.

```
 discovery lists contacts --> links to them --> Formation decides:  BOOTSTRAP  mint an id, keep it
                                                                    JOIN       take the peer's id, keep it
                                                                    WAIT       and say for what
 once in a cluster: contact points, known peers and what discovery lists are greeted now and then
```
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import SetSetting
from flockmq.discovery.ports import DiscoveryError, claim
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.links import HelloError
from flockmq.errors import FlockError
from flockmq.peering.contact import Contact
from flockmq.peering.formation import BOOTSTRAP, JOIN
from flockmq.server.alone import Alone
from flockmq.server.folder_trouble import is_trouble_with, why_unwritable
from flockmq.server.known_peers import KnownPeer, save_ballot
from flockmq.server.token import TOKEN_SETTING, to_share
from flockmq.wire.hello import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.server.cluster import ClusterService

LOOK_S: Final = 0.2
"""How often a node that belongs to no cluster looks whether that can change."""
FIND_S: Final = 2.0
"""How often a node that belongs to no cluster lists nodes."""
FIND_SETTLED_S: Final = 30.0
"""How often a node of a cluster lists nodes."""
ASK_POINTS_S: Final = 5.0
REMIND_S: Final = 30.0
"""How often the log is told what a node waits for."""


class Forming:
    """See the module. ``fail``: end the whole node, with this sentence."""

    def __init__(self, service: ClusterService, fail: Callable[[str], None]) -> None:
        self._service = service
        self._node = service.node
        self._log = service.log
        self._fail = fail
        self._registered = False
        self._reminded = ("", 0.0)
        self._ask_points_at = time.monotonic() + ASK_POINTS_S
        self._alone: Alone | None = None
        self.elsewhere = ""
        """Which contact point is in another cluster, and what to do; empty when none is known to be."""

    def serve_alone(self) -> None:
        """Clients are served from now on before this node has found others."""
        self._alone = Alone(time.monotonic())

    def settle_alone(self) -> None:
        """A node that was told of no others is a cluster of one, at once."""
        if self._node.formation.decision.kind == BOOTSTRAP and not self._service.discovery.lists_peers:
            self._service.found(secrets.randbits(63) + 1)

    async def run(self) -> None:
        """Find others, again and again."""
        find_at = 0.0
        node = self._node
        while True:
            was = node.cluster_id
            try:
                if time.monotonic() >= find_at:
                    find_at = time.monotonic() + (FIND_SETTLED_S if was else FIND_S)
                    await self._find()
                await self._form()
                await self._ask_points()
                await self._keep_peers()
                self._share_token()
                self._tell_alone()
                taken = self._service.names.look(time.monotonic())
                if taken:
                    self._fail(taken)
            except DiscoveryError as error:
                self._remind(str(error), "warning", "discovery_failed")
                find_at = time.monotonic() + FIND_S
            except FlockError as error:
                self._log.event("warning", "cluster_trouble", message=str(error))
            except Exception as error:
                folder = self._service.folder
                if isinstance(error, OSError) and is_trouble_with(folder, error):
                    self._remind(why_unwritable(folder, error), "error", "data_folder_not_writable")
                else:
                    self._service.runner.runner.fault("forming a cluster", error)
            if node.cluster_id != was:
                find_at = 0.0
            await asyncio.sleep(FIND_S if node.cluster_id else LOOK_S)

    async def _find(self) -> None:
        """List nodes, and call those that are not known."""
        service = self._service
        if not self._registered:
            await service.discovery.start(service.me)
            self._registered = True
        begun = now_ms()
        listed = await service.discovery.find()
        contacts = [*dict.fromkeys([*listed, *service.points])]
        formation = self._node.formation
        formation.listed(contacts, begun)
        if self._node.cluster_id:
            others = [(one.host, one.port) for one in contacts if one != service.me]
            self._node.swim.join(others, now_ms())
            return
        await asyncio.gather(*(self._greet(contact) for contact in formation.silent()))

    async def _greet(self, contact: Contact) -> None:
        formation = self._node.formation
        try:
            info = await self._service.links.call(contact.host, contact.port)
            formation.answered(contact, info.node_id)
        except HelloError as error:
            if error.peer is not None:
                formation.answered(contact, error.peer.node_id)
            self._service.names.refused(error, time.monotonic())
            self._log.event("debug", "contact_silent", contact=str(contact), message=str(error))

    async def _ask_points(self) -> None:
        """A node that stays alone asks its contact points whether they are of its cluster at all."""
        node = self._node
        if not node.cluster_id or len(node.swim.alive()) > 1:
            self.elsewhere = ""
            return
        if self.elsewhere or time.monotonic() < self._ask_points_at:
            return
        self._ask_points_at = time.monotonic() + FIND_SETTLED_S
        for contact in self._service.points:
            try:
                await self._service.links.call(contact.host, contact.port)
            except HelloError as error:
                if error.kind != CLUSTER or error.peer is None:
                    continue
                self.elsewhere = (
                    f"{contact}, which this node was told to join, is in cluster {error.peer.cluster_id:016x}, and "
                    f"this node in {node.cluster_id:016x}: one that belongs to a cluster does not go to another "
                    f"by --join; use `flockmq cluster join {contact}`."
                )
                self._log.event("warning", "contact_elsewhere", message=self.elsewhere)
                return

    async def _form(self) -> None:
        """Carry out the decision of formation."""
        service = self._service
        formation = self._node.formation
        ballot = formation.take_ballot()
        if ballot is not None:
            await asyncio.to_thread(save_ballot, service.folder, ballot)
            formation.kept(ballot, now_ms())
            service.runner.runner.flush_soon()
        if formation.cluster_id:
            return
        decision = formation.decision
        if decision.kind == BOOTSTRAP:
            found = await claim(service.discovery, secrets.randbits(63) + 1)
            if found.mine:
                service.found(found.cluster_id)
            else:
                formation.claimed(found.cluster_id)
        elif decision.kind == JOIN:
            service.belong(decision.cluster_id)
        else:
            self._remind(decision.reason)

    async def _keep_peers(self) -> None:
        """Write down where the others are, so that a restart finds them without its first contact point."""
        if self._service.broker.node.moving:
            return  # the known peers belong to the cluster that this node leaves
        me = self._node.node_id
        wall = wall_ms()
        peers = [
            KnownPeer(one.node_id, one.name, Contact(one.host, one.port), wall)
            for one in self._node.swim.alive()
            if one.node_id != me
        ]
        if peers:
            await asyncio.to_thread(self._service.known.save, peers)

    def _share_token(self) -> None:
        """The leader of a cluster without an admin token puts the hash of its own into the cluster state."""
        token_hash = self._service.token_hash
        meta = self._service.durable.node.meta
        if token_hash and meta.is_leader and meta.is_current and to_share(token_hash, meta.state.settings):
            meta.submit(SetSetting(TOKEN_SETTING, token_hash))

    def _remind(self, reason: str, level: str = "info", event: str = "cluster_waiting") -> None:
        """Log the reason for waiting: a new reason at once, the same one from time to time."""
        said, at = self._reminded
        if reason != said or time.monotonic() - at > REMIND_S:
            self._reminded = (reason, time.monotonic())
            self._log.event(level, event, message=reason)

    def _tell_alone(self) -> None:
        """Warn of serving alone once that has lasted, and say when it is over."""
        if self._alone is None:
            return
        others = len(self._node.swim.alive()) - 1
        event = self._alone.look(others, time.monotonic())
        if event == "serving_alone":
            reason = self._node.formation.decision.reason or "No other node of the cluster answers."
            self._log.event("warning", event, message=f"Clients are served by this node alone. {reason}")
        elif event:
            self._log.event("info", event, others=others)
