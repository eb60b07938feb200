"""The sections of a configuration as frozen values: what can be set, its default, and what it trades.

``[mqtt]`` and ``[limits]`` are the broker's own ``BrokerSettings`` and ``Limits``, ``[store]`` the log's
``StoreSettings``, ``[security]`` the gate's ``SecuritySettings``; here stand the rest and ``Config``, which holds all
of them, checked against each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flockmq.cluster.policy import AUTOCLEAN_MS
from flockmq.gossip.settings import PROFILES
from flockmq.log.settings import StoreSettings
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.security.settings import SecuritySettings
from flockmq.security.tls import CIPHERS, TlsSettings

if TYPE_CHECKING:
    from flockmq.config.bind import Address

LISTENER_KINDS: Final = ("tcp", "tls", "ws", "wss")
TLS_KINDS: Final = ("tls", "wss")
WEBSOCKET_KINDS: Final = ("ws", "wss")
DEFAULT_BINDS: Final = {"tcp": ":1883", "tls": ":8883", "ws": ":8083", "wss": ":8084"}
CLIENT_CERTIFICATES: Final = ("off", "optional", "required")
PROXY_VERSIONS: Final = ("off", "v1", "v2", "any")
TLS_VERSIONS: Final = ("1.2", "1.3")
LINK_TLS: Final = ("auto", "on", "off")
ROLES: Final = ("core", "edge")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("auto", "console", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The name of this node and where it keeps its files."""

    name: str = ""
    """Name as ``name@host``, in logs, metrics and ``$SYS`` topics. Empty: ``flockmq@127.0.0.1``, with the MQTT port in
    it when that is not 1883, so that several brokers on one machine differ without a flag."""
    data_dir: str = ""
    """Folder of this node alone; a second broker in it is refused. Empty: ``flockmq/NAME`` in the user's data folder
    (``$XDG_DATA_HOME``, else ``~/.local/share``), which suits trying things out more than a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """How this node meets others and becomes one broker with them. A node that meets no other is a cluster of one."""

    enabled: bool = True
    """Whether to talk to other nodes at all. Without it the port for nodes stays closed and this broker is alone."""
    host: str = ""
    """Address or name to listen on for other nodes, TCP and UDP; ``*`` is every address; ``--host`` sets it, too.
    Empty: 127.0.0.1, until other machines are spoken of by ``advertise_host``, ``contact_points``, ``discovery``, or a
    node of another machine that this one met before; then every address. The cookie is asked for on all of them."""
    advertise_host: str = ""
    """Address or name that other nodes reach this one by. Empty: the address that is listened on, or, where that is
    every one, the name that the operating system reports for this machine. Set it in containers and behind address
    translation."""
    port: int = 16_000
    """Port for other nodes, TCP and UDP. 0 takes a free one."""
    role: str = field(default="core", metadata={"choices": ROLES})
    """``core`` nodes keep data and vote; ``edge`` nodes only hold clients, so that they can come and go quickly."""
    discovery: str = "manual"
    """How other nodes are found: ``manual`` (by ``--join`` and ``flockmq cluster join``), ``static``, ``mcast``,
    ``dns``, ``etcd``, ``k8s``, or a plugin's name. Each has its options in ``[discovery.NAME]``."""
    contact_points: tuple[str, ...] = ()
    """Nodes to call at start, as ``host:port``; any one of the cluster will do. ``--join`` sets them."""
    bootstrap_expect: int = 0
    """How many nodes must see each other before they form a new cluster, where discovery lists nodes by itself. More
    than half of the nodes that you start makes two clusters by accident impossible. 0: never form one there."""
    profile: str = field(default="lan", metadata={"choices": tuple(PROFILES)})
    """How patient nodes are with each other: ``lan``, ``wan`` (slow round trips) or ``local`` (one machine)."""
    zone: str = ""
    """What this node shares with others that would fail together: a rack, a room, a data centre. Replicas of a
    partition are put into as many zones as there are."""
    autoclean_ms: int = AUTOCLEAN_MS
    """A node that has been dead for so long is taken for lost: it loses its vote, and its replicas are rebuilt on other
    nodes. If it comes back it is welcome as a new one. 0: never; the cluster's own setting of this name goes before."""
    cookie_file: str = ""
    """File with the secret that all nodes of a cluster share; only its user should be able to read it. Empty: the
    variable ``FLOCKMQ_COOKIE``, else the user's own file, which the first node makes."""
    link_tls: str = field(default="auto", metadata={"choices": LINK_TLS, "aliases": {"true": "on", "false": "off"}})
    """TLS 1.3 between nodes: ``auto`` everywhere but on loopback, ``on``, or ``off`` in a network that does it itself.
    Nodes prove the cookie to each other either way."""
    ca_file: str = ""
    """Own certificate authority for links between nodes, in PEM; with ``cert_file`` and ``key_file``. Empty: nodes
    sign their certificates with a key that only nodes with the cookie have."""
    cert_file: str = ""
    """Certificate of this node for links, signed by ``ca_file``."""
    key_file: str = ""
    """Private key of ``cert_file``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedConfig:
    """Retained messages; how many there may be is in ``[mqtt]``."""

    persist: bool = True
    """Whether they are kept in the data folder (``retained.db``) and are there again after a restart. Without it they
    live as long as the process, or on the other nodes of a cluster. ``edge`` nodes keep none on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The certificate of all ``tls`` and ``wss`` listeners that bring none of their own."""

    cert_file: str = ""
    """Certificate chain in PEM. Once set, MQTTS on 8883 and WSS on 8084 are served too."""
    key_file: str = ""
    """Private key in PEM, of ``cert_file``. Only the broker's user should be able to read it."""
    key_password_file: str = ""
    """File with the password of an encrypted private key."""
    ca_file: str = ""
    """Authorities that client certificates must come from, in PEM."""
    client_certificates: str = field(default="off", metadata={"choices": CLIENT_CERTIFICATES})
    """Whether clients prove themselves by certificate: ``off``, ``optional`` or ``required``. A verified common
    name becomes the user name; ``required`` keeps strangers out before they can send a byte of MQTT."""
    version_min: str = field(default="1.2", metadata={"choices": TLS_VERSIONS})
    """Oldest TLS version spoken. ``1.3`` is safer and shuts out older devices."""
    ciphers: str = CIPHERS
    """TLS 1.2 cipher suites in OpenSSL's notation; the default has forward secrecy only. TLS 1.3 has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One listener, as ``[listeners.KIND.NAME]`` describes it; KIND is ``tcp``, ``tls``, ``ws`` or ``wss``."""

    bind: tuple[str, ...] = ()
    """Addresses as ``host:port``; ``*:1883`` is every address, ``localhost:1883`` this machine. Without a host
    (``:1883``) it is every address when clients must authenticate and this machine when ``security.allow_anonymous``
    is set. Port 0 takes any free port. The listeners called ``default`` have the well-known ports."""
    namespace: str = "default"
    """The namespace of clients that name none: with ``acme`` here user ``bob`` is ``acme/bob``. A client that
    writes a namespace before the user name (``umbrella/bob``) is in that one, on any listener."""
    enabled: bool = True
    """Whether to listen at all; false switches a listener off without losing its settings."""
    proxy_protocol: str = field(
        default="off", metadata={"choices": PROXY_VERSIONS, "aliases": {"true": "any", "false": "off"}}
    )
    """Which PROXY protocol header every connection must begin with: ``off``, ``v1``, ``v2`` or ``any``. The client
    address in it is believed, so it is only for listeners that only the load balancer can reach."""
    path: str = "/mqtt"
    """Path of WebSocket requests (``ws`` and ``wss``)."""
    origins: tuple[str, ...] = ()
    """Origins whose web pages may connect (``ws`` and ``wss``), like ``https://shop.example``, or a host alone for any
    scheme and port of it. Empty lets all of them when clients must authenticate, and pages of this machine (localhost)
    when ``security.allow_anonymous``. Set it where browsers hold credentials, so that a foreign page can't use them."""
    cert_file: str = ""
    """Certificate chain in PEM; empty takes that of ``[tls]``."""
    key_file: str = ""
    """Private key in PEM; empty takes that of ``[tls]``."""
    key_password_file: str = ""
    """File with the password of ``key_file``, if that is encrypted."""
    ca_file: str = ""
    """Authorities that client certificates must come from; empty takes that of ``[tls]``."""
    client_certificates: str = field(default="", metadata={"choices": ("", *CLIENT_CERTIFICATES)})
    """``off``, ``optional`` or ``required``; empty takes that of ``[tls]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """The admin API over HTTP: REST, metrics and health."""

    enabled: bool = True
    """Whether to serve it. Without it the command line can't reach this broker and metrics can't be scraped."""
    bind: tuple[str, ...] = ("localhost:18083",)
    """Addresses as ``host:port``. Without ``tls`` it speaks plain HTTP with a token: give it a wider address only in a
    network that you trust, or behind a proxy that does TLS."""
    tls: bool = False
    """Whether it speaks HTTPS, and nothing else, with the certificate of ``[tls]``. Callers show a token, never a
    certificate. Set it on all nodes of a cluster: clients that came by HTTPS don't follow an answer to plain HTTP."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that requests may call the API by, besides addresses and ``localhost``. On loopback a foreign name gets in
    only if it stands here: it is how a web page would reach for the API through a browser on this machine."""
    token_file: str = ""
    """File whose first line is the token that API calls must bring. Empty: the broker mints one on its first start and
    leaves it in the credentials file of the user that started it (mode 0600)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Structured logs on standard error, one line an event."""

    level: str = field(default="info", metadata={"choices": LOG_LEVELS})
    """Least level that is written: ``debug``, ``info``, ``warning`` or ``error``. ``info`` has a line for every
    client that comes or goes, which costs CPU when thousands do; a ``warning`` means that an operator should look."""
    format: str = field(default="auto", metadata={"choices": LOG_FORMATS})
    """``json`` for programs, ``console`` for people, ``auto``: console on a terminal, else JSON."""
    queue_events_max: int = 10_000
    """Most events waiting to be written. When standard error is read too slowly, further ones are dropped and counted:
    the log may lose lines, the broker never waits for it."""
    events_per_s_max: int = 1_000
    """Most lines a second; beyond it lines below ``warning`` are dropped and counted. 0 means no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener, ready to be opened: addresses resolved, limits merged, files named."""

    kind: str
    name: str
    addresses: tuple[Address, ...]
    limits: Limits
    proxy_protocol: str
    path: str
    origins: tuple[str, ...]
    tls: TlsSettings | None
    namespace: str
    asked_for: bool
    """Whether the user named it; a default listener gives way when its port is taken."""

    @property
    def key(self) -> str:
        """Its name in logs, metrics and ACL context, like ``tcp:default``."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The admin API, ready to be opened."""

    addresses: tuple[Address, ...]
    allowed_hosts: tuple[str, ...]
    token_file: str
    tls: TlsSettings | None
    """None: plain HTTP."""
    asked_for: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration, checked; ``admin`` is None when the API is switched off."""

    data_dir: str
    broker: BrokerSettings
    listeners: tuple[Listener, ...]
    security: SecuritySettings
    admin: Admin | None
    log: LogConfig
    retained: RetainedConfig
    store: StoreSettings
    cluster: ClusterConfig
    discovery: object
    """Options of the discovery plugin; None: it has none here."""
    cluster_asked_for: bool
    """Whether the user said anything about it; if not, it gives way when its port is taken."""
    notes: tuple[str, ...] = ()
    """What to tell about the environment: variables that look like settings and are none."""
