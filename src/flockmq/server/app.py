"""The process's side of a node: its folder, its admin API, and the life that it leads (``life.py``).

```
 start   lock data folder --> finish a move that was noted --> a life: broker, cluster, listeners, and the admin API
 move    noted on disk --> the life ends --> the move is finished on disk --> the next life begins; the API stays
 stop    not ready --> the life ends --> admin API --> folder unlocked
 reload  passwords, ACL, certificates: all of them, or none and the reason why
```
A listener that was asked for must get its port or the start fails; one that is there by default gives way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq import __version__
from flockmq.config.bind import Address
from flockmq.drivers.clock import now_ms
from flockmq.errors import FlockError
from flockmq.security.tls import ServerTls
from flockmq.server.build import build_kind
from flockmq.server.check import advice
from flockmq.server.data_dir import MOVE_FILE, DataDir, open_data_dir
from flockmq.server.folder_trouble import is_trouble_with, why_unwritable
from flockmq.server.life import Life, open_life

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from flockmq.admin import model
    from flockmq.admin.api import AdminApi
    from flockmq.admin.desk import State
    from flockmq.admin.readiness import NodeFacts
    from flockmq.config.sections import Config
    from flockmq.drivers.listeners import Listener
    from flockmq.node.broker import Broker
    from flockmq.server.cluster import ClusterService
    from flockmq.server.log import Log

STOP_S_MAX: Final = 8.0
"""Longest stop; goodbyes to clients that don't read take two seconds of it."""


class Server:
    """A node. ``show_config`` gives the effective configuration, secrets blacked out, for the admin API."""

    def __init__(self, config: Config, log: Log, show_config: Callable[[], Mapping[str, object]] | None = None) -> None:
        self.config = config
        self.log = log
        self.life: Life | None = None
        self.admin: AdminApi | None = None
        self._show_config = show_config
        self._certificate: ServerTls | None = None
        self._data_dir: DataDir | None = None
        self._is_moving = False
        self.failure = ""
        """The reason why this node must end; empty while it serves."""
        self.failed = asyncio.Event()
        self._token_hash = ""
        """The hash of the admin token; empty until the API listens."""
        self._token_cluster = ""
        """The id of the cluster under which the user's copy of the token is kept."""

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that serve clients now."""
        return self.life.listeners if self.life is not None else []

    @property
    def cluster(self) -> ClusterService | None:
        """The cluster's side of this node; None while it has none."""
        return self.life.cluster if self.life is not None else None

    @property
    def broker(self) -> Broker:
        """The broker of this life."""
        assert self.life is not None
        return self.life.broker

    def fail(self, reason: str) -> None:
        """This node must end: note the reason, so that its process stops."""
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
        self._data_dir = open_data_dir(Path(self.config.data_dir))
        if (self._data_dir.path / MOVE_FILE).exists():
            from flockmq.server.move_note import finish_move

            finish_move(self._data_dir.path)
            self.log.event("info", "move_finished", message="This node was stopped on its way to another cluster.")
        self.life = await open_life(self.config, self._data_dir, self.log, self)
        await self.life.start(self._start_admin)

    async def restart(self, contact_points: tuple[str, ...]) -> tuple[ClusterService, str]:
        """End this life, finish the move that is noted, and begin the next life: its cluster's side, and where the
        store of the old life is now, if anywhere."""
        from flockmq.server.move_note import finish_move

        life, data_dir = self.life, self._data_dir
        assert life is not None
        assert data_dir is not None
        self._is_moving = True
        try:
            config = life.pinned()
            self.config = replace(config, cluster=replace(config.cluster, contact_points=contact_points))
            await life.stop()
            await life.close()
            gc.unfreeze()  # the collector may free the objects of the old life
            kept = await asyncio.to_thread(finish_move, data_dir.path)
            life = self.life = await open_life(self.config, data_dir, self.log, self)
            await life.start(_nothing_beside)
            assert life.cluster is not None
        except BaseException as error:
            text = f"This node was on its way to another cluster ({error!r}); restart it, then it is there."
            self.fail(text)
            raise FlockError(text) from error
        finally:
            self._is_moving = False
        data_dir.write_ports(self.ports())
        return life.cluster, kept or ""

    def started(self) -> None:
        """The cluster's side of this life runs."""
        self._tell_api()

    def belongs(self, cluster_id: str) -> None:
        """This node has come into a cluster: the user's copy of the admin token goes by its id."""
        if self.admin is not None and self._token_hash and cluster_id != self._token_cluster:
            from flockmq.security import credentials

            self._token_cluster = cluster_id
            credentials.recognise(self.admin_url, self._token_hash, cluster_id)

    def _facts(self, state: State) -> NodeFacts:
        """What this node tells probes about itself."""
        from flockmq.server.probing import node_facts

        return node_facts(
            state,
            is_clustered=self.config.cluster.enabled,
            cluster=self.cluster,
            is_moving=self._is_moving or (self.life is not None and self.life.broker.node.moving),
            has_unsaved=self.life is not None and self.life.retained is not None and bool(self.life.retained.problem),
        )

    async def _start_admin(self) -> None:
        plan = self.config.admin
        if plan is None:
            return
        # The API takes longer to load than all other parts; MQTT is served meanwhile.
        api = await asyncio.to_thread(_load_admin_api)
        assert self._data_dir is not None

        def verify(token: str) -> bool:
            from flockmq.server.token import accepts

            return accepts(token, self._token_hash, self.cluster.settings() if self.cluster is not None else {})

        ports = api.Ports(
            broker=lambda: self.broker,
            clock=now_ms,
            flush=self._flush,
            listeners=self.listener_models,
            config=self._shown_config if self._show_config is not None else None,
            reload=self.reload,
            log=self.log.event,
            find_cluster=lambda: self.cluster.view if self.cluster is not None else None,
            facts=self._facts,
        )
        node_info = api.NodeInfo(name=self.config.broker.node_name, version=__version__, build=build_kind())
        admin: AdminApi = api.AdminApi(node_info, ports, verify, allowed_hosts=plan.allowed_hosts)
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
        self._certificate = certificate
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
        if self.admin is None or not self.admin.addresses or self.cluster is None or not self._token_hash:
            return
        self.cluster.tell_api(self._admin_scheme, self.admin.addresses[0][1], self._token_hash)
        self.belongs(self.cluster.id_text())

    def _flush(self) -> None:
        if self.life is not None:
            self.life.runner.flush_soon()

    def _shown_config(self) -> Mapping[str, object]:
        """The configuration in force, with what came of values that depend on the machine."""
        shown = dict(self._show_config()) if self._show_config is not None else {}
        mqtt = shown.get("mqtt")
        if isinstance(mqtt, dict) and self.life is not None:
            shown["mqtt"] = {**mqtt, "connections_max": self.life.connections_max}
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
        life = self.life
        certificates = [*(life.certificates if life is not None else ())]
        if self._certificate is not None:
            certificates.append(self._certificate)
        for certificate in certificates:
            type(certificate)(certificate.settings)  # all of them are tried before one is changed
        reloaded = life.reload() if life is not None else []
        if self._certificate is not None:
            self._certificate.reload()
        if certificates:
            reloaded.append("certificates")
        return reloaded

    async def stop(self) -> None:
        """Disconnect all clients and peers and close everything; fine to call after a start that failed."""
        if self.admin is not None:
            self.admin.mark_stopping()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                if self.life is not None:
                    await self.life.stop()
                if self.admin is not None:
                    await self.admin.stop()
        except TimeoutError:
            self.log.event("warning", "stop_timed_out", seconds=STOP_S_MAX)
        if self.life is not None:
            await self.life.close()
        if self._data_dir is not None:
            self._data_dir.close()
            self._data_dir = None

    def _warn(self) -> None:
        """Log settings that are probably mistakes."""
        served = [Address(host, port) for one in self.listeners for host, port in one.addresses]
        for one in advice(self.config, served):
            self.log.event("warning", one.event, **one.fields, message=one.message)


async def _nothing_beside() -> None:
    """The admin API is there already."""


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
