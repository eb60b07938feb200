"""Builds ``Config`` out of values: fills in defaults that follow other settings and refuses contradictions.

A value that follows from another (a queue must hold the largest packet) is adjusted when it is a default and refused
when it was set: no setting is overruled in silence.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flockmq.cluster.checks import NAME_PATTERN
from flockmq.config.bind import addresses, split_bind
from flockmq.config.sections import (
    TLS_KINDS,
    WEBSOCKET_KINDS,
    Admin,
    ClusterConfig,
    Config,
    Listener,
    LogConfig,
    RetainedConfig,
)
from flockmq.discovery.settings import SECTIONS as DISCOVERY_SECTIONS
from flockmq.errors import ConfigError, FlockError
from flockmq.log.settings import StoreSettings
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.peering.contact import parse_contact
from flockmq.raft.settings import RaftSettings
from flockmq.raft.turn import turn_bytes_max
from flockmq.security.settings import SecuritySettings
from flockmq.security.tls import TlsSettings

if TYPE_CHECKING:
    from flockmq.config.values import Values

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*@[A-Za-z0-9_.:\[\]-]+")
_LISTENER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NAMESPACE_NAME: Final = re.compile(NAME_PATTERN)
_MUST_HOLD_A_PACKET: Final = ("queue_bytes_max", "write_bytes_max")
_KEY_PAIR: Final = ("cert_file", "key_file", "key_password_file")
_TLS_KEYS: Final = (*_KEY_PAIR, "ca_file", "client_certificates")
LOCAL_ORIGINS: Final = ("localhost", "127.0.0.1", "[::1]")
"""Origins of pages that may connect to a broker without authentication: else any page in a browser here could."""
_WEBSOCKET_KEYS: Final = ("path", "origins")


def build(values: Values) -> Config:
    """The checked configuration; ConfigError names the keys that don't go together."""
    _check_files(values)
    security = SecuritySettings(**values.section(("security",)))
    listeners = tuple(_listeners(values, anonymous=security.allow_anonymous))
    if not listeners:
        raise ConfigError(
            "Every listener is switched off; enable one, for example listeners.tcp.default.enabled = true."
        )
    admin = _admin(values)
    _check_addresses(listeners, admin)
    name = _node_name(values)
    settings = values.section(("mqtt",))
    return Config(
        data_dir=values.value(("node", "data_dir")).value or str(_default_data_dir() / name),
        broker=BrokerSettings(node_name=name, limits=_limits(values, ("limits",)), **settings),
        listeners=listeners,
        security=security,
        admin=admin,
        log=LogConfig(**values.section(("log",))),
        retained=RetainedConfig(**values.section(("retained",))),
        store=_store(values),
        cluster=_cluster(values),
        discovery=_discovery(values),
        cluster_asked_for=any(path[0] == "cluster" and path[1] != "host" for path in values.given),
    )


def _store(values: Values) -> StoreSettings:
    store = StoreSettings(**values.section(("store",)))
    turn = turn_bytes_max(RaftSettings())
    if store.journal_bytes < store.commit_bytes + turn:
        raise ConfigError(
            f"store.journal_bytes is {store.journal_bytes:,}: a journal file must hold store.commit_bytes and {turn:,} "
            f"bytes more, the most that consensus adds at once; set at least {store.commit_bytes + turn:,}."
        )
    return store


def _discovery(values: Values) -> object:
    """The options of the plugin that ``cluster.discovery`` names; None for one that has no section here."""
    name: str = values.value(("cluster", "discovery")).value
    section = DISCOVERY_SECTIONS.get(name)
    return None if section is None else section(**values.section(("discovery", name)))


def _cluster(values: Values) -> ClusterConfig:
    cluster = ClusterConfig(**values.section(("cluster",)))
    for point in cluster.contact_points:
        try:
            parse_contact(point)
        except FlockError as error:
            raise ConfigError(f"cluster.contact_points: {error}") from None
    files = {"ca_file": cluster.ca_file, "cert_file": cluster.cert_file, "key_file": cluster.key_file}
    missing = [name for name, file in files.items() if not file]
    if 0 < len(missing) < len(files):
        raise ConfigError(
            f"cluster has an own certificate, but no {' and no '.join(missing)}; set ca_file, cert_file and key_file."
        )
    return cluster


def _node_name(values: Values) -> str:
    name: str = values.value(("node", "name")).value
    if not name:
        binds = values.value(("listeners", "tcp", "default", "bind")).value
        port = split_bind(binds[0])[1] if binds else 1883
        return "flockmq@127.0.0.1" if port == 1883 else f"flockmq-{port}@127.0.0.1"
    if not _NODE_NAME.fullmatch(name):
        raise ConfigError(f"node.name can't be {name!r}; write it as name@host, like n1@127.0.0.1.")
    return name


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path("~/.local/share").expanduser()) / "flockmq"


def _limits(values: Values, *sections: tuple[str, ...]) -> Limits:
    """Limits of the last section over those before it."""
    merged: dict[str, Any] = values.section(sections[0])
    given = {path[-1] for path in values.given if path[:-1] == sections[0]}
    for section in sections[1:]:
        own = {path[-1]: value.value for path, value in values.given.items() if path[:-1] == section}
        merged |= own
        given |= own.keys()
    name = ".".join(sections[-1])
    packet = merged["packet_bytes_max"]
    for key in _MUST_HOLD_A_PACKET:
        if 0 < merged[key] < packet:
            if key in given:
                raise ConfigError(
                    f"{name}.{key} ({merged[key]}) is less than packet_bytes_max ({packet}), so that a packet which "
                    f"the broker accepts could never be delivered; raise {key} or lower packet_bytes_max."
                )
            merged[key] = packet
    return Limits(**merged)


def _listeners(values: Values, *, anonymous: bool) -> list[Listener]:
    found = []
    for kind, name in values.listeners():
        path = ("listeners", kind, name)
        dotted = ".".join(path)
        if not _LISTENER_NAME.fullmatch(name):
            raise ConfigError(f"{dotted}: a listener's name has letters, digits, - and _ only.")
        own = values.section(path)
        asked_for = path in values.asked_for
        tls = _tls(values, kind, dotted, own)
        if not own["enabled"] or (kind in TLS_KINDS and tls is None and not asked_for):
            continue
        if kind in TLS_KINDS and tls is None:
            raise ConfigError(f"{dotted} needs a certificate; set cert_file and key_file, there or in [tls].")
        if not own["bind"]:
            raise ConfigError(f'{dotted} has no address; set {dotted}.bind, for example "*:1884".')
        if kind in WEBSOCKET_KINDS and not own["path"].startswith("/"):
            raise ConfigError(f"{dotted}.path can't be {own['path']!r}; it begins with a slash, like /mqtt.")
        for key in _WEBSOCKET_KEYS:
            if kind not in WEBSOCKET_KINDS and (*path, key) in values.given:
                raise ConfigError(
                    f"{dotted}.{key} is for WebSocket listeners (ws, wss); remove it, or use another kind."
                )
        try:
            where = addresses(own["bind"], anonymous=anonymous)
        except ConfigError as error:
            raise ConfigError(f"{dotted}.bind: {error}.") from None
        found.append(
            Listener(
                kind=kind,
                name=name,
                addresses=where,
                limits=_limits(values, ("limits",), (*path, "limits")),
                proxy_protocol=own["proxy_protocol"],
                path=own["path"],
                origins=own["origins"] or (LOCAL_ORIGINS if anonymous else ()),
                tls=tls,
                namespace=_namespace(dotted, own["namespace"]),
                asked_for=asked_for or kind == "tcp",
            )
        )
    return found


def _namespace(dotted: str, name: str) -> str:
    if not _NAMESPACE_NAME.fullmatch(name):
        raise ConfigError(
            f"{dotted}.namespace can't be {name!r}; a namespace's name has letters, digits and _ . @ : ~ = - only."
        )
    return name


def _tls(values: Values, kind: str, dotted: str, own: dict[str, Any]) -> TlsSettings | None:
    """What a listener's TLS is made of; None without a certificate."""
    if kind not in TLS_KINDS:
        for key in _TLS_KEYS:
            if own[key]:
                raise ConfigError(f"{dotted}.{key} is for TLS listeners (tls, wss); remove it, or use another kind.")
        return None
    shared = values.section(("tls",))
    if own["cert_file"]:  # a certificate and its key come from the same place
        shared |= dict.fromkeys(_KEY_PAIR, "")
    merged = TlsSettings(**shared | {key: own[key] or shared[key] for key in _TLS_KEYS})
    if bool(merged.cert_file) != bool(merged.key_file):
        has, lacks = ("cert_file", "key_file") if merged.cert_file else ("key_file", "cert_file")
        raise ConfigError(f"{dotted} has a {has} and no {lacks}; set both, there or in [tls].")
    if not merged.cert_file:
        return None
    if merged.client_certificates != "off" and not merged.ca_file:
        raise ConfigError(
            f"{dotted}.client_certificates is {merged.client_certificates!r} and no ca_file says whose certificates "
            "to believe; set ca_file."
        )
    return merged


def _admin(values: Values) -> Admin | None:
    own = values.section(("admin",))
    if not own["enabled"]:
        return None
    if not own["bind"]:
        raise ConfigError(
            'admin.bind is empty; give it an address, like "localhost:18083", or set admin.enabled = false.'
        )
    try:
        where = addresses(own["bind"], anonymous=True)  # without a host: this machine only, whatever MQTT does
    except ConfigError as error:
        raise ConfigError(f"admin.bind: {error}.") from None
    return Admin(
        addresses=where,
        allowed_hosts=own["allowed_hosts"],
        token_file=own["token_file"],
        tls=_admin_tls(values) if own["tls"] else None,
        asked_for=("admin",) in values.asked_for,
    )


def _admin_tls(values: Values) -> TlsSettings:
    # Callers of the API prove themselves by a token, whatever MQTT clients have to show.
    shared = values.section(("tls",)) | {"client_certificates": "off", "ca_file": ""}
    for key in _KEY_PAIR[:2]:
        if not shared[key]:
            raise ConfigError(f"admin.tls needs a certificate; set cert_file and key_file in [tls]: {key} is missing.")
    return TlsSettings(**shared)


def _check_addresses(listeners: tuple[Listener, ...], admin: Admin | None) -> None:
    users: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    claims = [(f"listeners.{one.kind}.{one.name}", one.addresses) for one in listeners]
    claims += [("admin", admin.addresses)] if admin else []
    for name, claimed in claims:
        for address in claimed:
            if address.port:
                users[address.host, address.port].append(name)
    for (host, port), names in users.items():
        if len(names) > 1:
            raise ConfigError(f"{' and '.join(names)} both want {host} port {port}; give one of them another port.")


def _check_files(values: Values) -> None:
    """Every file that a setting names must be readable; better said at once than at the first login."""
    problems = []
    for path, value in values.given.items():
        if path[-1].endswith("_file") and value.value:
            try:
                with Path(value.value).open("rb"):
                    pass
            except OSError as error:
                problems.append(
                    f"{'.'.join(path)} names {value.value}, which can't be read ({error.strerror}); "
                    f"it was set by {value.origin}."
                )
    if problems:
        raise ConfigError("\n".join(problems))
