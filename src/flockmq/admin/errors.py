"""Every way in which the API says no, as one catalogue: the status, the code for programs, and when it happens.

A handler raises ``ApiError(KIND, sentence)``; the HTTP shell turns it into ``{"error": {"code", "message"}}``. The
catalogue also feeds the OpenAPI description and the reference page, so that what is documented is what is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from flockmq.admin.model import ErrorBody, ErrorDetail
from flockmq.errors import FlockError


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One entry of the catalogue."""

    status: int
    code: str
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
    500, "damaged", "No replica can give these records back: their bytes on disk are damaged; others can be read"
)
BEHIND: Final = ErrorKind(503, "behind", "No replica that could be asked has come that far; ask again in a moment")
NO_QUORUM: Final = ErrorKind(
    503, "no_quorum", "Too few nodes can be reached to decide; nothing was changed as far as is known"
)
UNAVAILABLE: Final = ErrorKind(
    503, "unavailable", "The broker is starting or stopping, or the operation is switched off"
)
OUTCOME_UNKNOWN: Final = ErrorKind(504, "outcome_unknown", "It may have been done or not; look before trying again")
TOOK_TOO_LONG: Final = ErrorKind(504, "took_too_long", "The operation did not finish in time")

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
    BEHIND,
    NO_QUORUM,
    UNAVAILABLE,
    OUTCOME_UNKNOWN,
    TOOK_TOO_LONG,
)


class ApiError(FlockError):
    """A refusal on its way to the caller."""

    def __init__(self, kind: ErrorKind, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.headers = headers or {}

    def body(self) -> bytes:
        """The one error shape, as JSON."""
        return msgspec.json.encode(ErrorBody(error=ErrorDetail(code=self.kind.code, message=str(self))))
