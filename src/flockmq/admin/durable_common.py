"""What the handlers of durable topics share: the port, what is in cluster state, refusals in the API's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster import commands
from flockmq.cluster.commands import RefusedError
from flockmq.durable.state.submitting import UNKNOWN
from flockmq.errors import (
    CONFLICT,
    INVALID_PARAMETER,
    NO_QUORUM,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    REFUSED,
    UNAVAILABLE,
    ApiError,
    ErrorKind,
    NotFound,
    NotReady,
)
from flockmq.log.starts import parse_time
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_port import DurablePort
    from flockmq.cluster.commands import Command, Value
    from flockmq.cluster.model import CursorRecord, TopicRecord
    from flockmq.cluster.state import ClusterState

REPLICAS: Final = "X-Flockmq-Replicas"
_KINDS: Final[dict[str, ErrorKind]] = {
    commands.INVALID: REFUSED,
    commands.NOT_FOUND: NOT_FOUND,
    commands.EXISTS: CONFLICT,
    commands.CONFLICT: CONFLICT,
    commands.LIMIT: REFUSED,
    UNKNOWN: OUTCOME_UNKNOWN,
}


def durable(desk: Desk) -> DurablePort:
    """The port, or why there is none."""
    if desk.ports.durable is None:
        raise ApiError(
            UNAVAILABLE, "This node has no durable topics: cluster.enabled is false, or its port was taken; ask another"
        )
    desk.ports.durable.state()
    return desk.ports.durable


async def change(desk: Desk, command: Command) -> Value | None:
    """Change cluster state; what came of it."""
    result = await durable(desk).command(command)
    if not result.ok:
        raise ApiError(_KINDS.get(result.code, NO_QUORUM), result.error)
    return result.value


def find_group(port: DurablePort, text: str) -> tuple[int, TopicRecord]:
    """The group that a path names, and the topic whose partition it is."""
    group = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    topic = port.state().topic_of_group(group)
    if topic is None:
        raise ApiError(NOT_FOUND, f"There is no partition with the group {text[:20]!r}; list them to see which")
    return group, topic


def find_topic(port: DurablePort, namespace: str, name: str, *, with_hidden: bool = False) -> TopicRecord:
    """A topic, or 404; a hidden one is as if it were not there, unless it is asked for."""
    try:
        return port.state().topic(namespace, name) if with_hidden else port.state().user_topic(namespace, name)
    except RefusedError as error:
        raise not_found(port, error) from None


def find_cursor(port: DurablePort, namespace: str, name: str) -> CursorRecord:
    """A cursor, or 404."""
    try:
        return port.state().cursor(namespace, name)
    except RefusedError as error:
        raise not_found(port, error) from None


def not_found(port: DurablePort, error: RefusedError) -> ApiError:
    """404; 503 while this node may lack what the others know."""
    if port.is_current():
        return NotFound(str(error))
    return NotReady(
        f"{error} But this node has not heard from a majority since its start; ask another, or again in a moment."
    )


def owner_of(state: ClusterState, topic: bytes) -> TopicRecord | None:
    """The durable topic that keeps what is published to a topic name (in internal form)."""
    return state.topics.get(state.filters.owner_of_overlap(topic))


def group_of(topic: TopicRecord, shard: str) -> int:
    """The Raft group of a shard, or 404."""
    if not (shard.isascii() and shard.isdigit() and len(shard) < 10 and int(shard) < len(topic.partitions)):
        raise ApiError(
            NOT_FOUND,
            f"Topic {topic.name!r} has {counted(len(topic.partitions), 'shard')}, counted from 0; there is none "
            f"{shard[:20]!r}",
        )
    return topic.partitions[int(shard)].group


def parse_moment(text: str, what: str) -> int:
    """Milliseconds since 1970 from just that, or from ISO 8601; UTC where it names no zone."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise ApiError(INVALID_PARAMETER, f"{what} can't be used: {error}") from None
