"""`etcd`: each node keeps a key under a lease; the keys below the prefix are the nodes.

```
 start -> grant a lease -> put PREFIX/nodes/ID = {"host", "port", "name"} --. every third of the lease:
                                     ^                                       | keep it alive; gone? grant and put anew
                                     '---------------------------------------'
 claim -> create PREFIX/cluster unless it is there: etcd itself decides which node formed the cluster
 stop  -> revoke the lease: the key vanishes at once
```
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from flockmq.discovery.etcd_api import EtcdApi
from flockmq.discovery.ports import Claim, DiscoveryError, Plugin, Surroundings
from flockmq.discovery.settings import EtcdSettings
from flockmq.discovery.web import Web, client_tls
from flockmq.errors import FlockError
from flockmq.peering.contact import Contact, make_contact
from flockmq.security.files import read_text


class Registration(msgspec.Struct, frozen=True):
    """What stands at a node's key."""

    host: str
    port: int
    name: str = ""


class ClaimText(msgspec.Struct, frozen=True):
    """What stands at the cluster's key; ids in hexadecimal."""

    cluster_id: str
    node_id: str


class EtcdDiscovery:
    """Nodes by their keys in etcd."""

    lists_peers = True

    def __init__(self, settings: EtcdSettings, surroundings: Surroundings) -> None:
        tls = None
        if any(endpoint.startswith("https://") for endpoint in settings.endpoints):
            tls = client_tls(settings.ca_file, settings.cert_file, settings.key_file)
        web = Web(tls, settings.timeout_ms)
        self._api = EtcdApi(web, settings.endpoints, settings.username, _password(settings))
        self._settings = settings
        self._prefix = settings.prefix.rstrip("/")
        self._node_id = surroundings.node_id
        self._node_name = surroundings.node_name
        self._lease = 0
        self._keeper: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why this node's key could not be renewed the last time; empty when it could."""

    async def start(self, me: Contact) -> None:
        """Write this node's key and keep it alive."""
        await self._register(me)
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(me))

    async def find(self) -> list[Contact]:
        """The nodes whose leases live; keys that no node wrote are passed over."""
        found = []
        for entry in await self._api.below(f"{self._prefix}/nodes/", self._settings.nodes_max):
            with suppress(msgspec.DecodeError, UnicodeDecodeError, FlockError):
                registration = msgspec.json.decode(entry.value, type=Registration)
                found.append(make_contact(registration.host, registration.port))
        return list(dict.fromkeys(found))

    async def claim(self, cluster_id: int) -> Claim:
        """Write the cluster's id unless etcd has one; a claim of this node from before a crash is still its own."""
        mine = ClaimText(f"{cluster_id:016x}", f"{self._node_id:016x}")
        key = f"{self._prefix}/cluster"
        value = await self._api.create(key, msgspec.json.encode(mine))
        try:
            found = msgspec.json.decode(value, type=ClaimText)
            return Claim(int(found.cluster_id, 16), mine=int(found.node_id, 16) == self._node_id)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            raise DiscoveryError(
                f"The key {key} in etcd holds no cluster id; delete it if no cluster uses this prefix, or set another "
                "discovery.etcd.prefix."
            ) from None

    async def stop(self) -> None:
        """Take this node's key away."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        if self._lease:
            with suppress(DiscoveryError):  # it runs out by itself
                await self._api.revoke(self._lease)
            self._lease = 0
        await self._api.close()

    async def _register(self, me: Contact) -> None:
        lease = await self._api.grant(self._settings.ttl_s)
        value = msgspec.json.encode(Registration(me.host, me.port, self._node_name))
        await self._api.put(f"{self._prefix}/nodes/{self._node_id:016x}", value, lease)
        self._lease = lease

    async def _keep(self, me: Contact) -> None:
        while True:
            await asyncio.sleep(self._settings.ttl_s / 3)
            try:
                if not await self._api.keep_alive(self._lease):
                    await self._register(me)
                self.trouble = ""
            except DiscoveryError as error:
                self.trouble = str(error)


def _password(settings: EtcdSettings) -> str:
    if not settings.password_file:
        return ""
    return read_text(Path(settings.password_file), "password file of etcd").partition("\n")[0].rstrip("\r")


PLUGIN: Final = Plugin(EtcdSettings, EtcdDiscovery)
