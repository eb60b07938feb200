"""Errors as people and peers see them: one class for each meaning, the same from the log to the Spark source.

```
 FlockError                 one plain sentence: what happened, why, and what to do
  |-- ConfigError           the configuration can't be used
  |-- RemoteProtocolError   a peer broke MQTT; carries the reason code for the wire
  `-- ApiError(KIND, ...)   has a place in the catalogue below, so it can cross the HTTP API:
       |                    raised in the broker --> status, code, sentence, headers --> decode --> the client
       |-- OffsetGone  BeyondEnd  Damaged  OutcomeUnknown  Refused  Conflict  NotFound
       `-- TryAgain         nothing is wrong with the request: another node, or this one a moment later, can serve it
            `-- Behind  NoReplica  NoLeader  NotReady  NoAnswer  TooLarge
```
The catalogue also feeds the OpenAPI description and the reference page, so that what is documented is what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self


class FlockError(Exception):
    """Something a person can act on; ``str(error)`` is the sentence to show."""


class ConfigError(FlockError):
    """The configuration can't be used; the broker refuses to start."""


class RemoteProtocolError(FlockError):
    """The peer sent what MQTT does not allow."""

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code


# --- the catalogue: every way in which the API says no ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One entry of the catalogue."""

    status: int
    code: str
    """For programs."""
    when: str


BAD_REQUEST: Final = ErrorKind(400, "bad_request", "The request is not HTTP as it should be")
INVALID_PARAMETER: Final = ErrorKind(400, "invalid_parameter", "A parameter of the path or query can't be used")
INVALID_BODY: Final = ErrorKind(400, "invalid_body", "The body is not the JSON that the operation takes")
UNAUTHORIZED: Final = ErrorKind(401, "unauthorized", "The token is missing or wrong")
NOT_FOUND: Final = ErrorKind(404, "not_found", "What the path names is not there")
NO_SUCH_PATH: Final = ErrorKind(404, "no_such_path", "The API has no such path")
METHOD_NOT_ALLOWED: Final = ErrorKind(405, "method_not_allowed", "The path exists, but not with this method")
TIMEOUT: Final = ErrorKind(408, "timeout", "The body did not arrive in time")
CONFLICT: Final = ErrorKind(409, "conflict", "It exists already, or something else that exists stands in the way")
GONE: Final = ErrorKind(
    410, "gone", "The records at this offset were removed; the header X-Flockmq-First-Offset says which is the oldest"
)
CURSOR_EXPIRED: Final = ErrorKind(410, "cursor_expired", "The listing that `after` continues is no longer kept")
BODY_TOO_LARGE: Final = ErrorKind(413, "body_too_large", "The body is longer than the limit")
UNSUPPORTED_MEDIA_TYPE: Final = ErrorKind(415, "unsupported_media_type", "The body is not declared as JSON")
BEYOND_END: Final = ErrorKind(
    416, "beyond_end", "The log does not reach to this offset; the header X-Flockmq-End-Offset says where it ends"
)
WRONG_HOST: Final = ErrorKind(421, "wrong_host", "The Host header names a machine that this API is not")
REFUSED: Final = ErrorKind(422, "refused", "The request is well-formed, but the broker can't do it")
TOO_MANY_ATTEMPTS: Final = ErrorKind(429, "too_many_attempts", "Too many wrong tokens came from this address")
INTERNAL: Final = ErrorKind(500, "internal", "The broker made a mistake")
DAMAGED: Final = ErrorKind(
    500,
    "damaged",
    "No replica can give these records back: their bytes on disk are damaged; the headers X-Flockmq-Damaged-Offset and "
    "X-Flockmq-Next-Offset say from where to before where",
)
BEHIND: Final = ErrorKind(503, "behind", "No replica that could be asked has come that far; ask again in a moment")
NO_REPLICA: Final = ErrorKind(
    503, "no_replica", "No node that holds a replica could be asked; ask again in a moment, or a node that holds one"
)
NO_LEADER: Final = ErrorKind(503, "no_leader", "The partition has no leader that answers; ask again in a moment")
NOT_READY: Final = ErrorKind(
    503, "not_ready", "This node does not serve durable topics now: it starts, stops, or learns of the topic"
)
NO_ANSWER: Final = ErrorKind(503, "no_answer", "The nodes that were asked did not answer in time; ask again")
TOO_LARGE: Final = ErrorKind(
    503, "too_large", "A batch is larger than nodes pass on to each other; ask a node that holds a replica"
)
TRY_AGAIN: Final = (BEHIND, NO_REPLICA, NO_LEADER, NOT_READY, NO_ANSWER, TOO_LARGE)
"""Nothing is wrong with the request: another node can serve it, or the same node a moment later."""
NO_QUORUM: Final = ErrorKind(
    503, "no_quorum", "Too few nodes can be reached to decide; nothing was changed as far as is known"
)
UNAVAILABLE: Final = ErrorKind(
    503, "unavailable", "The broker is starting or stopping, or the operation is switched off"
)
OUTCOME_UNKNOWN: Final = ErrorKind(504, "outcome_unknown", "It may have been done or not; look before trying again")
TOOK_TOO_LONG: Final = ErrorKind(504, "took_too_long", "The operation did not finish in time")

CHANGE_ERRORS: Final = (NOT_FOUND, CONFLICT, REFUSED, NO_QUORUM, UNAVAILABLE, OUTCOME_UNKNOWN)
"""Kinds that every change of the cluster state may end in."""
CATALOGUE: Final = (
    BAD_REQUEST,
    INVALID_PARAMETER,
    INVALID_BODY,
    UNAUTHORIZED,
    NOT_FOUND,
    NO_SUCH_PATH,
    METHOD_NOT_ALLOWED,
    TIMEOUT,
    CONFLICT,
    GONE,
    CURSOR_EXPIRED,
    BODY_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    BEYOND_END,
    WRONG_HOST,
    REFUSED,
    TOO_MANY_ATTEMPTS,
    INTERNAL,
    DAMAGED,
    *TRY_AGAIN,
    NO_QUORUM,
    UNAVAILABLE,
    OUTCOME_UNKNOWN,
    TOOK_TOO_LONG,
)

FIRST_OFFSET: Final = "X-Flockmq-First-Offset"
END_OFFSET: Final = "X-Flockmq-End-Offset"
NEXT_OFFSET: Final = "X-Flockmq-Next-Offset"
DAMAGED_OFFSET: Final = "X-Flockmq-Damaged-Offset"


class ApiError(FlockError):
    """An error with a place in the catalogue: the broker raises it, the API sends it, the client raises it again."""

    def __init__(self, kind: ErrorKind, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.headers = headers or {}
        """What the API sends besides the code and the sentence."""

    def telling(self, text: str) -> Self:
        """The same error with another sentence, of a caller that knows more of what was wanted."""
        self.args = (text,)
        return self

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.kind.status

    @property
    def code(self) -> str:
        """For programs."""
        return self.kind.code


# --- one class for each meaning that callers treat in a way of its own ------------------------------------------------


class OffsetGone(ApiError):  # noqa: N818 (here and below: the name says the meaning)
    """Retention removed the records at an offset; ``first`` is the oldest offset of the log."""

    def __init__(self, first: int, what: str = "The offset") -> None:
        super().__init__(
            GONE, f"{what} is gone; the oldest one is {first}: read from there.", {FIRST_OFFSET: str(first)}
        )
        self.first = first


class BeyondEnd(ApiError):  # noqa: N818
    """The log ends at ``end``, which its leader confirmed, and that is before the offset."""

    def __init__(self, end: int, what: str = "The offset", of: str = "the log") -> None:
        super().__init__(
            BEYOND_END,
            f"{what} is beyond the end of {of}, which is {end}: read from there on for what comes next.",
            {END_OFFSET: str(end)},
        )
        self.end = end


class Damaged(ApiError):  # noqa: N818
    """The records from ``first`` to before ``end`` can't be read back from disk."""

    def __init__(self, first: int, end: int, of: str = "the log") -> None:
        offsets, them = (f"Offset {first}", "it") if end - first == 1 else (f"Offsets {first} to {end - 1}", "them")
        super().__init__(
            DAMAGED,
            f"{offsets} of {of} {'is' if them == 'it' else 'are'} damaged, and no other replica that could be asked "
            f"has {them}: read on from offset {end}.",
            {DAMAGED_OFFSET: str(first), NEXT_OFFSET: str(end)},
        )
        self.first = first
        self.end = end


class OutcomeUnknown(ApiError):  # noqa: N818
    """What was asked for may have been done or not."""

    def __init__(self, text: str) -> None:
        super().__init__(OUTCOME_UNKNOWN, text)


class Refused(ApiError):  # noqa: N818
    """The broker understands the request and can't do it; the same request is refused again until something changes."""

    def __init__(self, text: str) -> None:
        super().__init__(REFUSED, text)


class Conflict(ApiError):  # noqa: N818
    """What exists, or what is no longer staged, stands in the way."""

    def __init__(self, text: str) -> None:
        super().__init__(CONFLICT, text)


class NotFound(ApiError):  # noqa: N818
    """There is no such thing."""

    def __init__(self, text: str) -> None:
        super().__init__(NOT_FOUND, text)


class TryAgain(ApiError):  # noqa: N818
    """Nothing is wrong with the request: another node can serve it, or the same node a moment later."""

    def __init__(self, kind: ErrorKind, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(kind, text, {"Retry-After": "1", **(headers or {})})


class Behind(TryAgain):
    """A replica is not there yet: it knows the log up to ``end``."""

    def __init__(self, end: int, wanted: int = -1, of: str = "the log") -> None:
        beyond = f", not {wanted}" if wanted >= 0 else ""
        super().__init__(
            BEHIND,
            f"This replica of {of} is committed up to offset {end}{beyond}. Wait, or ask another one.",
            {END_OFFSET: str(end)},
        )
        self.end = end


class NoReplica(TryAgain):
    """No replica here that can be read; ``replicas`` are the ids of the nodes that hold one."""

    def __init__(self, replicas: tuple[int, ...] = (), of: str = "the partition") -> None:
        super().__init__(NO_REPLICA, f"This node has no replica of {of} that can be read. Ask a node that has one.")
        self.replicas = replicas


class NoLeader(TryAgain):
    """The leader of a partition did not answer, or there is none."""

    def __init__(self, text: str = "No leader of the partition answered in time; try again in a moment.") -> None:
        super().__init__(NO_LEADER, text)

    @classmethod
    def of(cls, group: int) -> NoLeader:
        """For people who know partitions by their group."""
        return cls(f"No leader of partition group {group} answered in time; try again in a moment.")


class NotReady(TryAgain):
    """This node can't serve now; the sentence says why."""

    def __init__(self, text: str) -> None:
        super().__init__(NOT_READY, text)


class NoAnswer(TryAgain):
    """No node answered in time."""

    def __init__(self, text: str = "No node answered in time; ask another node, or again in a moment.") -> None:
        super().__init__(NO_ANSWER, text)


class TooLarge(TryAgain):
    """A single batch is larger than what nodes pass on to each other: a node with a replica can serve it."""

    def __init__(self, text: str = "The batch is too large to be passed on; ask a node that holds a replica.") -> None:
        super().__init__(TOO_LARGE, text)


_Number = Callable[[str], int]
_MADE: Final[Mapping[str, Callable[[_Number, str], ApiError]]] = {
    "gone": lambda number, _text: OffsetGone(number(FIRST_OFFSET)),
    "beyond_end": lambda number, _text: BeyondEnd(number(END_OFFSET)),
    "damaged": lambda number, _text: Damaged(number(DAMAGED_OFFSET), number(NEXT_OFFSET)),
    "outcome_unknown": lambda _number, text: OutcomeUnknown(text),
    "refused": lambda _number, text: Refused(text),
    "conflict": lambda _number, text: Conflict(text),
    "not_found": lambda _number, text: NotFound(text),
    "behind": lambda number, _text: Behind(number(END_OFFSET)),
    "no_replica": lambda _number, _text: NoReplica(),
    "no_leader": lambda _number, text: NoLeader(text),
    "not_ready": lambda _number, text: NotReady(text),
    "no_answer": lambda _number, text: NoAnswer(text),
    "too_large": lambda _number, text: TooLarge(text),
}
_KINDS: Final = {kind.code: kind for kind in CATALOGUE}


def decode(status: int, code: str, text: str, headers: Mapping[str, str]) -> ApiError:
    """The error that a broker sent, as the class that the broker raised; names of ``headers`` are in lower case."""

    def number(name: str) -> int:
        value = headers.get(name.lower(), "")
        return int(value) if value.isdecimal() else 0

    kind = _KINDS.get(code)
    make = _MADE.get(code)
    if kind is None or kind.status != status or make is None:
        return ApiError(ErrorKind(status, code, ""), text, dict(headers))
    error = make(number, text).telling(text)
    error.headers = dict(headers)
    return error
