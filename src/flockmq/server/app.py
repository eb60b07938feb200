"""One running node: gate, broker, drivers, listeners and admin API put together, started and stopped in order.

```
 start   lock data folder --> passwords, ACL, certificates --> broker --> retained messages come back from disk
         --> cluster, admin API --> listeners --> ready       a node that has others, or something stored
         --> listeners --> cluster --> admin API --> ready    one that is new and alone
 stop    not ready --> listeners close --> wills, DISCONNECT 0x8B, goodbyes --> cluster, admin API --> folder unlocked
 reload  passwords, ACL, certificates: all of them, or none and the reason why
```
A listener that was asked for must get its port or the start fails; one that is there by default gives way.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
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
from flockmq.server.build import build_kind
from flockmq.server.check import advice
from flockmq.server.data_dir import MOVE_FILE, PEERS_FILE, DataDir, open_data_dir
from flockmq.server.events import log_events
from flockmq.server.folder_trouble import is_trouble_with, why_unwritable
from flockmq.server.tenants import Tenants
from flockmq.server.together import all_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from flockmq.admin import model
    from flockmq.admin.api import AdminApi
    from flockmq.admin.desk import State
    from flockmq.admin.readiness import NodeFacts
    from flockmq.config.sections import Config
    from flockmq.config.sections import Listener as ListenerPlan
    from flockmq.drivers.retained_store import RetainedStorage
    from flockmq.node.ports import AuthRequest, Gate, Verdict
    from flockmq.security.gate import BrokerGate
    from flockmq.server.cluster import ClusterService
    from flockmq.server.log import Log

STATE_NAMES: Final = ("store", "cluster-state")
"""Where in its folder a node keeps cluster state, as a replica or as a copy."""
STOP_S_MAX: Final = 8.0
"""Longest stop; goodbyes to clients that don't read take two seconds of it."""


class Server:
    """A node. ``show_config`` gives the effective configuration, secrets blacked out, for the admin API."""

    def __init__(self, config: Config, log: Log, show_config: Callable[[], Mapping[str, object]] | None = None) -> None:
        self.config = config
        self.log = log
        self.listeners: list[Listener] = []
        self.admin: AdminApi | None = None
        self.cluster: ClusterService | None = None
        self.tenants: Tenants | None = None
        self._show_config = show_config
        self.connections_max = config.broker.connections_max or connections_within(file_limit())
        """Most connections on all listeners together; 0: no limit."""
        self._plans: dict[Listener, ListenerPlan] = {}
        self._certificates: list[ServerTls] = []
        self._data_dir: DataDir | None = None
        self._gate: BrokerGate | None = None
        self._runner: Runner | None = None
        self._broker: Broker | None = None
        self._retained: RetainedStorage | None = None
        self.failure = ""
        """Why this node can't go on; empty while it can."""
        self.failed = asyncio.Event()
        self._token_hash = ""
        """The hash of the admin token; empty until the API listens."""
        self._token_cluster = ""
        """The cluster that the user's copy of the token is kept by."""

    def fail(self, reason: str) -> None:
        """This node can't go on: its process should end."""
        if not self.failure:
            self.failure = reason
            self.log.event("error", "node_failed", message=reason)
            self.failed.set()

    async def start(self) -> None:
        """Serve; FlockError, and nothing is left running, when something is in the way."""
        began = time.monotonic()
        try:
            await self._start()
            assert self._data_dir is not None
            self._data_dir.write_ports(self.ports())
        except BaseException as error:
            await self.stop()
            folder = Path(self.config.data_dir)
            if isinstance(error, OSError) and is_trouble_with(folder, error):
                raise FlockError(why_unwritable(folder, error)) from None
            raise
        if self.admin is not None:
            self.admin.mark_ready()
        self._warn()
        self.log.event(
            "info",
            "ready",
            node=self.config.broker.node_name,
            node_id=f"{self._data_dir.node_id:016x}",
            version=__version__,
            build=build_kind(),
            data_dir=str(self._data_dir.path),
            start_ms=round((time.monotonic() - began) * 1000),
        )

    async def _start(self) -> None:
        config = self.config
        self._data_dir = open_data_dir(Path(config.data_dir))
        if (self._data_dir.path / MOVE_FILE).exists():
            from flockmq.server.move_note import finish_move

            finish_move(self._data_dir.path)
            self.log.event("info", "move_finished", message="This node was stopped on its way to another cluster.")
        gate = self._open_gate()
        rng = random.Random(int.from_bytes(os.urandom(32)))  # noqa: S311  (spreads load; secrets don't come from it)
        settings = replace(config.broker, connections_max=self.connections_max)
        self._broker = Broker(settings, gate, rng, now_ms(), wall_ms(), __version__)
        await self._open_retained(self._data_dir, self._broker)
        self._runner = Runner(self._broker, lambda events: log_events(self.log, events), self.connections_max)
        self._runner.start()
        self.tenants = Tenants(self._broker, self._gate, self._make_gate, self._runner.flush_soon)
        folder = self._data_dir.path
        has_stored = any((folder / name).exists() for name in STATE_NAMES)
        if config.cluster.enabled and has_stored:
            self.tenants.expect()
        # A node serves clients once it knows the others' routes and its own topics. New and alone it has neither.
        has_to_know = config.cluster.enabled and (knows_others(config, folder) or has_stored)
        starting_cluster = partial(self._start_cluster, self._data_dir, self._broker, self._runner)
        if has_to_know:
            # The API is there at once, so that people and probes can see what this node waits for.
            await all_of(starting_cluster(), self._start_admin())
            if self.cluster is not None:
                await self.cluster.confirm()
        for plan in config.listeners:
            await self._listen(plan)
        if not has_to_know:
            if config.cluster.enabled:
                await starting_cluster()
            await self._start_admin()

    async def _start_cluster(self, data_dir: DataDir, broker: Broker, runner: Runner) -> None:
        cluster = await asyncio.to_thread(_load_cluster)
        service: ClusterService = cluster.ClusterService(self.config, data_dir, broker, runner, self.log, self.fail)
        assert self.tenants is not None
        service.watchers.append(self.tenants.follow)
        service.watchers.append(Bans(broker, runner.flush_soon).follow)
        try:
            await service.open()
            await service.start()
        except FlockError as error:
            from flockmq.server.state_copy import has_topics
            from flockmq.server.store_opening import LostStoreError

            await service.stop()
            is_lost = isinstance(error, LostStoreError)
            if is_lost or self.config.cluster_asked_for or has_topics(data_dir.path):
                raise  # without the others its topics would be like any others, and messages of them lost
            self.tenants.know()
            self.log.event("warning", "cluster_left_out", message=str(error))
            return
        self.cluster = service
        self._tell_api()
        self.tenants.know_when(service.is_current)
        await service.settle()

    async def _open_retained(self, data_dir: DataDir, broker: Broker) -> None:
        """Bring retained messages back before any client or node can ask for them."""
        broker.retained.origin = data_dir.node_id
        if self.config.cluster.enabled:
            broker.retained.share(data_dir.node_id)
        if not self.config.retained.persist or self.config.cluster.role == "edge":
            return
        from flockmq.drivers.retained_store import RetainedStorage  # brings SQLite along

        self._retained = RetainedStorage(data_dir.path / "retained.db", broker.retained, broker.node.events)
        await self._retained.open()

    def _facts(self, state: State) -> NodeFacts:
        """What this node tells probes about itself."""
        from flockmq.server.probing import node_facts

        return node_facts(
            state,
            is_clustered=self.config.cluster.enabled,
            cluster=self.cluster,
            is_moving=self._broker is not None and self._broker.node.moving,
            has_unsaved=self._retained is not None and bool(self._retained.problem),
        )

    def _open_gate(self) -> Gate:
        security = self.config.security
        certificates = any(one.tls and one.tls.client_certificates != "off" for one in self.config.listeners)
        if security.allow_anonymous and not certificates and not _has_files(self.config):
            return OpenGate()
        return self._make_gate()

    def _make_gate(self) -> BrokerGate:
        from flockmq.security.gate import BrokerGate  # brings argon2 along, which not every broker needs

        loop = asyncio.get_running_loop()
        self._gate = BrokerGate(
            self.config.security,
            deliver=self._verdict,
            call_soon=loop.call_soon_threadsafe,
            wall_ms=wall_ms,
        )
        return self._gate

    def _verdict(self, request: AuthRequest, verdict: Verdict) -> None:
        broker, runner = self._broker, self._runner
        assert broker is not None
        assert runner is not None
        runner.guard("auth_result", lambda: broker.auth_result(request, verdict, now_ms()))
        runner.flush_soon()

    async def _listen(self, plan: ListenerPlan) -> None:
        assert self._runner is not None
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
        listener = Listener(settings, self._runner)
        if plan.namespace != DEFAULT_NAMESPACE:
            self._runner.broker.set_listener_namespace(plan.key, plan.namespace)
        try:
            await listener.start()
        except FlockError as error:
            if plan.asked_for:
                raise
            self.log.event("warning", "listener_left_out", listener=plan.key, message=str(error))
            return
        self.listeners.append(listener)
        self._plans[listener] = plan
        if certificate is not None:
            self._certificates.append(certificate)
        self.log.event("info", "listening", listener=plan.key, addresses=_shown(listener.addresses))

    async def _start_admin(self) -> None:
        plan = self.config.admin
        if plan is None:
            return
        # It takes longer to load than all the rest; MQTT is served meanwhile.
        api = await asyncio.to_thread(_load_admin_api)
        assert self._broker is not None
        assert self._data_dir is not None
        assert self._runner is not None

        def verify(token: str) -> bool:
            from flockmq.server.token import accepts

            return accepts(token, self._token_hash, self.cluster.settings() if self.cluster is not None else {})

        node_info = api.NodeInfo(name=self.config.broker.node_name, version=__version__, build=build_kind())
        admin: AdminApi = api.AdminApi(
            self._broker,
            node_info,
            verify,
            now_ms,
            flush=self._runner.flush_soon,
            listeners=self.listener_models,
            config=self._shown_config if self._show_config is not None else None,
            reload=self.reload,
            log=self.log.event,
            allowed_hosts=plan.allowed_hosts,
            cluster=lambda: self.cluster.view if self.cluster is not None else None,
            facts=self._facts,
        )
        self.admin = admin
        try:
            certificate = ServerTls(plan.tls) if plan.tls is not None else None
            await _bind_admin(admin, plan.addresses, certificate.context if certificate is not None else None)
        except FlockError as error:
            await admin.stop()
            self.admin = None
            if plan.asked_for:
                raise
            self.log.event("warning", "admin_left_out", message=str(error))
            return
        if certificate is not None:
            self._certificates.append(certificate)
        from flockmq.server.cluster_id import load_cluster_id
        from flockmq.server.token import token_hash

        folder = self._data_dir.path
        cluster_id = load_cluster_id(folder)
        self._token_cluster = f"{cluster_id:016x}" if cluster_id else ""
        self._token_hash = token_hash(plan.token_file, folder, self.admin_url, self._token_cluster, self.log)
        self.log.event("info", "listening", listener="admin", addresses=_shown(admin.addresses))
        self._tell_api()

    def _tell_api(self) -> None:
        """Once both are there, the cluster is told of the API and its token. Which of them comes first is open."""
        if self.admin is None or self.cluster is None or not self._token_hash:
            return
        from flockmq.security import credentials

        follow = partial(credentials.recognise, self.admin_url, self._token_hash)
        self.cluster.tell_api(self._admin_scheme, self.admin.addresses[0][1], self._token_hash, follow)
        if self.cluster.id_text() != self._token_cluster:  # it has come into a cluster meanwhile
            follow(self.cluster.id_text())

    def _shown_config(self) -> Mapping[str, object]:
        """The configuration in force, with what came of values that depend on the machine."""
        shown = dict(self._show_config()) if self._show_config is not None else {}
        mqtt = shown.get("mqtt")
        if isinstance(mqtt, dict):
            shown["mqtt"] = {**mqtt, "connections_max": self.connections_max}
        return shown

    @property
    def admin_url(self) -> str:
        """Address of the admin API for programs on this machine."""
        assert self.admin is not None
        hosts = dict(self.admin.addresses)
        for wanted, local in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")):  # noqa: S104
            if wanted in hosts:
                return f"{self._admin_scheme}://{local}:{hosts[wanted]}"
        host, port = self.admin.addresses[0]
        return f"{self._admin_scheme}://[{host}]:{port}" if ":" in host else f"{self._admin_scheme}://{host}:{port}"

    @property
    def _admin_scheme(self) -> str:
        return "https" if self.config.admin is not None and self.config.admin.tls is not None else "http"

    def listener_models(self) -> list[model.Listener]:
        """Where this node listens, as the admin API tells it. Connections are counted with the first address."""
        from flockmq.admin import model

        return [
            model.Listener(
                name=one.name,
                protocol=one.settings.kind,
                host=host,
                port=port,
                connections=one.admission.live if index == 0 else None,
            )
            for one in self.listeners
            for index, (host, port) in enumerate(one.addresses)
        ]

    def ports(self) -> dict[str, object]:
        """Where this node listens, as ``ports.json`` tells it."""
        listeners = [
            {"name": one.name, "kind": one.settings.kind, "host": host, "port": port}
            for one in self.listeners
            for host, port in one.addresses
        ]
        admin = [{"host": host, "port": port} for host, port in self.admin.addresses] if self.admin else []
        return {
            "pid": os.getpid(),
            "node": self.config.broker.node_name,
            "listeners": listeners,
            "admin": admin,
            "cluster": {"port": self.cluster.port} if self.cluster is not None else None,
        }

    async def reload(self) -> Sequence[str]:
        """Read passwords, ACL and certificates again; FlockError, and all stays as it was, when one can't be used."""
        for certificate in self._certificates:
            type(certificate)(certificate.settings)  # all of them are tried before one is changed
        reloaded = self._gate.reload() if self._gate is not None else []
        if self.tenants is not None:
            self.tenants.review_all()
        for certificate in self._certificates:
            certificate.reload()
        if self._certificates:
            reloaded.append("certificates")
        return reloaded

    async def stop(self) -> None:
        """Disconnect all clients and peers and close everything; fine to call after a start that failed."""
        if self.admin is not None:
            self.admin.mark_stopping()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                if self._runner is not None:
                    await self._runner.stop()
                if self.cluster is not None:
                    await self.cluster.stop()
                if self.admin is not None:
                    await self.admin.stop()
        except TimeoutError:
            self.log.event("warning", "stop_timed_out", seconds=STOP_S_MAX)
        if self._retained is not None:
            await self._retained.stop()
        if self._gate is not None:
            self._gate.close()
        if self._data_dir is not None:
            self._data_dir.close()
            self._data_dir = None

    def _warn(self) -> None:
        """Say what is probably not meant."""
        served = [Address(host, port) for one in self.listeners for host, port in one.addresses]
        for one in advice(self.config, served):
            self.log.event("warning", one.event, **one.fields, message=one.message)


def _has_files(config: Config) -> bool:
    security = config.security
    return bool(security.password_file or security.acl_file or security.has_jwt)


def knows_others(config: Config, data_dir: Path) -> bool:
    """Whether this node was told of other nodes: by people, by a plugin, or by its own memory."""
    cluster = config.cluster
    return bool(cluster.contact_points) or cluster.discovery != "manual" or (data_dir / PEERS_FILE).exists()


def _load_cluster() -> ModuleType:
    import flockmq.server.cluster

    return flockmq.server.cluster


def _load_admin_api() -> ModuleType:
    import flockmq.admin.api

    return flockmq.admin.api


async def _bind_admin(admin: AdminApi, addresses: Sequence[Address], tls: ssl.SSLContext | None) -> None:
    port = 0
    for address in addresses:
        try:
            await admin.start(address.host, address.port or port, tls)
        except FlockError:
            if not address.optional or not admin.addresses:
                raise
        port = admin.port


def _shown(addresses: Sequence[tuple[str, int]]) -> list[str]:
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses]
