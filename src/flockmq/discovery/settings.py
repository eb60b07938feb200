"""What can be set about each way to find other nodes: the sections ``[discovery.NAME]`` of a configuration.

Plain on purpose, so that reading a configuration imports no plugin and none of their libraries. Which plugin is used
stands in ``cluster.discovery``; ``manual`` and ``static`` have nothing of their own, they take
``cluster.contact_points``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from flockmq.errors import ConfigError

DNS_RECORDS: Final = ("A", "AAAA", "SRV")
ADDRESS_TYPES: Final = ("", "IPv4", "IPv6", "FQDN")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSettings:
    """Nothing to set here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McastSettings:
    """Nodes of one network announce themselves by multicast; announcements prove the cookie."""

    groups: tuple[str, ...] = ("239.255.160.0", "ff12::f10c")
    """Multicast groups, IPv4 and IPv6. Families that this machine does not have are skipped. Clusters with different
    cookies can share a group: they don't hear each other."""
    port: int = 15_999
    """UDP port of the announcements. Not the port that nodes listen on for each other."""
    interfaces: tuple[str, ...] = ()
    """Names of the network interfaces to announce on, like ``eth0``. Empty: all of them. Name one where machines
    stand in several networks and nodes can't reach each other in all of these."""
    interval_ms: int = 1_000
    """Gap between announcements. Shorter finds nodes sooner; each costs about 100 bytes per interface and group."""
    expiry_ms: int = 10_000
    """How long a node is listed after its last announcement. Several times ``interval_ms``, as datagrams get lost."""
    clock_skew_ms_max: int = 300_000
    """Announcements whose time is further from this machine's clock are refused as repeats of old ones."""
    nodes_max: int = 1_000
    """Most nodes remembered; further ones are not listed."""

    def __post_init__(self) -> None:
        _check_numbers("mcast", self)
        for group in self.groups:
            try:
                right = ip_address(group).is_multicast
            except ValueError:
                right = False
            if not right:
                raise ConfigError(f"discovery.mcast.groups holds {group!r}, which is not a multicast address.")
        if not self.groups:
            raise ConfigError("discovery.mcast.groups is empty; name a multicast address, or leave the setting out.")
        if self.expiry_ms <= self.interval_ms:
            raise ConfigError("discovery.mcast.expiry_ms must be longer than interval_ms, or nodes vanish in between.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsSettings:
    """A DNS name stands for all nodes."""

    name: str = ""
    """The name to ask for: a host name with one address per node, or for SRV like ``_flockmq._tcp.example.org``."""
    record: str = field(default="A", metadata={"choices": DNS_RECORDS})
    """``A`` or ``AAAA``: an address per node, all on the same port. ``SRV``: host and port of each node. One kind only,
    so that a node is not listed twice."""
    port: int = 16_000
    """Port of the nodes (``A`` and ``AAAA``; SRV records bring their own)."""
    nameservers: tuple[str, ...] = ()
    """DNS servers as addresses with an optional port, like ``192.0.2.53`` or ``127.0.0.1:5353``. Empty: those of the
    system (``/etc/resolv.conf``), with its search domains. They are asked for the targets of SRV records, too."""
    timeout_ms: int = 5_000
    """Longest wait for an answer, over all servers and tries."""

    def __post_init__(self) -> None:
        _check_numbers("dns", self)
        if self.record not in DNS_RECORDS:
            raise ConfigError(f"discovery.dns.record is {self.record!r}; it is one of {', '.join(DNS_RECORDS)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """Nodes register in etcd (v3) under a lease, through the JSON gateway that every etcd has on its client port."""

    endpoints: tuple[str, ...] = ("http://127.0.0.1:2379",)
    """URLs of etcd's client port, tried in order until one answers. Write ``https://`` wherever others are on the line:
    a writer below ``prefix`` can't get into the cluster without the cookie, but can hide its nodes from each
    other."""
    prefix: str = "/flockmq"
    """Keys of this cluster begin so: ``PREFIX/nodes/ID`` for each node, and ``PREFIX/cluster``, written once by the
    node that forms the cluster. Clusters that share an etcd need different prefixes."""
    ttl_s: int = 30
    """Lease of a node's key: a node that vanished is listed for as long. Renewed three times within it."""
    username: str = ""
    """User of etcd, where it asks for one."""
    password_file: str = ""
    """File whose first line is that user's password."""
    ca_file: str = ""
    """Authorities that etcd's certificate must come from, in PEM. Empty: those of the system."""
    cert_file: str = ""
    """Certificate of this node for etcd, in PEM, where it asks for one."""
    key_file: str = ""
    """Private key of ``cert_file``."""
    timeout_ms: int = 5_000
    """Longest wait for one answer of one endpoint."""
    nodes_max: int = 1_000
    """Most nodes read from etcd."""

    def __post_init__(self) -> None:
        _check_numbers("etcd", self)
        for endpoint in self.endpoints:
            if not _is_url(endpoint, "http", "https"):
                raise ConfigError(
                    f"discovery.etcd.endpoints holds {endpoint!r}; write a URL like https://etcd.example:2379."
                )
        if not self.endpoints:
            raise ConfigError("discovery.etcd.endpoints is empty; name a URL like https://etcd.example:2379.")
        if not self.prefix.strip("/"):
            raise ConfigError("discovery.etcd.prefix is empty; name a place for this cluster's keys, like /flockmq.")
        if bool(self.password_file) != bool(self.username):
            raise ConfigError("discovery.etcd needs both username and password_file, or neither.")
        _check_pair("etcd", self.cert_file, self.key_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class K8sSettings:
    """The endpoints of a Kubernetes service, read from the API with the pod's own token."""

    service: str = "flockmq"
    """Name of the (headless) service whose pods are the nodes. The pod's service account must be allowed to ``list``
    ``endpointslices`` of ``discovery.k8s.io`` in the namespace."""
    namespace: str = ""
    """Namespace of that service. Empty: the pod's own."""
    port_name: str = "cluster"
    """Name of the service's port that nodes listen on for each other."""
    port: int = 16_000
    """Port to take where the service has none of that name."""
    address_type: str = field(default="", metadata={"choices": ADDRESS_TYPES})
    """Which addresses to take: ``IPv4``, ``IPv6`` or ``FQDN``. Empty: one of each pod, IPv4 first."""
    ready_only: bool = False
    """List only pods that are ready. A node becomes ready by joining, so this is for clusters that exist already."""
    api_url: str = ""
    """URL of the API server. Empty: the one that Kubernetes tells pods by environment variables."""
    account_dir: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Folder with ``token``, ``ca.crt`` and ``namespace``, as Kubernetes gives it to pods."""
    token_file: str = ""
    """Token to show to the API. Empty: ``token`` in ``account_dir``. Read anew each time, as Kubernetes replaces it."""
    ca_file: str = ""
    """Authorities that the API's certificate must come from. Empty: ``ca.crt`` in ``account_dir``."""
    timeout_ms: int = 5_000
    """Longest wait for one answer of the API."""
    nodes_max: int = 1_000
    """Most nodes read from the API."""

    def __post_init__(self) -> None:
        _check_numbers("k8s", self)
        if self.address_type not in ADDRESS_TYPES:
            raise ConfigError(f"discovery.k8s.address_type is {self.address_type!r}; it is IPv4, IPv6, FQDN or empty.")
        if self.api_url and not _is_url(self.api_url, "https"):
            raise ConfigError(
                f"discovery.k8s.api_url is {self.api_url!r}; it must begin with https://, as a token is sent there."
            )
        if not self.service:
            raise ConfigError("discovery.k8s.service is empty; name the service whose pods are the nodes.")


SECTIONS: Final[dict[str, type]] = {
    "mcast": McastSettings,
    "dns": DnsSettings,
    "etcd": EtcdSettings,
    "k8s": K8sSettings,
}
"""Sections ``[discovery.NAME]`` of the plugins that come with FlockMQ."""


def _check_numbers(plugin: str, settings: object) -> None:
    for item in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, item.name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        most = 65_535 if item.name == "port" else 2**31
        if not 1 <= value <= most:
            raise ConfigError(f"discovery.{plugin}.{item.name} is {value}; it must be from 1 to {most}.")


def _is_url(text: str, *schemes: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_pair(plugin: str, cert_file: str, key_file: str) -> None:
    if bool(cert_file) != bool(key_file):
        raise ConfigError(f"discovery.{plugin} needs both cert_file and key_file, or neither.")
