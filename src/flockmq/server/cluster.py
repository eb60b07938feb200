"""A node among others, put together: cookie, links, datagrams, discovery, and the way into a cluster.

```
 start   cookie --> boot number --> ClusterNode --> port 16000, TCP and UDP --> forming (a task)
 forming discovery lists contacts --> links to them --> Formation decides:  BOOTSTRAP  mint an id, keep it
                                                                            JOIN       take the peer's id, keep it
                                                                            WAIT       and say for what
         once in a cluster: contact points, known peers and what discovery lists are greeted now and then
 stop    goodbye to the others --> links close
```
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from typing import TYPE_CHECKING, Final

from flockmq import __version__
from flockmq.cluster.commands import SetSetting
from flockmq.cluster.policy import PolicySettings
from flockmq.discovery import registry
from flockmq.discovery.ports import DiscoveryError, Surroundings, claim
from flockmq.discovery.settings import NoSettings
from flockmq.drivers.boot import next_boot
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.cluster_runner import ClusterRunner
from flockmq.drivers.datagrams import Datagrams, listen_on_one_port
from flockmq.drivers.links import HelloError, LinkIdentity, Links, PeerInfo
from flockmq.errors import FlockError
from flockmq.gossip.member import CORE, EDGE, Member
from flockmq.gossip.seal import Sealer
from flockmq.gossip.settings import profile
from flockmq.peering.contact import Contact, parse_contact
from flockmq.peering.formation import BOOTSTRAP, JOIN, Rules
from flockmq.peering.node import ClusterNode
from flockmq.security.cookie import load_cookie
from flockmq.security.link_tls import LinkTls, LinkTlsSettings
from flockmq.server.alone import Alone
from flockmq.server.cluster_id import load_cluster_id, note_founded, save_cluster_id, was_founded
from flockmq.server.cluster_moves import ClusterMoves
from flockmq.server.cluster_view import ClusterView
from flockmq.server.durable import DurableService, open_durable
from flockmq.server.folder_trouble import is_trouble_with, why_unwritable
from flockmq.server.known_peers import KnownPeer, KnownPeers, load_ballot, save_ballot
from flockmq.server.link_address import advertised_host, listening_host
from flockmq.server.node_names import NodeNames, patience_s
from flockmq.server.standing import Standing
from flockmq.server.token import TOKEN_SETTING, to_share
from flockmq.wire.hello import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flockmq.cluster.state import ClusterState
    from flockmq.config.sections import Config
    from flockmq.discovery.ports import Discovery
    from flockmq.drivers.runner import Runner
    from flockmq.node.broker import Broker
    from flockmq.server.data_dir import DataDir
    from flockmq.server.log import Log

LOOK_S: Final = 0.2
"""How often a node that belongs to no cluster looks whether that can change."""
FIND_S: Final = 2.0
"""How often it lists nodes meanwhile."""
FIND_SETTLED_S: Final = 30.0
"""How often a node of a cluster lists nodes."""
SETTLE_S_MAX: Final = 5.0
CALLED_MAX: Final = 3
"""Most contact points that a message names."""
WHY_WAITING: Final = (
    "Clients are not served yet: topics, clients or rules were changed right before this node ended, and only a "
    "majority of the nodes that decide can tell whether that counts; start the others."
)
LEAVE_S_MAX: Final = 2.0
HAND_OVER_S_MAX: Final = 1.5
REMIND_S: Final = 30.0
"""How often the log is told what a node waits for."""


class ClusterService:
    """The cluster's side of one node; the admin API asks ``view``."""

    def __init__(
        self,
        config: Config,
        data_dir: DataDir,
        broker: Broker,
        runner: Runner,
        log: Log,
        fail: Callable[[str], None],
    ) -> None:
        """``fail``: end the whole node, with this sentence."""
        cluster = config.cluster
        self._fail = fail
        self.log = log
        self.config = cluster
        self.port = cluster.port
        self.watchers: list[Callable[[ClusterState], None]] = []
        """Called when the cluster state has changed; fill it before ``open``."""
        self._token_hash = ""
        self._on_belong: Callable[[str], object] | None = None
        self.api_url = ""
        """Where this node's admin API is, as others reach it; empty: it has none."""
        self.broker = broker
        self._store = config.store
        self.folder = data_dir.path
        self.known = KnownPeers(data_dir.path)
        self._rng = random.Random(secrets.randbits(256))  # noqa: S311  (spreads load; secrets don't come from it)
        self._cookie = load_cookie(cluster.cookie_file)
        if self._cookie.warning:
            log.event("warning", "cookie", message=self._cookie.warning)
        self._boot = next_boot(data_dir.path, wall_ms())
        self._durable_boot = self._boot
        known = [peer.contact for peer in self.known.load()]
        self._listens_on = listening_host(cluster, known)
        self._host = advertised_host(self._listens_on, cluster.advertise_host)
        self.points = tuple(parse_contact(point) for point in cluster.contact_points)
        self._name = config.broker.node_name
        self.discovery = self._make_discovery(config, data_dir.node_id)
        self.me = Contact(self._host, self.port)
        """Where others reach this node."""
        self.has_others = bool(known or self.points or config.cluster.discovery != "manual")
        """Whether this node was told of others, by people, by its own memory or by a plugin that lists them."""
        if self.known.trouble:
            log.event("warning", "peers_forgotten", message=self.known.trouble)
        self.node = self._make_node(broker, data_dir.node_id, known)
        self.names = NodeNames(self, self._name, patience_s(profile(cluster.profile)))
        self.runner = ClusterRunner(self.node, runner)
        self.durable: DurableService | None = None
        self._links: Links | None = None
        self._datagrams: Datagrams | None = None
        self._task: asyncio.Task[None] | None = None
        self._registered = False
        self._reminded = ("", 0.0)
        self._alone: Alone | None = None
        """There once clients are served before this node has found others."""
        self.elsewhere = ""
        """Which contact point is in another cluster, and what to do; empty when none is known to be."""
        self._ask_points_at = time.monotonic() + SETTLE_S_MAX
        self.standing = Standing(self, (*dict.fromkeys([*self.points, *known]),))
        self._looking: asyncio.Task[None] | None = None
        self.moves = ClusterMoves(self)
        self.view = ClusterView(self)

    def _make_discovery(self, config: Config, node_id: int) -> Discovery:
        surroundings = Surroundings(
            node_id=node_id, node_name=self._name, cookie=self._cookie.value, contact_points=self.points
        )
        settings = config.discovery if config.discovery is not None else NoSettings()
        return registry.make(config.cluster.discovery, settings, surroundings)

    def _make_node(self, broker: Broker, node_id: int, known: list[Contact]) -> ClusterNode:
        role = EDGE if self.config.role == "edge" else CORE
        cluster_id = load_cluster_id(self.folder)
        me = Member(node_id, self._boot, self._name, self._host, self.port, 0, 0, __version__, role, cluster_id)
        rules = Rules(
            lists_peers=self.discovery.lists_peers,
            expect=self.config.bootstrap_expect,
            contact_points=len(self.points) + len(known),
            called=", ".join(str(one) for one in dict.fromkeys([*self.points, *known][:CALLED_MAX])),
            is_edge=role == EDGE,
        )
        gossip = profile(self.config.profile)
        node = ClusterNode(broker, me, gossip, rules, load_ballot(self.folder), False, self._rng, now_ms())
        if cluster_id:
            node.swim.join([(one.host, one.port) for one in [*self.points, *known]], now_ms())
        return node

    @property
    def links(self) -> Links:
        """The links; there are some between start and stop."""
        assert self._links is not None
        return self._links

    async def open(self) -> None:
        """Recover what this node stores; FlockError when the disk is not usable."""
        autoclean_ms = self.config.autoclean_ms
        policy = PolicySettings(autoclean_ms, autoclean=autoclean_ms > 0)
        self.durable = await open_durable(
            self.node, self._durable_boot, self.folder, self._store, self.runner.runner, self.log, self._rng, policy
        )
        for watcher in self.watchers:
            self.durable.node.meta.watch(watcher)
            watcher(self.durable.node.meta.state)
        self.durable.node.tell_about_me(self.api_url, self.config.zone)
        self.node.formation.has_data = bool(self.durable.node.engine.store.groups)

    async def open_anew(self) -> None:
        """The same with an empty store, in another cluster: other nodes must not take it for the store before, which
        counted its messages and commands from 1 as well."""
        self._durable_boot = await asyncio.to_thread(next_boot, self.folder, wall_ms())
        await self.open()
        assert self.durable is not None
        self.durable.start(self.links.set_reading)

    async def start(self) -> None:
        """Listen for other nodes and look for them; FlockError when the port can't be had."""
        cluster = self.config
        node = self.node
        identity = LinkIdentity(
            node_id=node.node_id,
            boot=self._boot,
            cookie=self._cookie.value,
            name=self._name,
            cluster_id=node.cluster_id,
            version=__version__,
        )
        tls = LinkTls(
            LinkTlsSettings(
                link_tls=cluster.link_tls,
                ca_file=cluster.ca_file,
                cert_file=cluster.cert_file,
                key_file=cluster.key_file,
            ),
            self._cookie.value,
            node.node_id,
        )
        run = self.runner
        links = Links(
            identity, run.link_up, run.link_down, run.frame, run.writable, self._rng, tls=tls, objects=self._objects
        )
        self._links = links
        datagrams = Datagrams(Sealer(self._cookie.value, node.node_id, self._boot), run.datagram)
        self._datagrams = datagrams
        self.port = await listen_on_one_port(links, datagrams, self._listens_on, cluster.port)
        self.me = Contact(self._host, self.port)
        node.swim.update_me(now_ms(), self._host, self.port, __version__, node.swim.me.role)
        run.start(links, datagrams)
        if self.durable is not None:
            self.durable.start(links.set_reading)
            store = self.durable.node.engine.store.identity
            if node.cluster_id and was_founded(self.folder, store):
                note_founded(self.folder, store)  # the next store is another one
                self.durable.node.begin(node.cluster_id)
        self._settle_alone()
        self._task = asyncio.get_running_loop().create_task(self._live())
        self._looking = asyncio.get_running_loop().create_task(self.standing.run())
        self.log.event(
            "info",
            "cluster_listening",
            host=self._listens_on or "*",
            port=self.port,
            advertised=str(self.me),
            identified_by=self._cookie.source,
            cluster_id=f"{node.cluster_id:016x}" if node.cluster_id else None,
        )

    def _objects(self, caller: PeerInfo) -> str:
        return self.names.objection(caller, time.monotonic())

    def linked(self) -> list[int]:
        """Nodes that this one has a link with; none before start and after stop."""
        return self._links.connected() if self._links is not None else []

    def traffic(self) -> dict[str, int]:
        """What links and datagrams count."""
        datagrams = self._datagrams
        return {
            "links": len(self._links.connected()) if self._links is not None else 0,
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
        self._alone = Alone(time.monotonic())

    def is_current(self) -> bool:
        """Whether cluster state is what a majority agreed on, as of some moment since the start."""
        return self.durable is None or self.durable.node.meta.is_current

    def settings(self) -> Mapping[str, object]:
        """Settings that the cluster agrees on."""
        return self.durable.node.meta.state.settings if self.durable is not None else {}

    def id_text(self) -> str:
        """The id of this node's cluster as people and files have it; empty while it belongs to none."""
        return f"{self.node.cluster_id:016x}" if self.node.cluster_id else ""

    def tell_api(self, scheme: str, port: int, token_hash: str, on_belong: Callable[[str], object]) -> None:
        """The admin API listens on this port, for http or https; the founder's token is to be good for all nodes.
        ``on_belong`` is called when this node comes into another cluster."""
        self._on_belong = on_belong
        self._token_hash = token_hash
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.api_url = f"{scheme}://{host}:{port}"
        if self.durable is not None:
            self.durable.node.tell_about_me(self.api_url, self.config.zone)

    def is_in_doubt(self) -> bool:
        """Whether clients must wait until a replica of group 0 has confirmed the last changes known here."""
        return self.durable is not None and not self.durable.node.may_serve_alone()

    @property
    def why_waiting(self) -> str:
        """What clients wait for while this node is in doubt."""
        return WHY_WAITING

    async def confirm(self) -> None:
        """Wait for that."""
        while self.is_in_doubt():  # noqa: ASYNC110  (the pure node knows no event)
            await asyncio.sleep(0.02)

    def is_level(self) -> bool:
        """Whether this node knows its topics, and the routes of all others that live."""
        node = self.node
        if self.durable is not None and not self.durable.node.is_ready():
            return False
        others = [one.node_id for one in node.swim.alive() if one.node_id != node.node_id]
        if not self.has_others:
            return True
        if node.has_more():
            return False  # routes that are here and not applied yet
        linked = self.links.connected()
        return bool(others) and all(peer in linked and node.maps.is_level(peer) for peer in others)

    async def stop(self) -> None:
        """Say goodbye to the others."""
        tasks = [task for task in (self._task, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = self._looking = None
        await self.discovery.stop()
        if self._links is not None and self._datagrams is not None:
            await self._hand_over()
            await self.say_goodbye()
            self.runner.stop()
        if self.durable is not None:
            await self.durable.stop()
            self.durable = None
        if self._links is not None:
            await self._links.close()
            self._links = None
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None

    async def _hand_over(self) -> None:
        """Let others lead before they have to find out by silence that this node does no more."""
        until = time.monotonic() + HAND_OVER_S_MAX
        while self.durable is not None and time.monotonic() < until:
            if not self.durable.node.hand_over():
                return
            await asyncio.sleep(0.02)

    async def say_goodbye(self) -> None:
        """Tell the others that this node goes, so that they need not find out."""
        node = self.node
        node.leave(now_ms())
        until = time.monotonic() + LEAVE_S_MAX
        while not node.swim.has_left(now_ms()) and time.monotonic() < until:
            node.tick(now_ms())
            self.runner.turn()
            await asyncio.sleep(0.02)

    # --- the way into a cluster ---

    def _settle_alone(self) -> None:
        """A node that was told of no others is a cluster of one, at once."""
        if self.node.formation.decision.kind == BOOTSTRAP and not self.discovery.lists_peers:
            self.found(secrets.randbits(63) + 1)

    def found(self, cluster_id: int) -> None:
        """This node is the first of a new cluster. Noted before: a crash in between must not leave it without one."""
        if self.durable is None:
            self.belong(cluster_id)
            return
        note_founded(self.folder, self.durable.node.engine.store.identity)
        self.belong(cluster_id)
        self.durable.node.begin(cluster_id)

    async def _live(self) -> None:
        """Find others, again and again."""
        find_at = 0.0
        while True:
            was = self.node.cluster_id
            try:
                if time.monotonic() >= find_at:
                    find_at = time.monotonic() + (FIND_SETTLED_S if was else FIND_S)
                    await self._find()
                await self._form()
                await self._ask_points()
                await self._keep_peers()
                self._share_token()
                self._tell_alone()
                taken = self.names.look(time.monotonic())
                if taken:
                    self._fail(taken)
            except DiscoveryError as error:
                self._remind(str(error), "warning", "discovery_failed")
                find_at = time.monotonic() + FIND_S
            except FlockError as error:
                self.log.event("warning", "cluster_trouble", message=str(error))
            except Exception as error:
                if isinstance(error, OSError) and is_trouble_with(self.folder, error):
                    self._remind(why_unwritable(self.folder, error), "error", "data_folder_not_writable")
                else:
                    self.runner.runner.fault("forming a cluster", error)
            if self.node.cluster_id != was:
                find_at = 0.0
            await asyncio.sleep(FIND_S if self.node.cluster_id else LOOK_S)

    async def _find(self) -> None:
        """List nodes, and call those that are not known."""
        if not self._registered:
            await self.discovery.start(self.me)
            self._registered = True
        begun = now_ms()
        listed = await self.discovery.find()
        contacts = [*dict.fromkeys([*listed, *self.points])]
        formation = self.node.formation
        formation.listed(contacts, begun)
        if self.node.cluster_id:
            others = [(one.host, one.port) for one in contacts if one != self.me]
            self.node.swim.join(others, now_ms())
            return
        await asyncio.gather(*(self._greet(contact) for contact in formation.silent()))

    async def _greet(self, contact: Contact) -> None:
        try:
            info = await self.links.call(contact.host, contact.port)
            self.node.formation.answered(contact, info.node_id)
        except HelloError as error:
            if error.peer is not None:
                self.node.formation.answered(contact, error.peer.node_id)
            self.names.refused(error, time.monotonic())
            self.log.event("debug", "contact_silent", contact=str(contact), message=str(error))

    async def _ask_points(self) -> None:
        """A node that stays alone asks the nodes that it was told to join whether they are of its cluster at all."""
        if not self.node.cluster_id or len(self.node.swim.alive()) > 1:
            self.elsewhere = ""
            return
        if self.elsewhere or time.monotonic() < self._ask_points_at:
            return
        self._ask_points_at = time.monotonic() + FIND_SETTLED_S
        for contact in self.points:
            try:
                await self.links.call(contact.host, contact.port)
            except HelloError as error:
                if error.kind != CLUSTER or error.peer is None:
                    continue
                self.elsewhere = (
                    f"{contact}, which this node was told to join, is in cluster {error.peer.cluster_id:016x}, and "
                    f"this node in {self.node.cluster_id:016x}: one that belongs to a cluster does not go to another "
                    f"by --join; use `flockmq cluster join {contact}`."
                )
                self.log.event("warning", "contact_elsewhere", message=self.elsewhere)
                return

    async def _form(self) -> None:
        """Do what formation has decided."""
        formation = self.node.formation
        ballot = formation.take_ballot()
        if ballot is not None:
            await asyncio.to_thread(save_ballot, self.folder, ballot)
            formation.kept(ballot, now_ms())
            self.runner.runner.flush_soon()
        if formation.cluster_id:
            return
        decision = formation.decision
        if decision.kind == BOOTSTRAP:
            found = await claim(self.discovery, secrets.randbits(63) + 1)
            if found.mine:
                self.found(found.cluster_id)
            else:
                formation.claimed(found.cluster_id)
        elif decision.kind == JOIN:
            self.belong(decision.cluster_id)
        else:
            self._remind(decision.reason)

    def belong(self, cluster_id: int) -> None:
        """This node is one of that cluster from now on."""
        save_cluster_id(self.folder, cluster_id)
        self.elsewhere = ""
        self.links.set_cluster_id(cluster_id)
        contacts = [(one.host, one.port) for one in [*self.points, *(peer.contact for peer in self.known.load())]]
        for status in self.links.status():
            member = self.node.member_of(status.peer.node_id)
            if member is not None:
                contacts.append((member.host, member.port))
        self.node.belong(cluster_id, contacts, now_ms())
        self.runner.runner.flush_soon()
        self.log.event("info", "cluster_joined", cluster_id=f"{cluster_id:016x}")
        if self._on_belong is not None:
            self._on_belong(self.id_text())

    def _share_token(self) -> None:
        """The leader of a cluster that has no admin token yet puts the hash of its own into the cluster state."""
        if self.durable is None or not self._token_hash:
            return
        meta = self.durable.node.meta
        if meta.is_leader and meta.is_current and to_share(self._token_hash, meta.state.settings):
            meta.submit(SetSetting(TOKEN_SETTING, self._token_hash), lambda _result: None, now_ms())

    def _remind(self, reason: str, level: str = "info", event: str = "cluster_waiting") -> None:
        """Tell what is in the way: at once when it is something new, else now and then."""
        said, at = self._reminded
        if reason != said or time.monotonic() - at > REMIND_S:
            self._reminded = (reason, time.monotonic())
            self.log.event(level, event, message=reason)

    def _tell_alone(self) -> None:
        """Warn of serving alone once that has lasted, and say when it is over."""
        if self._alone is None:
            return
        others = len(self.node.swim.alive()) - 1
        event = self._alone.look(others, time.monotonic())
        if event == "serving_alone":
            reason = self.node.formation.decision.reason or "No other node of the cluster answers."
            self.log.event("warning", event, message=f"Clients are served by this node alone. {reason}")
        elif event:
            self.log.event("info", event, others=others)

    async def _keep_peers(self) -> None:
        """Write down where the others are, so that a restart finds them without its first contact point."""
        if self.broker.node.moving:
            return  # those that are known now are of the cluster that it leaves
        me = self.node.node_id
        at_ms = wall_ms()
        peers = [
            KnownPeer(one.node_id, one.name, Contact(one.host, one.port), at_ms)
            for one in self.node.swim.alive()
            if one.node_id != me
        ]
        if peers:
            await asyncio.to_thread(self.known.save, peers)
