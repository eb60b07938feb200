"""The cluster's side of one life of a node: links and datagrams around the node that was assembled.

```
 start   port 16000, TCP and UDP --> consensus begins --> forming (a task), standing (a task)
 settle  until the node knows the others, their routes and which topics are durable; not for long
 stop    others lead what this node led --> goodbye --> the store is closed --> links close
```
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Final

from flockmq import __version__
from flockmq.cluster.policy import PolicySettings
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.datagrams import Datagrams, listen_on_one_port
from flockmq.drivers.links import Links, PeerInfo
from flockmq.durable.assembly import Node, assemble
from flockmq.durable.parts import Edges, Parts
from flockmq.errors import FlockError
from flockmq.gossip.seal import Sealer
from flockmq.gossip.settings import profile
from flockmq.peering.contact import Contact
from flockmq.raft.settings import RaftSettings
from flockmq.server.cluster_id import note_founded, save_cluster_id, was_founded
from flockmq.server.cluster_moves import ClusterMoves
from flockmq.server.cluster_view import ClusterView
from flockmq.server.durable import DurableService
from flockmq.server.forming import Forming
from flockmq.server.identity import Identity
from flockmq.server.node_names import NodeNames, patience_s
from flockmq.server.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flockmq.discovery.ports import Discovery
    from flockmq.drivers.cluster_runner import ClusterRunner
    from flockmq.node.ports import Gate
    from flockmq.node.settings import BrokerSettings
    from flockmq.server.cluster_moves import Restart
    from flockmq.server.log import Log
    from flockmq.server.store_opening import OpenedStore

SETTLE_S_MAX: Final = 5.0
WHY_WAITING: Final = (
    "Clients are not served yet: topics, clients or rules were changed right before this node ended, and only a "
    "majority of the nodes that decide can tell whether that counts; start the others."
)
LEAVE_S_MAX: Final = 2.0
HAND_OVER_S_MAX: Final = 1.5


def assemble_node(
    identity: Identity,
    discovery: Discovery,
    opened: OpenedStore,
    settings: BrokerSettings,
    gate: Gate,
    rng: random.Random,
    edges: Edges,
) -> Node:
    """The node of a real server."""
    autoclean_ms = identity.config.autoclean_ms
    node = assemble(
        Parts(
            me=identity.member(),
            settings=settings,
            gate=gate,
            gossip=profile(identity.config.profile),
            rules=identity.rules(discovery),
            rng=rng,
            now=now_ms(),
            wall_ms=wall_ms(),
            edges=edges,
            store=opened.store,
            ballot=identity.ballot,
            raft=RaftSettings(commit_news_at_once=True),
            policy=PolicySettings(autoclean_ms, autoclean=autoclean_ms > 0),
            version=__version__,
        )
    )
    if identity.cluster_id:
        node.cluster.swim.join(identity.contacts(), now_ms())
    return node


class ClusterService:
    """See the module; the admin API asks ``view``."""

    def __init__(
        self,
        identity: Identity,
        discovery: Discovery,
        node: Node,
        opened: OpenedStore,
        runner: ClusterRunner,
        log: Log,
        owner: Restart,
    ) -> None:
        """``owner`` restarts the node, ends it, and hears to which cluster it belongs."""
        assert node.durable is not None
        self.log = log
        self.identity = identity
        self.config = identity.config
        self.folder = identity.folder
        self.known = identity.peers
        self.points = identity.points
        self.has_others = identity.has_others
        self.discovery = discovery
        self.port = identity.config.port
        self.me = Contact(identity.host, self.port)
        """The address at which other nodes reach this node."""
        self.token_hash = ""
        """The hash of the admin token; empty until the API listens."""
        self.broker = node.broker
        self.node = node.cluster
        self._owner = owner
        self.runner = runner
        self.durable = DurableService(node.durable, opened, identity.folder, runner.runner, log)
        self._links: Links | None = None
        self._datagrams: Datagrams | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.names = NodeNames(self, identity.name, patience_s(profile(identity.config.profile)))
        self.standing = Standing(self, (*dict.fromkeys([*identity.points, *identity.known]),))
        self.forming = Forming(self, owner.fail)
        self.moves = ClusterMoves(self, owner)
        self.view = ClusterView(self)

    @property
    def links(self) -> Links:
        """The links; they exist between start and stop."""
        assert self._links is not None
        return self._links

    async def start(self) -> None:
        """Listen for other nodes and look for them; FlockError when the port can't be had."""
        identity = self.identity
        node = self.node
        run = self.runner
        links = Links(
            identity.link(),
            run.link_up,
            run.link_down,
            run.frame,
            run.writable,
            node.broker.node.rng,
            tls=identity.tls(),
            objects=self._objects,
        )
        self._links = links
        datagrams = Datagrams(Sealer(identity.cookie.value, node.node_id, identity.boot), run.datagram)
        self._datagrams = datagrams
        self.port = await listen_on_one_port(links, datagrams, identity.listens_on, self.config.port)
        self.me = Contact(identity.host, self.port)
        node.swim.update_me(now_ms(), identity.host, self.port, __version__, node.swim.me.role)
        run.start(links, datagrams)
        self.durable.start(links.set_reading)
        store = self.durable.node.engine.store.identity
        if node.cluster_id and was_founded(self.folder, store):
            note_founded(self.folder, store)  # the next store is another one
            self.durable.node.begin(node.cluster_id)
        self.forming.settle_alone()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self.forming.run()), loop.create_task(self.standing.run())]
        self.log.event(
            "info",
            "cluster_listening",
            host=identity.listens_on or "*",
            port=self.port,
            advertised=str(self.me),
            identified_by=identity.cookie.source,
            cluster_id=f"{node.cluster_id:016x}" if node.cluster_id else None,
        )

    def _objects(self, caller: PeerInfo) -> str:
        return self.names.objection(caller, time.monotonic())

    def linked(self) -> list[int]:
        """Nodes that this one has a link with; none before start and after stop."""
        return self._links.connected() if self._links is not None else []

    def traffic(self) -> dict[str, int]:
        """The counters of links and datagrams."""
        datagrams = self._datagrams
        return {
            "links": len(self.linked()),
            "datagrams_in": datagrams.received if datagrams is not None else 0,
            "datagrams_out": datagrams.sent if datagrams is not None else 0,
        }

    async def settle(self) -> None:
        """Wait, but not for long, until this node knows the others and their routes, and which topics are durable: what
        its clients publish before that would not get there. A new node that was told of no others serves already."""
        if not self.has_others and not self.node.formation.has_data:
            await self.moves.wait_whole()
            return
        until = time.monotonic() + SETTLE_S_MAX
        while time.monotonic() < until or self.names.is_doubtful:
            taken = self.names.look(time.monotonic())
            if taken:
                raise FlockError(taken)
            if self.is_level() and not self.names.is_doubtful:
                return
            await asyncio.sleep(0.02)
        if self.is_in_doubt():
            self.log.event("warning", "waiting_for_majority", message=WHY_WAITING)
            return
        self.forming.serve_alone()

    def is_current(self) -> bool:
        """Whether cluster state is what a majority agreed on, as of some moment since the start."""
        return self.durable.node.meta.is_current

    def settings(self) -> Mapping[str, object]:
        """Settings that the cluster agrees on."""
        return self.durable.node.meta.state.settings

    def id_text(self) -> str:
        """The id of this node's cluster as people and files have it; empty while it belongs to none."""
        return f"{self.node.cluster_id:016x}" if self.node.cluster_id else ""

    def tell_api(self, scheme: str, port: int, token_hash: str) -> None:
        """The admin API listens on this port, for http or https; the founder's token is to be good for all nodes."""
        self.token_hash = token_hash
        host = self.identity.host
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        self.durable.node.tell_about_me(url, self.config.zone)

    def is_in_doubt(self) -> bool:
        """Whether clients must wait until a majority has confirmed the last changes that this node knows of."""
        return not self.durable.node.may_serve_alone()

    @property
    def why_waiting(self) -> str:
        """The sentence for clients that wait while this node is in doubt."""
        return WHY_WAITING

    async def confirm(self) -> None:
        """Wait until this node is no longer in doubt."""
        while self.is_in_doubt():  # noqa: ASYNC110  (the pure node knows no event)
            await asyncio.sleep(0.02)

    def is_level(self) -> bool:
        """Whether this node knows its topics, and the routes of all others that live."""
        node = self.node
        if not self.durable.node.is_ready():
            return False
        others = [one.node_id for one in node.swim.alive() if one.node_id != node.node_id]
        if not self.has_others:
            return True
        if node.has_more():
            return False  # routes that are here and not applied yet
        linked = self.linked()
        return bool(others) and all(peer in linked and node.maps.is_level(peer) for peer in others)

    async def stop(self) -> None:
        """Say goodbye to the others."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self.discovery.stop()
        if self._links is not None and self._datagrams is not None:
            await self._hand_over()
            await self._say_goodbye()
            self.runner.stop()
        await self.durable.stop()
        if self._links is not None:
            await self._links.close()
            self._links = None
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None

    async def _hand_over(self) -> None:
        """Hand leadership to other nodes, so that they need not notice by silence that this node stops."""
        until = time.monotonic() + HAND_OVER_S_MAX
        while time.monotonic() < until:
            if not self.durable.node.hand_over():
                return
            await asyncio.sleep(0.02)

    async def _say_goodbye(self) -> None:
        """Tell the other nodes that this node leaves, so that they need not detect its silence."""
        node = self.node
        node.leave(now_ms())
        until = time.monotonic() + LEAVE_S_MAX
        while not node.swim.has_left(now_ms()) and time.monotonic() < until:
            node.tick(now_ms())
            self.runner.turn()
            await asyncio.sleep(0.02)

    # --- the way into a cluster ---

    def found(self, cluster_id: int) -> None:
        """This node founds a cluster. The founding is on disk first, so a crash can't lose the cluster id."""
        note_founded(self.folder, self.durable.node.engine.store.identity)
        self.belong(cluster_id)
        self.durable.node.begin(cluster_id)

    def belong(self, cluster_id: int) -> None:
        """This node is one of that cluster from now on."""
        save_cluster_id(self.folder, cluster_id)
        self.links.set_cluster_id(cluster_id)
        contacts = [(one.host, one.port) for one in [*self.points, *(peer.contact for peer in self.known.load())]]
        for status in self.links.status():
            member = self.node.member_of(status.peer.node_id)
            if member is not None:
                contacts.append((member.host, member.port))
        self.node.belong(cluster_id, contacts, now_ms())
        self.runner.runner.flush_soon()
        self.log.event("info", "cluster_joined", cluster_id=f"{cluster_id:016x}")
        self._owner.belongs(self.id_text())
