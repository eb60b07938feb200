"""The identity of a node before it meets any other node: cookie, boot number, addresses, contacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq import __version__
from flockmq.discovery import registry
from flockmq.discovery.ports import Surroundings
from flockmq.discovery.settings import NoSettings
from flockmq.drivers.boot import next_boot
from flockmq.drivers.clock import wall_ms
from flockmq.drivers.links import LinkIdentity
from flockmq.gossip.member import CORE, EDGE, Member
from flockmq.peering.contact import parse_contact
from flockmq.peering.formation import Rules
from flockmq.security.cookie import load_cookie
from flockmq.security.link_tls import LinkTls, LinkTlsSettings
from flockmq.server.cluster_id import load_cluster_id
from flockmq.server.known_peers import KnownPeers, load_ballot
from flockmq.server.link_address import advertised_host, listening_host

if TYPE_CHECKING:
    from flockmq.config.sections import Config
    from flockmq.discovery.ports import Discovery
    from flockmq.server.data_dir import DataDir
    from flockmq.server.log import Log

CALLED_MAX: Final = 3
"""Most contact points that a message names."""


class Identity:
    """See the module. Reads the cookie and the data folder; FlockError when one can't be used."""

    def __init__(self, config: Config, data_dir: DataDir, log: Log) -> None:
        cluster = config.cluster
        self.config = cluster
        self.name = config.broker.node_name
        self.node_id = data_dir.node_id
        self.folder = data_dir.path
        self.cookie = load_cookie(cluster.cookie_file)
        if self.cookie.warning:
            log.event("warning", "cookie", message=self.cookie.warning)
        self.boot = next_boot(data_dir.path, wall_ms())
        self.cluster_id = load_cluster_id(data_dir.path)
        """The cluster that this node belongs to at its start; 0: none."""
        self.peers = KnownPeers(data_dir.path)
        self.known = [peer.contact for peer in self.peers.load()]
        if self.peers.trouble:
            log.event("warning", "peers_forgotten", message=self.peers.trouble)
        self.listens_on = listening_host(cluster, self.known)
        self.host = advertised_host(self.listens_on, cluster.advertise_host)
        self.points = tuple(parse_contact(point) for point in cluster.contact_points)
        self.has_others = bool(self.known or self.points or cluster.discovery != "manual")
        """Whether this node was told of others, by people, by its own memory or by a plugin that lists them."""
        self.ballot = load_ballot(data_dir.path)
        self._discovery_settings = config.discovery if config.discovery is not None else NoSettings()

    def contacts(self) -> list[tuple[str, int]]:
        """Addresses of all nodes that this one was told of."""
        return [(one.host, one.port) for one in [*self.points, *self.known]]

    def member(self) -> Member:
        """This node as the others see it."""
        role = EDGE if self.config.role == "edge" else CORE
        return Member(
            self.node_id, self.boot, self.name, self.host, self.config.port, 0, 0, __version__, role, self.cluster_id
        )

    def rules(self, discovery: Discovery) -> Rules:
        """How this node finds a cluster, or founds one."""
        return Rules(
            lists_peers=discovery.lists_peers,
            expect=self.config.bootstrap_expect,
            contact_points=len(self.points) + len(self.known),
            called=", ".join(str(one) for one in dict.fromkeys([*self.points, *self.known][:CALLED_MAX])),
            is_edge=self.config.role == "edge",
        )

    def discovery(self) -> Discovery:
        """The plugin that lists other nodes."""
        surroundings = Surroundings(
            node_id=self.node_id, node_name=self.name, cookie=self.cookie.value, contact_points=self.points
        )
        return registry.make(self.config.discovery, self._discovery_settings, surroundings)

    def link(self) -> LinkIdentity:
        """The handshake data of this node, for links that it opens or accepts."""
        return LinkIdentity(
            node_id=self.node_id,
            boot=self.boot,
            cookie=self.cookie.value,
            name=self.name,
            cluster_id=self.cluster_id,
            version=__version__,
        )

    def tls(self) -> LinkTls:
        """How links are encrypted."""
        cluster = self.config
        settings = LinkTlsSettings(
            link_tls=cluster.link_tls, ca_file=cluster.ca_file, cert_file=cluster.cert_file, key_file=cluster.key_file
        )
        return LinkTls(settings, self.cookie.value, self.node_id)
