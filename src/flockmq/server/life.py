"""One life of a node in its process: broker, drivers, gate, listeners and the cluster's side, made and stopped once.

```
 open_life   the store, recovered off the loop --> Life: constructors only
 start       retained messages from disk --> cluster --> listeners      a node that has others, or something stored
                                         --> listeners --> cluster      one that is new and alone
 stop        listeners close --> wills, DISCONNECT 0x8B, goodbyes --> cluster --> retained messages on disk
```
A node that moves to another cluster ends one life and begins the next, so its memory holds no data of the old cluster.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flockmq import __version__
from flockmq.config.bind import Address
from flockmq.drivers.clock import now_ms, wall_ms
from flockmq.drivers.files import connections_within, file_limit
from flockmq.drivers.listeners import Bind, Listener, ListenerSettings
from flockmq.drivers.runner import Runner
from flockmq.errors import FlockError
from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE
from flockmq.node.broker import Broker
from flockmq.node.ports import OpenGate
from flockmq.security.tls import ServerTls
from flockmq.server.bans import Bans
from flockmq.server.data_dir import PEERS_FILE
from flockmq.server.events import log_events
from flockmq.server.tenants import Tenants

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from flockmq.cluster.state import ClusterState
    from flockmq.config.sections import Config
    from flockmq.config.sections import Listener as ListenerPlan
    from flockmq.drivers.retained_store import RetainedStorage
    from flockmq.node.events import Event
    from flockmq.node.ports import AuthRequest, Gate, Verdict
    from flockmq.security.gate import BrokerGate
    from flockmq.server.cluster import ClusterService
    from flockmq.server.cluster_moves import Restart
    from flockmq.server.data_dir import DataDir
    from flockmq.server.identity import Identity
    from flockmq.server.log import Log
    from flockmq.server.store_opening import OpenedStore

STATE_NAMES: Final = ("store", "cluster-state")
"""Where in its folder a node keeps cluster state, as a replica or as a copy."""


class Life:
    """See the module. The ``Edges`` of its node."""

    def __init__(
        self,
        config: Config,
        data_dir: DataDir,
        log: Log,
        owner: Restart,
        found: tuple[Identity, OpenedStore] | None,
        has_stored: bool,
    ) -> None:
        """``found``: the opened parts of a node of a cluster; None: a node alone. ``has_stored``: it was one before."""
        self.config = config
        self.log = log
        self.folder = data_dir.path
        self._owner = owner
        self.connections_max = config.broker.connections_max or connections_within(file_limit())
        """Most connections on all listeners together; 0: no limit."""
        self.listeners: list[Listener] = []
        self.certificates: list[ServerTls] = []
        self.cluster: ClusterService | None = None
        """The cluster's side, from its start on."""
        self.retained: RetainedStorage | None = None
        self._service: ClusterService | None = None
        self._gate: BrokerGate | None = None
        gate = self._open_gate()
        rng = random.Random(int.from_bytes(os.urandom(32)))  # noqa: S311  (spreads load; secrets don't come from it)
        settings = replace(config.broker, connections_max=self.connections_max)
        if found is None:
            self.broker = Broker(settings, gate, rng, now_ms(), wall_ms(), __version__, data_dir.node_id)
            self.runner = Runner(self.broker, self._log_events, self.connections_max)
        else:
            from flockmq.drivers.cluster_runner import ClusterRunner
            from flockmq.server.cluster import ClusterService, assemble_node

            identity, opened = found
            discovery = identity.discovery()
            node = assemble_node(identity, discovery, opened, settings, gate, rng, self)
            self.broker = node.broker
            turns = ClusterRunner(node.cluster, self._log_events, self.connections_max)
            self.runner = turns.runner
            self._service = ClusterService(identity, discovery, node, opened, turns, log, owner)
        self.tenants = Tenants(self.broker, self._gate, self._make_gate, self.runner.flush_soon)
        self._bans = Bans(self.broker, self.runner.flush_soon)
        if self._service is not None and has_stored:
            self.tenants.expect()
        # A node serves clients once it knows the others' routes and its own topics. New and alone it has neither.
        self.has_to_know = self._service is not None and (knows_others(config, self.folder) or has_stored)

    # --- Edges ---

    def kick(self) -> None:
        """See Edges."""
        if self._service is not None:
            self._service.durable.journal.kick()

    def wake(self) -> None:
        """See Edges."""
        self.runner.flush_soon()

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """See Edges."""
        if self._service is not None:
            self._service.runner.ship(peer, pieces)

    def keep(self, state: bytes) -> None:
        """See Edges."""
        if self._service is not None:
            self._service.durable.keep(state)

    def outdate(self) -> None:
        """See Edges."""
        if self._service is not None:
            self._service.durable.outdate()

    def changed(self, state: ClusterState) -> None:
        """See Edges."""
        self.tenants.follow(state)
        self._bans.follow(state)

    def stopped(self, reason: str) -> None:
        """See Edges."""
        if self._service is not None:
            self._service.durable.stopped(reason)

    # --- start and stop ---

    async def start(self, beside: Callable[[], Coroutine[object, object, None]]) -> None:
        """Serve. ``beside`` starts the admin API, at once where the node must wait for others."""
        await self._open_retained()
        self.runner.start()
        if self._service is not None:
            self._service.durable.open()
            self.changed(self._service.durable.node.meta.state)
        if self.has_to_know:
            from flockmq.server.together import all_of

            await all_of(self._start_cluster(), beside())
            if self.cluster is not None:
                await self.cluster.confirm()
        for plan in self.config.listeners:
            await self._listen(plan)
        if not self.has_to_know:
            await self._start_cluster()
            await beside()

    async def _start_cluster(self) -> None:
        service = self._service
        if service is None:
            return
        try:
            await service.start()
        except FlockError as error:
            await service.stop()
            if must_be_clustered(self.config, self.folder, error):
                raise
            self.tenants.know()
            self.log.event("warning", "cluster_left_out", message=str(error))
            return
        self.cluster = service
        self._owner.started()
        self.tenants.know_when(service.is_current)
        await service.settle()

    async def stop(self) -> None:
        """Say goodbye to clients and nodes and close everything; fine to call after a start that failed."""
        await self.runner.stop()
        if self._service is not None:
            await self._service.stop()

    async def close(self) -> None:
        """Save retained messages and release files, also after a failed stop."""
        if self.retained is not None:
            await self.retained.stop()
        if self._gate is not None:
            self._gate.close()

    async def _open_retained(self) -> None:
        """Bring retained messages back before any client or node can ask for them."""
        if not self.config.retained.persist or self.config.cluster.role == "edge":
            return
        from flockmq.drivers.retained_store import RetainedStorage  # brings SQLite along

        self.retained = RetainedStorage(self.folder / "retained.db", self.broker.retained, self.broker.node.events)
        await self.retained.open()

    async def _listen(self, plan: ListenerPlan) -> None:
        certificate = ServerTls(plan.tls) if plan.tls is not None else None
        settings = ListenerSettings(
            name=plan.key,
            kind=plan.kind,
            binds=tuple(Bind(one.host, one.port, one.optional) for one in plan.addresses),
            limits=plan.limits,
            tls=certificate.context if certificate is not None else None,
            proxy_protocol=plan.proxy_protocol,
            path=plan.path,
            origins=plan.origins,
        )
        listener = Listener(settings, self.runner)
        if plan.namespace != DEFAULT_NAMESPACE:
            self.broker.set_listener_namespace(plan.key, plan.namespace)
        try:
            await listener.start()
        except FlockError as error:
            if plan.asked_for:
                raise
            self.log.event("warning", "listener_left_out", listener=plan.key, message=str(error))
            return
        self.listeners.append(listener)
        if certificate is not None:
            self.certificates.append(certificate)
        addresses = [str(Address(host, port)) for host, port in listener.addresses]
        self.log.event("info", "listening", listener=plan.key, addresses=addresses)

    # --- clients that prove themselves ---

    def _open_gate(self) -> Gate:
        security = self.config.security
        certificates = any(one.tls and one.tls.client_certificates != "off" for one in self.config.listeners)
        has_files = bool(security.password_file or security.acl_file or security.has_jwt)
        if security.allow_anonymous and not certificates and not has_files:
            return OpenGate()
        return self._make_gate()

    def _make_gate(self) -> BrokerGate:
        from flockmq.security.gate import BrokerGate  # brings argon2 along, which not every broker needs

        self._gate = BrokerGate(
            self.config.security,
            deliver=self._verdict,
            call_soon=asyncio.get_running_loop().call_soon_threadsafe,
            wall_ms=wall_ms,
        )
        return self._gate

    def _verdict(self, request: AuthRequest, verdict: Verdict) -> None:
        self.runner.guard("auth_result", lambda: self.broker.auth_result(request, verdict, now_ms()))
        self.runner.flush_soon()

    def reload(self) -> list[str]:
        """Read passwords, rules and certificates again; returns which were read."""
        reloaded = self._gate.reload() if self._gate is not None else []
        self.tenants.review_all()
        for certificate in self.certificates:
            certificate.reload()
        return reloaded

    def _log_events(self, events: list[Event]) -> None:
        log_events(self.log, events)

    def pinned(self) -> Config:
        """The configuration with the ports that this life got instead of free ones: the next life is found there."""
        bound = {one.name: one.addresses for one in self.listeners}
        listeners = tuple(
            replace(plan, addresses=tuple(Address(host, port) for host, port in bound[plan.key]))
            if plan.key in bound and any(not one.port for one in plan.addresses)
            else plan
            for plan in self.config.listeners
        )
        cluster = self.config.cluster
        if self._service is not None:
            cluster = replace(cluster, port=self._service.port)
        return replace(self.config, listeners=listeners, cluster=cluster)


async def open_life(config: Config, data_dir: DataDir, log: Log, owner: Restart) -> Life:
    """Make a life with what the data folder holds; FlockError when that can't be used."""
    found = None
    has_stored = any((data_dir.path / name).exists() for name in STATE_NAMES)
    if config.cluster.enabled:
        try:
            found = await asyncio.to_thread(_find, config, data_dir, log)
        except FlockError as error:
            if must_be_clustered(config, data_dir.path, error):
                raise
            log.event("warning", "cluster_left_out", message=str(error))
    return Life(config, data_dir, log, owner, found, has_stored)


def _find(config: Config, data_dir: DataDir, log: Log) -> tuple[Identity, OpenedStore]:
    import flockmq.server.cluster  # noqa: F401  (takes long to load; the loop goes on meanwhile)
    from flockmq.server.durable import open_store
    from flockmq.server.identity import Identity

    identity = Identity(config, data_dir, log)
    return identity, open_store(data_dir.node_id, data_dir.path, config.store)


def must_be_clustered(config: Config, folder: Path, error: FlockError) -> bool:
    """Whether a node must not go on alone: its topics would be like any others, and messages of them lost."""
    from flockmq.server.state_copy import has_topics
    from flockmq.server.store_opening import LostStoreError

    return isinstance(error, LostStoreError) or config.cluster_asked_for or has_topics(folder)


def knows_others(config: Config, data_dir: Path) -> bool:
    """Whether this node was told of other nodes: by people, by a plugin, or by its own memory."""
    cluster = config.cluster
    return bool(cluster.contact_points) or cluster.discovery != "manual" or (data_dir / PEERS_FILE).exists()
