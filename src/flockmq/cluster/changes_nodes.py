"""Commands about the cluster itself: its id, its nodes, its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from flockmq.cluster.checks import (
    ID_MAX,
    NODES_MAX,
    SETTING_CHARACTERS_MAX,
    SETTINGS_MAX,
    check_id,
    check_name,
    check_number,
    check_text,
)
from flockmq.cluster.commands import CONFLICT, INVALID, LIMIT, NOT_FOUND, RefusedError
from flockmq.cluster.model import ALIVE, CORE, LEFT, NodeRecord
from flockmq.cluster.tables import PARTITIONS_MAX_SETTING

RETIRED_MAX: Final = 64
"""Stores of a node that are remembered as replaced."""

if TYPE_CHECKING:
    from flockmq.cluster.commands import (
        DeleteSetting,
        ForgetNode,
        NodeSeen,
        NodeStateChanged,
        ReplaceNode,
        SetClusterId,
        SetSetting,
    )
    from flockmq.cluster.tables import Tables


def set_cluster_id(tables: Tables, command: SetClusterId) -> None:
    """Once; saying the same again is fine."""
    check_id("cluster", command.cluster_id)
    if tables.cluster_id and tables.cluster_id != command.cluster_id:
        raise RefusedError(
            CONFLICT,
            f"This cluster already is {tables.cluster_id:016x}; others come with `flockmq cluster join`.",
        )
    tables.cluster_id = command.cluster_id
    tables.versions = replace(tables.versions, settings=tables.index)


def node_seen(tables: Tables, command: NodeSeen, wall_ms: int) -> NodeRecord:
    """A node is new, or has other details, or is alive again."""
    check_id("node", command.id)
    _check_details(command)
    for other in tables.nodes.values():
        if other.name == command.name and other.id != command.id and other.state == ALIVE:
            raise RefusedError(
                CONFLICT,
                f"Another node that is alive is called {command.name}; give each node its own name with --name.",
            )
    check_number("id of a store", command.store, 0, ID_MAX)
    known = tables.nodes.get(command.id)
    if known is None and len(tables.nodes) >= NODES_MAX:
        raise RefusedError(LIMIT, f"The cluster has {NODES_MAX} nodes, which is all it can have; remove one first.")
    record = NodeRecord(
        command.id,
        command.name,
        command.host,
        command.port,
        command.api,
        command.role,
        ALIVE,
        command.zone,
        command.version,
        known.since_ms if known is not None and known.state == ALIVE else wall_ms,
        command.store,
    )
    if known is not None:
        record = _with_stores(tables, known, record)
    if record != known:
        tables.nodes[command.id] = record
        _nodes_changed(tables)
    return record


def _with_stores(tables: Tables, known: NodeRecord, record: NodeRecord) -> NodeRecord:
    """The record of a node with the stores that it has and had. With another store it is a newcomer everywhere."""
    if record.store in (0, known.store):
        return replace(record, store=known.store, retired=known.retired)
    if record.store in known.retired:
        raise RefusedError(
            CONFLICT,
            f"The node {known.name} comes with a store that was replaced by another one since; the others have gone "
            "on without it. Move that store aside and start the node again.",
        )
    if not known.store:
        return replace(record, retired=known.retired)
    changed = False
    for partition in tables.partitions():
        if known.id in partition.founders:
            founders = tuple([node for node in partition.founders if node != known.id])
            tables.keep_partition(replace(partition, founders=founders))
            changed = True
    if changed:
        tables.versions = replace(tables.versions, topics=tables.index)
    return replace(record, retired=(*known.retired, known.store)[-RETIRED_MAX:])


def node_state_changed(tables: Tables, command: NodeStateChanged, wall_ms: int) -> NodeRecord:
    """A node died, left or came back."""
    check_number("state of a node", command.state, ALIVE, LEFT)
    known = tables.node(command.id)
    if known.state == command.state:
        return known
    record = replace(known, state=command.state, since_ms=wall_ms)
    tables.nodes[command.id] = record
    _nodes_changed(tables)
    return record


def forget_node(tables: Tables, command: ForgetNode) -> NodeRecord:
    """A node that is gone, and that nothing is kept on, is no member any more."""
    known = tables.node(command.id)
    if known.state == ALIVE:
        raise RefusedError(CONFLICT, f"The node {known.name} is alive; stop it before it is forgotten.")
    kept = [partition.group for partition in tables.partitions() if command.id in partition.members()]
    if kept:
        raise RefusedError(
            CONFLICT,
            f"The node {known.name} still is a replica of {len(kept)} partitions, such as group {kept[0]}; wait until "
            "they are rebuilt elsewhere.",
        )
    del tables.nodes[command.id]
    _nodes_changed(tables)
    return known


def replace_node(tables: Tables, command: ReplaceNode) -> NodeRecord:
    """What a node had goes to another one, which is filled by those that still have it."""
    old = tables.node(command.old)
    new = tables.node(command.new)
    if old.state == ALIVE:
        raise RefusedError(CONFLICT, f"The node {old.name} is alive; only a node that is gone can be replaced.")
    if new.id == old.id or new.state != ALIVE or new.role != CORE:
        raise RefusedError(
            CONFLICT, f"The node {new.name} can't take over: it must be another core node that is alive."
        )
    changed = False
    for partition in tables.partitions():
        if old.id not in partition.target:
            continue
        swapped = [new.id if node == old.id else node for node in partition.target]
        target = tuple(dict.fromkeys(swapped))
        preferred = new.id if partition.preferred == old.id else partition.preferred
        tables.keep_partition(replace(partition, target=target, preferred=preferred))
        changed = True
    if changed:
        tables.versions = replace(tables.versions, topics=tables.index)
    return new


def set_setting(tables: Tables, command: SetSetting) -> None:
    """A setting of the whole cluster."""
    check_name("setting", command.name)
    if command.name not in tables.settings and len(tables.settings) >= SETTINGS_MAX:
        raise RefusedError(LIMIT, f"There are {SETTINGS_MAX} settings, which is the most; delete one first.")
    if isinstance(command.value, str):
        check_text(f"setting {command.name}", command.value, SETTING_CHARACTERS_MAX)
    elif not isinstance(command.value, bool):
        check_number(f"setting {command.name}", command.value, -(2**62))
    if command.name == PARTITIONS_MAX_SETTING and (
        isinstance(command.value, str | bool) or not 1 <= command.value <= 1_000_000
    ):
        raise RefusedError(INVALID, f"The setting {PARTITIONS_MAX_SETTING} must be a number from 1 to 1000000.")
    tables.settings[command.name] = command.value
    tables.versions = replace(tables.versions, settings=tables.index)


def delete_setting(tables: Tables, command: DeleteSetting) -> None:
    """Back to the default."""
    if command.name not in tables.settings:
        raise RefusedError(NOT_FOUND, f"There is no setting {command.name[:128]!r}; see `flockmq dump`.")
    del tables.settings[command.name]
    tables.versions = replace(tables.versions, settings=tables.index)


def _check_details(command: NodeSeen) -> None:
    check_text("name of a node", command.name)
    check_text("host of a node", command.host)
    check_text("API address of a node", command.api)
    check_text("zone of a node", command.zone)
    check_text("version of a node", command.version)
    check_number("port of a node", command.port, 0, 65_535)
    check_number("role of a node", command.role, 0, 1)
    if not command.name or not command.host:
        raise RefusedError(INVALID, "A node needs a name and a host.")


def _nodes_changed(tables: Tables) -> None:
    tables.versions = replace(tables.versions, nodes=tables.index)
