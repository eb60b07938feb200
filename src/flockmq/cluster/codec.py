"""The whole cluster state as bytes: for checkpoints, for nodes that follow, and kept across restarts.

The same state is the same bytes on every node. Fields are only ever added at the end, with a default; ``FORMAT``
changes when that is not enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from flockmq.cluster.groups import ConsumerGroup
from flockmq.cluster.model import (
    AclRecord,
    BanRecord,
    ClientRecord,
    CursorRecord,
    Namespace,
    NodeRecord,
    Setting,
    TopicRecord,
    Versions,
)
from flockmq.cluster.tables import key_of
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.cluster.tables import Tables

FORMAT: Final = 1


class _Image(Struct, frozen=True, array_like=True):
    format: int
    cluster_id: int
    index: int
    versions: Versions
    next_group: int
    nodes: list[NodeRecord]
    namespaces: list[Namespace]
    clients: list[ClientRecord]
    acls: list[AclRecord]
    topics: list[TopicRecord]
    cursors: list[CursorRecord]
    settings: list[tuple[str, Setting]]
    bans: list[BanRecord] = []
    groups: list[ConsumerGroup] = []


class StateFormatError(FlockError):
    """The state is whole, and was written by a version that this one does not know."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Image)


def encode_tables(tables: Tables) -> bytes:
    """All of it."""
    return _encoder.encode(
        _Image(
            FORMAT,
            tables.cluster_id,
            tables.index,
            tables.versions,
            tables.next_group,
            list(tables.nodes.values()),
            list(tables.namespaces.values()),
            list(tables.clients.values()),
            list(tables.acls.values()),
            list(tables.topics.values()),
            list(tables.cursors.values()),
            list(tables.settings.items()),
            list(tables.bans.values()),
            list(tables.groups.values()),
        )
    )


def decode_tables(data: bytes, tables: Tables) -> None:
    """Fill empty tables with what was encoded; FlockError when that is damaged or of a newer version."""
    try:
        image = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FlockError(
            f"The stored cluster state can't be read ({error}); fetch it again from another node."
        ) from error
    if image.format != FORMAT:
        raise StateFormatError(
            f"The stored cluster state has the format {image.format}, this version reads {FORMAT}; run a newer version."
        )
    tables.cluster_id = image.cluster_id
    tables.index = image.index
    tables.versions = image.versions
    tables.next_group = image.next_group
    tables.nodes = {node.id: node for node in image.nodes}
    tables.namespaces = {namespace.name: namespace for namespace in image.namespaces}
    tables.clients = {key_of(client.namespace, client.name): client for client in image.clients}
    tables.acls = {acl.namespace: acl for acl in image.acls}
    tables.cursors = {key_of(cursor.namespace, cursor.name): cursor for cursor in image.cursors}
    tables.settings = dict(image.settings)
    tables.bans = {(ban.kind, ban.value): ban for ban in image.bans}
    tables.groups = {key_of(group.namespace, group.name): group for group in image.groups}
    for topic in image.topics:
        tables.keep_topic(topic)
