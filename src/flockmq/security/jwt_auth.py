"""Tokens in the password field: whether a JWT is genuine, still good, and which user it speaks for.

```
 header -> key (jwt_keys: by algorithm and kid) -> signature -> exp, nbf -> iss, aud -> verify_claims -> Token
          \\______________ not genuine ________/    \\____________ genuine, but no way in _________/
```
The two kinds of refusal differ: only the first is a guess that counts as a failed login. Time is passed in, as
wall clock milliseconds.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from jwt import PyJWS, PyJWTError

from flockmq.errors import FlockError
from flockmq.security.acl import Pattern, parse_pattern
from flockmq.security.jwt_keys import find_key, load_keys

if TYPE_CHECKING:
    from flockmq.security.settings import SecuritySettings

TOKEN_BYTES_MAX: Final = 16_384
ACL_TOPICS_MAX: Final = 1_000
_SECONDS_MAX: Final = 253_402_300_799  # the end of the year 9999


class TokenError(FlockError):
    """A token that is no way in; ``genuine`` tells whether its issuer made it."""

    def __init__(self, text: str, *, genuine: bool) -> None:
        super().__init__(text)
        self.genuine = genuine


@dataclass(frozen=True, slots=True)
class TokenRights:
    """What a token itself allows."""

    publish: tuple[Pattern, ...]
    subscribe: tuple[Pattern, ...]
    capture: tuple[Pattern, ...] | None = None
    """None: all that may be subscribed to."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a good token says."""

    username: str | None
    expires_at_wall_ms: int | None
    rights: TokenRights | None


def looks_like_token(password: bytes) -> bool:
    """Whether a password has the outer form of a JWT: three parts, the first one a JSON object."""
    return password.startswith(b"eyJ") and password.count(b".") == 2


class TokenVerifier:
    """Verifies tokens with the keys of the settings' files, as they were when it was made."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._settings = settings
        self._keys = load_keys(settings)
        self._signatures = PyJWS()
        self._checks = tuple(check.partition("=")[::2] for check in settings.jwt_verify_claims)

    def __repr__(self) -> str:
        return f"TokenVerifier({len(self._keys)} keys)"

    def verify(self, token: bytes, client_id: str, username: str | None, wall_ms: int) -> Token:
        """What the token says, if it may be believed; TokenError otherwise."""
        claims = self._genuine_claims(token)
        expires_at_wall_ms = self._check_times(claims, wall_ms)
        self._check_addressee(claims)
        for claim, expected in self._checks:
            wanted = {"%u": username, "%c": client_id}.get(expected, expected)
            if wanted is None or claims.get(claim) != wanted:
                raise TokenError(f"The token's claim {claim!r} does not fit this client", genuine=True)
        name = claims.get(self._settings.jwt_username_claim)
        if name is not None and (not isinstance(name, str) or not name):
            raise TokenError(f"The token's claim {self._settings.jwt_username_claim!r} is not a name", genuine=True)
        return Token(name, expires_at_wall_ms, self._rights(claims))

    def _genuine_claims(self, token: bytes) -> dict[str, Any]:
        if len(token) > TOKEN_BYTES_MAX:
            raise TokenError(f"The token is longer than {TOKEN_BYTES_MAX} bytes", genuine=False)
        try:
            header = _decode(_base64url(token.partition(b".")[0]))
            algorithm, kid = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
                raise TokenError("The token's header is malformed", genuine=False)
            if "crit" in header or "b64" in header:
                raise TokenError("The token needs an extension that is not understood here", genuine=False)
            key = find_key(self._keys, algorithm, kid)
            if key is None:
                raise TokenError("The token names an algorithm or a key that is not known here", genuine=False)
            whole = self._signatures.decode_complete(token, key.material, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError("The token is malformed or its signature is wrong", genuine=False) from None
        try:
            return _decode(whole["payload"])
        except (ValueError, RecursionError):
            raise TokenError("The token holds no claims", genuine=True) from None

    def _check_times(self, claims: dict[str, Any], wall_ms: int) -> int | None:
        """When the token ends; TokenError when it has ended, has not begun or never ends."""
        leeway_ms = self._settings.jwt_leeway_s * 1000
        begins_at_ms = _moment_ms(claims, "nbf")
        if begins_at_ms is not None and wall_ms + leeway_ms < begins_at_ms:
            raise TokenError("The token is not valid yet", genuine=True)
        expires_at_ms = _moment_ms(claims, "exp")
        if expires_at_ms is None:
            if self._settings.jwt_require_expiry:
                raise TokenError("The token has no expiry (exp), which is required here", genuine=True)
            return None
        if wall_ms >= expires_at_ms + leeway_ms:
            raise TokenError("The token has expired", genuine=True)
        return expires_at_ms + leeway_ms

    def _check_addressee(self, claims: dict[str, Any]) -> None:
        if self._settings.jwt_issuer and claims.get("iss") != self._settings.jwt_issuer:
            raise TokenError("The token was issued by another issuer (iss)", genuine=True)
        audience = claims.get("aud")
        if self._settings.jwt_audience and self._settings.jwt_audience not in (
            audience if isinstance(audience, list) else [audience]
        ):
            raise TokenError("The token is meant for another audience (aud)", genuine=True)

    def _rights(self, claims: dict[str, Any]) -> TokenRights | None:
        rights = claims.get(self._settings.jwt_acl_claim) if self._settings.jwt_acl_claim else None
        if rights is None:
            return None
        try:
            if not isinstance(rights, dict) or rights.keys() - {"pub", "sub", "capture", "all"}:
                raise FlockError("it is an object with pub, sub, capture and all")
            publish, subscribe, both = (_patterns(rights.get(key, [])) for key in ("pub", "sub", "all"))
            capture = _patterns(rights["capture"]) if "capture" in rights else None
        except FlockError as error:
            raise TokenError(f"The token's claim {self._settings.jwt_acl_claim!r}: {error}", genuine=True) from None
        return TokenRights(publish + both, subscribe + both, capture)


def _patterns(topics: object) -> tuple[Pattern, ...]:
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise FlockError("its parts are lists of topic filters")
    if len(topics) > ACL_TOPICS_MAX:
        raise FlockError(f"a part has more than {ACL_TOPICS_MAX} topic filters")
    return tuple(parse_pattern(topic) for topic in topics)


def _moment_ms(claims: dict[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if value is None:
        return None
    # True is an int to Python; NaN would be neither before nor after now, but it is not within these bounds either.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _SECONDS_MAX:
        raise TokenError(f"The token's claim {claim!r} is not a moment", genuine=True)
    return int(value * 1000)


def _decode(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError("not a JSON object") from error


def _base64url(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
