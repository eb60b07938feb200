"""What an operation of the API is, and how a path finds its operation.

The table of operations (``routes.py``) is the one source: the router, the OpenAPI description, the docs page and the
reference are all made from it, so none of them can know an operation that the others don't.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from flockmq.admin.decode import decode_text
from flockmq.errors import METHOD_NOT_ALLOWED, NO_SUCH_PATH, ApiError, ErrorKind

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk

JSON: Final = "application/json"
PREFIX: Final = "/api/v1"
PATH_SEGMENTS_MAX: Final = 256

Q = TypeVar("Q")
B = TypeVar("B")


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of operations that take none."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer that is not JSON of the model, or JSON that was encoded before."""

    body: bytes
    content_type: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """One request, read and checked. ``peer`` is the caller's address, ``accept`` its Accept header, ``has_token``
    whether it came with the right token, ``is_gone`` whether the caller has hung up by now."""

    path: dict[str, str]
    query: Q
    body: B
    peer: str
    accept: str
    has_token: bool = False
    is_gone: Callable[[], bool] = bool
    """As long as nothing is known of the connection: no."""


Handler = Callable[["Desk", Call[Any, Any]], "object | Awaitable[object]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method on a path. ``answer`` None means 204 without a body; ``content_type`` other than JSON means ``Raw``."""

    at: str
    """Method and path."""
    tag: str
    summary: str
    handler: Handler
    answer: Any = None
    answer_text: str = "Done"
    status: int = 200
    content_type: str = JSON
    raw_type: str = ""
    """What it answers instead when ``Accept`` names this content type."""
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    body_type: str = ""
    """Content type of a body that is no JSON: the handler gets its bytes."""
    body_bytes_max: int = 0
    """Longest body, where that is not the usual."""
    errors: tuple[ErrorKind, ...] = ()
    secured: bool = True
    token_tells_more: bool = False
    """Where it is not secured: whether a caller with the token is told more."""
    extra_s: float = 0.0
    """How much longer than others it may take."""
    audited: bool = True
    """Whether the node's log names the caller, where it changes something: not for what programs do all the time."""

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return self.at.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with parameters in braces."""
        return self.at.partition(" ")[2]

    @property
    def name(self) -> str:
        """The id in the OpenAPI description: ``list_topics`` handles ``listTopics``."""
        first, *others = self.handler.__name__.split("_")
        return first + "".join(map(str.capitalize, others))

    @property
    def segments(self) -> tuple[str, ...]:
        """The path in parts, without the empty one before the first slash."""
        return tuple(self.path.split("/")[1:])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of what stands in braces in the path."""
        return tuple(part[1:-1] for part in self.segments if part.startswith("{"))


class Router:
    """Finds the operation for a method and a raw (still escaped) path."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._by_length: dict[int, list[Operation]] = {}
        self._rest: list[Operation] = []
        for operation in operations:
            self._by_length.setdefault(len(operation.segments), []).append(operation)
            if operation.parameters == ("topic",):
                # A topic may be given with plain slashes, too: everything behind the prefix is the topic.
                self._rest.append(operation)

    def find(self, method: str, raw_path: str) -> tuple[Operation, dict[str, str]]:
        """The operation and its path parameters, unescaped; ApiError 404 or 405 with the methods that would do."""
        parts = raw_path.split("/")[1:]
        if len(parts) > PATH_SEGMENTS_MAX:
            raise ApiError(NO_SUCH_PATH, f"The path has more than {PATH_SEGMENTS_MAX} parts; see /api/v1/docs")
        found = [
            (operation, values)
            for operation in self._by_length.get(len(parts), ())
            if (values := _match(operation.segments, parts)) is not None
        ]
        if not found:
            found = [
                (operation, {"topic": "/".join(parts[len(operation.segments) - 1 :])})
                for operation in self._rest
                if len(parts) > len(operation.segments)
                and parts[: len(operation.segments) - 1] == list(operation.segments[:-1])
            ]
        if not found:
            raise ApiError(NO_SUCH_PATH, "There is no such path in this API; see /api/v1/docs for those there are")
        for operation, values in found:
            if operation.method == method or (method == "HEAD" and operation.method == "GET"):
                return operation, {name: decode_text(value, f"{name} in the path") for name, value in values.items()}
        allowed = sorted({operation.method for operation, _ in found})
        if "GET" in allowed:
            allowed.insert(allowed.index("GET") + 1, "HEAD")
        raise ApiError(
            METHOD_NOT_ALLOWED,
            f"This path does not take {method[:32]}; it takes {', '.join(allowed)}",
            {"Allow": ", ".join(allowed)},
        )


def _match(segments: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for segment, part in zip(segments, parts, strict=True):
        if segment.startswith("{"):
            if not part:
                return None
            values[segment[1:-1]] = part
        elif segment != part:
            return None
    return values
