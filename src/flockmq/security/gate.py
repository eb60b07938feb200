"""The broker's gate: asks the ways to log in one after the other, and the rules about what clients may do then.

```
 CONNECT
   1  too many failed logins of this address or name ------> 0x8A banned
   2  an authentication method -----> SCRAM-SHA-256 alone; 0x8C for any other
   3  a verified certificate -------> its common name is the user
   4  a password of a token's form -> JWT decides
   5  user name and password -------> password file, in a thread; 0x89 when too many wait
   6  neither, or nothing to check --> allow_anonymous
   7  otherwise --------------------> 0x86 for wrong credentials, 0x87 for none
```
A way that judged is the last one asked: wrong credentials don't fall through to anonymous. A user name stays with a
connection only when it was proved. All methods run on the event loop's thread.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flockmq.mqtt.reasons import (
    BAD_AUTHENTICATION_METHOD,
    BAD_USER_NAME_OR_PASSWORD,
    BANNED,
    NOT_AUTHORIZED,
    SERVER_BUSY,
)
from flockmq.mqtt.topics import DELAYED_PREFIX
from flockmq.node.ports import Accept, AuthRequest, Continue, Identity, Refuse, Verdict
from flockmq.security.acl import Acl, Selection, Who, grant, is_sys, load_acl
from flockmq.security.filters import Filter, parse_filter, parse_name
from flockmq.security.hashing import HashingPool
from flockmq.security.login_cache import LoginCache
from flockmq.security.passwords import PASSWORD_BYTES_MAX, User, Users, load_users
from flockmq.security.scram import METHOD, ScramError, ScramKeys, ScramMismatchError, ScramServer, fake_keys
from flockmq.security.settings import SecuritySettings
from flockmq.security.throttle import LoginThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.security.acl import Action
    from flockmq.security.hashing import CallSoon
    from flockmq.security.jwt_auth import TokenVerifier

__all__ = ["BrokerGate", "SecuritySettings"]

_WRONG = "The user name or password is wrong"


@dataclass(frozen=True, slots=True)
class _Sources:
    """All that was read from files, exchanged as one."""

    users: Users | None
    tokens: TokenVerifier | None
    acl: Acl | None


class _Grant:
    """What a connection brought besides its names, and its rules once they were looked up."""

    __slots__ = ("own", "peer", "selection", "version")

    def __init__(self, peer: str, own: Selection | None) -> None:
        self.peer = peer
        self.own = own
        """Rights out of a token, in place of the ACL file."""
        self.selection: Selection | None = None
        self.version = -1


class BrokerGate:
    """Implements ``flockmq.node.ports.Gate`` with files, threads and the wall clock."""

    def __init__(
        self,
        settings: SecuritySettings,
        *,
        deliver: Callable[[AuthRequest, Verdict], None],
        call_soon: CallSoon,
        wall_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """Read all files; ConfigError when one can't be used.

        ``deliver`` gets verdicts that came later, on the event loop's thread; ``call_soon`` runs a function there and
        is called from other threads.
        """
        self.version = 1
        self.settings = settings
        self._sources = _load(settings)
        self._deliver = deliver
        self._wall_ms = wall_ms
        self._random_bytes = random_bytes
        self._fake_secret = random_bytes(32)
        self._throttle = LoginThrottle(settings)
        self._cache = LoginCache(random_bytes(32), settings.login_cache_max, settings.login_cache_ms)
        self._pool: HashingPool | None = None
        self._call_soon = call_soon
        if settings.password_file:
            self._pool = HashingPool(
                settings.hash_threads, settings.hash_queue_max, settings.hash_queue_per_peer_max, call_soon
            )

    def reload(self) -> list[str]:
        """Read all files again and tell which. On ConfigError everything stays as it was.

        Rules count at once, also for connected clients; passwords and keys count for the next login.
        """
        self._sources = _load(self.settings)
        self._cache.clear()
        self.version += 1
        named = {"passwords": self._sources.users, "tokens": self._sources.tokens, "acl": self._sources.acl}
        return [name for name, source in named.items() if source is not None]

    def close(self) -> None:
        """Stop the threads; no verdict is delivered any more."""
        if self._pool is not None:
            self._pool.close()

    @property
    def logins_checked(self) -> int:
        """Passwords hashed since the start."""
        return self._pool.checked if self._pool is not None else 0

    @property
    def logins_pending(self) -> int:
        """Passwords waiting to be hashed."""
        return self._pool.pending if self._pool is not None else 0

    # --- who --------------------------------------------------------------------------------------------------------

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        """Judge a CONNECT or the start of a re-authentication, in the order that the module's text gives."""
        refused = self._refuse_if_blocked(request, request.username)
        if refused is not None:
            return refused
        if request.method is not None:
            return self._begin_scram(request)
        if request.certificate_name is not None and self.settings.use_certificate_as_username:
            return self._accept(request, request.certificate_name)
        if self._sources.tokens is not None and request.password is not None:
            from flockmq.security.jwt_auth import looks_like_token

            if looks_like_token(request.password) or self._sources.users is None:
                return self._judge_token(request, self._sources.tokens, request.password)
        if self._sources.users is not None and (request.username is not None or request.password is not None):
            return self._judge_password(request, self._sources.users)
        if self.settings.allow_anonymous and (self._sources.tokens is None or request.username is None):
            return self._accept(request, None)
        return Refuse(NOT_AUTHORIZED, "This broker lets nobody in without credentials")

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        """Judge the client's last SCRAM message."""
        exchange = request.state
        request.state = None  # an exchange ends here, whatever comes of it
        if not isinstance(exchange, ScramServer):
            return Refuse(BAD_AUTHENTICATION_METHOD, "No enhanced authentication is in progress")
        refused = self._refuse_if_blocked(request, exchange.username)
        if refused is not None:
            return refused
        try:
            answer = exchange.final(data)
        except ScramError as error:
            if isinstance(error, ScramMismatchError):
                self._throttle.failed(request.peer, exchange.username, request.now_ms)
            return Refuse(NOT_AUTHORIZED, str(error))
        self._throttle.succeeded(exchange.username)
        return self._accept(request, exchange.username, data=answer)

    def _begin_scram(self, request: AuthRequest) -> Verdict:
        users = self._sources.users
        if request.method != METHOD or users is None or not users.has_scram or not self.settings.scram:
            return Refuse(BAD_AUTHENTICATION_METHOD, f"Authentication method {request.method!r} is not supported here")
        nonce = b64encode(self._random_bytes(18)).decode("ascii")
        exchange = ScramServer(lambda name: self._scram_keys(users, name), nonce)
        try:
            challenge = exchange.first(request.data or b"")
        except ScramError as error:
            return Refuse(NOT_AUTHORIZED, str(error))
        certified = request.certificate_name if self.settings.use_certificate_as_username else None
        for name in (request.username, certified):
            if name is not None and name != exchange.username:
                return Refuse(NOT_AUTHORIZED, "The user name of the SCRAM exchange is not the one of this connection")
        refused = self._refuse_if_blocked(request, exchange.username)
        if refused is not None:
            return refused
        request.state = exchange
        return Continue(challenge)

    def _scram_keys(self, users: Users, name: str) -> ScramKeys:
        user = users.get(name)
        fake = fake_keys(name, self._fake_secret, users.scram_iterations)
        return user.scram if user is not None and user.scram is not None else fake

    def _judge_token(self, request: AuthRequest, tokens: TokenVerifier, password: bytes) -> Verdict:
        from flockmq.security.jwt_auth import TokenError

        wall_ms = self._wall_ms()
        try:
            token = tokens.verify(password, request.client_id, request.username, wall_ms)
        except TokenError as error:
            if error.genuine:
                return Refuse(NOT_AUTHORIZED, str(error))
            self._throttle.failed(request.peer, None, request.now_ms)
            return Refuse(BAD_USER_NAME_OR_PASSWORD, str(error))
        own = None
        if token.rights is not None:
            who = Who(request.client_id, token.username, request.peer)
            own = grant(token.rights.publish, token.rights.subscribe, who)
        expires_at_ms = 0
        if token.expires_at_wall_ms is not None:
            expires_at_ms = max(1, request.now_ms + token.expires_at_wall_ms - wall_ms)
        return self._accept(request, token.username, own=own, expires_at_ms=expires_at_ms)

    def _judge_password(self, request: AuthRequest, users: Users) -> Verdict | None:
        name, password = request.username, request.password
        if name is None or password is None or len(password) > PASSWORD_BYTES_MAX:
            return Refuse(BAD_USER_NAME_OR_PASSWORD, _WRONG)
        user = users.get(name)
        # A user that does not exist takes the same way and the same time.
        password_hash = user.password_hash if user is not None else users.dummy_hash
        tag = self._cache.tag(name, password, password_hash)
        if user is not None and self._cache.holds(tag, request.now_ms):
            return self._accept(request, name)
        assert self._pool is not None
        queued = self._pool.submit(
            request.peer, password_hash, password, lambda matches: self._hashed(request, user, tag, matches=matches)
        )
        return None if queued else Refuse(SERVER_BUSY, "Too many logins are waiting; try again later")

    def _hashed(self, request: AuthRequest, user: User | None, tag: bytes, *, matches: bool) -> None:
        """A password was compared, maybe long after it was asked for."""
        verdict = self._refuse_if_blocked(request, request.username)  # guesses made at once count one by one
        users = self._sources.users
        if verdict is None and users is not None and users.get(request.username or "") != user:
            verdict = self._judge_password(request, users)  # the file changed meanwhile: only the new password counts
            if verdict is None:
                return
        elif verdict is None and user is not None and matches:
            self._cache.add(tag, request.now_ms)
            self._throttle.succeeded(user.name)
            verdict = self._accept(request, user.name)
        elif verdict is None:
            self._throttle.failed(request.peer, request.username, request.now_ms)
            verdict = Refuse(BAD_USER_NAME_OR_PASSWORD, _WRONG)
        self._deliver(request, verdict)

    def _refuse_if_blocked(self, request: AuthRequest, username: str | None) -> Verdict | None:
        wait_ms = self._throttle.blocked(request.peer, username, request.now_ms)
        if not wait_ms:
            return None
        return Refuse(BANNED, f"Too many failed logins; try again in {-(-wait_ms // 1000)} s")

    def _accept(
        self,
        request: AuthRequest,
        username: str | None,
        *,
        own: Selection | None = None,
        expires_at_ms: int = 0,
        data: bytes | None = None,
    ) -> Accept:
        superuser = username is not None and username in self.settings.superusers
        # Most brokers have no rules by client: their connections then cost no object more.
        claims = _Grant(request.peer, own) if own is not None or self._sources.acl is not None else None
        return Accept(Identity(request.client_id, username, superuser, claims), expires_at_ms, data)

    # --- what -------------------------------------------------------------------------------------------------------

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        """Whether this identity may publish to this name; a delayed message is judged by where it goes."""
        while topic.startswith(DELAYED_PREFIX):
            _, slash, target = topic[len(DELAYED_PREFIX) :].partition(b"/")
            if not slash:
                break
            topic = target
        return self._may(identity, "publish", parse_name(topic))

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        """Whether this identity may read all names that this filter matches."""
        return self._may(identity, "subscribe", parse_filter(topic_filter))

    def _may(self, identity: Identity, action: Action, wanted: Filter) -> bool:
        if identity.superuser:
            return True
        claims = identity.claims if isinstance(identity.claims, _Grant) else None
        if claims is not None and claims.own is not None:
            return claims.own.decide(action, wanted)
        acl = self._sources.acl
        if acl is None:
            return not is_sys(wanted)
        if claims is None:
            return acl.select(Who(identity.client_id, identity.username)).decide(action, wanted)
        if claims.selection is None or claims.version != self.version:
            claims.selection = acl.select(Who(identity.client_id, identity.username, claims.peer))
            claims.version = self.version
        return claims.selection.decide(action, wanted)


def _load(settings: SecuritySettings) -> _Sources:
    tokens = None
    if settings.has_jwt:
        from flockmq.security.jwt_auth import TokenVerifier

        tokens = TokenVerifier(settings)
    return _Sources(
        users=load_users(Path(settings.password_file)) if settings.password_file else None,
        tokens=tokens,
        acl=load_acl(Path(settings.acl_file)) if settings.acl_file else None,
    )
