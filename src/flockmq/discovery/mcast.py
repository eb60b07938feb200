"""`mcast`: nodes of one network announce themselves every second; a node that proves the cookie is listed.

```
 every interval: announcement --> each group, each interface          datagrams --> Directory --> find()
 stop: "leaving", and the others forget this node at once
```
Nothing is ever answered, so a stranger's datagram costs one HMAC and changes nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from flockmq.discovery.announcement import HERE, LEAVING, Announcement, Directory, announcement_key, encode
from flockmq.discovery.mcast_sockets import Station, Stations, refresh
from flockmq.discovery.ports import DiscoveryError, Plugin, Surroundings
from flockmq.discovery.settings import McastSettings
from flockmq.errors import ConfigError

if TYPE_CHECKING:
    from flockmq.peering.contact import Contact

READS_MAX: Final = 64
"""Most datagrams taken at once: a flood must not keep the loop from its other work."""
REFRESH_ROUNDS: Final = 10
"""After so many announcements the interfaces of the machine are looked at again."""
_READ_BYTES: Final = 2_048


class McastDiscovery:
    """Nodes by their announcements."""

    lists_peers = True

    def __init__(self, settings: McastSettings, surroundings: Surroundings) -> None:
        if not surroundings.cookie:
            raise ConfigError('cluster.discovery is "mcast", which needs a cookie: --cookie-file or FLOCKMQ_COOKIE.')
        self._settings = settings
        self._node_id = surroundings.node_id
        self._wall_ms = surroundings.wall_ms
        self._key = announcement_key(surroundings.cookie)
        self.directory = Directory(
            self._key, self._node_id, settings.expiry_ms, settings.clock_skew_ms_max, settings.nodes_max
        )
        self._stations: Stations = {}
        self._me: Contact | None = None
        self._announcer: asyncio.Task[None] | None = None
        self._said_at_ms = 0
        self._first_round: asyncio.Event = asyncio.Event()

    async def start(self, me: Contact) -> None:
        """Join the groups and announce this node."""
        if self._stations:
            return
        self._me = me
        self._refresh()
        if not self._say(HERE):
            await self.stop()
            raise DiscoveryError("Announcements can't be sent on any network interface; check that one of them is up.")
        self._announcer = asyncio.create_task(self._announce())

    async def find(self) -> list[Contact]:
        """The nodes that were heard. The first listing waits until others had the time to speak."""
        if not self._stations:
            raise DiscoveryError("Multicast has not been started.")
        await self._first_round.wait()
        return self.directory.contacts(_now_ms())

    async def stop(self) -> None:
        """Say goodbye and close the sockets."""
        if self._announcer is not None:
            self._announcer.cancel()
            with suppress(asyncio.CancelledError):
                await self._announcer
            self._announcer = None
            self._say(LEAVING)
        self._close(self._stations)
        self._stations = {}
        self._first_round.clear()

    async def _announce(self) -> None:
        """Two intervals pass before the first listing: then every running node has announced itself at least once."""
        rounds = 0
        while True:
            await asyncio.sleep(self._settings.interval_ms / 1000)
            self._say(HERE)
            rounds += 1
            if rounds == 2:
                self._first_round.set()
            if rounds % REFRESH_ROUNDS == 0:
                with suppress(DiscoveryError):  # no interface at the moment
                    self._refresh()

    def _refresh(self) -> None:
        settings = self._settings
        new, gone = refresh(self._stations, settings.groups, settings.port, settings.interfaces)
        self._close(gone)
        self._stations = {key: station for key, station in self._stations.items() if key not in gone} | new
        loop = asyncio.get_running_loop()
        for station in new.values():
            loop.add_reader(station.hearing.fileno(), self._hear, station)

    def _close(self, stations: Stations) -> None:
        loop = asyncio.get_running_loop()
        for station in stations.values():
            loop.remove_reader(station.hearing.fileno())
            station.close()

    def _say(self, kind: int) -> int:
        assert self._me is not None
        self._said_at_ms = max(self._wall_ms(), self._said_at_ms + 1)  # clocks are set back; time in here is not
        datagram = encode(self._key, Announcement(kind, self._node_id, self._said_at_ms, self._me))
        return sum(station.send(datagram) for station in self._stations.values())

    def _hear(self, station: Station) -> None:
        now_ms, wall_ms = _now_ms(), self._wall_ms()
        for _ in range(READS_MAX):
            try:
                datagram = station.hearing.recv(_READ_BYTES)
            except OSError:
                return
            self.directory.hear(datagram, now_ms, wall_ms)


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000


PLUGIN: Final = Plugin(McastSettings, McastDiscovery)
