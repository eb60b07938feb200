"""Commands about consumer groups; ``commands.py`` says how commands stand in the log."""

from __future__ import annotations

from msgspec import Struct

from flockmq.cluster.groups import (
    ACK_WAIT_MS_DEFAULT,
    BACKOFF_MAX_MS_DEFAULT,
    BACKOFF_MS_DEFAULT,
    LINGER_MS_DEFAULT,
    MAX_DELIVER_DEFAULT,
    MAX_IN_FLIGHT_DEFAULT,
    SHARE,
    Binding,
)
from flockmq.cluster.model import DEFAULT_NAMESPACE


class CreateGroup(Struct, frozen=True, array_like=True, tag=50):
    """A new consumer group, with the topic that takes its dead letters."""

    name: str
    bindings: tuple[Binding, ...]
    namespace: str = DEFAULT_NAMESPACE
    mode: str = SHARE
    ack_wait_ms: int = ACK_WAIT_MS_DEFAULT
    max_deliver: int = MAX_DELIVER_DEFAULT
    backoff_ms: int = BACKOFF_MS_DEFAULT
    backoff_max_ms: int = BACKOFF_MAX_MS_DEFAULT
    max_in_flight: int = MAX_IN_FLIGHT_DEFAULT
    dead_letter: str = ""
    """A topic that exists; ``none``; empty: ``NAME.dead``, which is made when it does not exist."""
    start: str = "latest"
    hold: bool = True
    paused: bool = False


class AlterGroup(Struct, frozen=True, array_like=True, tag=51):
    """What is None stays. Bindings are replaced all at once."""

    name: str
    namespace: str = DEFAULT_NAMESPACE
    bindings: tuple[Binding, ...] | None = None
    mode: str | None = None
    ack_wait_ms: int | None = None
    max_deliver: int | None = None
    backoff_ms: int | None = None
    backoff_max_ms: int | None = None
    max_in_flight: int | None = None
    dead_letter: str | None = None
    hold: bool | None = None
    paused: bool | None = None


class DeleteGroup(Struct, frozen=True, array_like=True, tag=52):
    """The group and where it stands; its dead letters stay."""

    name: str
    namespace: str = DEFAULT_NAMESPACE
    id: int = 0
    """Only the group with this id; 0: whichever has the name. So a late command spares a new group of the name."""


class ResetGroup(Struct, frozen=True, array_like=True, tag=53):
    """A new generation, which begins at another place."""

    name: str
    start: str
    namespace: str = DEFAULT_NAMESPACE


class ReadDead(Struct, frozen=True, array_like=True, tag=55):
    """The reader of a group's dead letters, or the one that is there already: it begins with the oldest."""

    name: str
    namespace: str = DEFAULT_NAMESPACE


class ShareGroup(Struct, frozen=True, array_like=True, tag=54):
    """The group of a ``$share`` subscription on durable topics, or the one that is there already."""

    name: str
    """As the client wrote it, between ``$share/`` and the filter."""
    filter: str
    """In user form."""
    namespace: str = DEFAULT_NAMESPACE
    linger_ms: int = LINGER_MS_DEFAULT
