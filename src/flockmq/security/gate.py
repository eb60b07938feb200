"""The broker's gate: asks the ways to log in one after the other, and the rules about what clients may do then.

```
 CONNECT
   0  a name and password that were right not long ago -----> in, whatever else came from the address
   1  too many failed logins of this address or name ------> 0x8A banned
   2  an authentication method -----> SCRAM-SHA-256 alone; 0x8C for any other
   3  a verified certificate -------> its common name is the user; 0x87 when it has several
   4  a password of a token's form -> JWT decides
   5  user name and password -------> password file, then clients of the cluster, in a thread; 0x89 when too many wait
   6  neither, or nothing to check --> allow_anonymous
   7  otherwise --------------------> 0x86 for wrong credentials, 0x87 for none
```
A way that judged is the last one asked: wrong credentials don't fall through to anonymous. A user name stays with a
connection only when it was proved. All methods run on the event loop's thread.

Users come from two places. A user of the password file is judged by the files alone (password, ACL file); a client of
the cluster has its own record there (``clients.py``), and the rules of its namespace hold for it, too.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import TYPE_CHECKING

from flockmq.mqtt.namespaces import unqualified
from flockmq.mqtt.reasons import (
    BAD_AUTHENTICATION_METHOD,
    BAD_USER_NAME_OR_PASSWORD,
    BANNED,
    NOT_AUTHORIZED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
)
from flockmq.mqtt.topics import DELAYED_PREFIX
from flockmq.node.ports import Accept, AuthRequest, Continue, Identity, Refuse, Verdict
from flockmq.security.acl import Principal, Selection, grant
from flockmq.security.clients import ClientChanges
from flockmq.security.directory import UserDirectory
from flockmq.security.filters import Filter, parse_filter, parse_name
from flockmq.security.hashing import Check, HashingPool, threads_for
from flockmq.security.login_cache import LoginCache
from flockmq.security.passwords import PASSWORD_BYTES_MAX, User
from flockmq.security.rights import NO_RULES, Grant, own_name
from flockmq.security.scram import (
    METHOD,
    ScramError,
    ScramMismatchError,
    ScramServer,
)
from flockmq.security.settings import SecuritySettings
from flockmq.security.throttle import LoginThrottle, network_of
from flockmq.security.tls import AMBIGUOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flockmq.cluster.model import AclRecord, ClientRecord
    from flockmq.security.acl import Action
    from flockmq.security.hashing import CallSoon
    from flockmq.security.jwt_auth import TokenVerifier

__all__ = ["BrokerGate", "SecuritySettings"]

_WRONG = "The user name or password is wrong"
_BUSY = Refuse(SERVER_BUSY, "Too many logins are waiting; try again later")
_AMBIGUOUS_TEXT = "The client certificate must have one common name that can be printed; this one names no user"
_NOT_YET = "This node was just started and does not know all clients yet; try again in a moment"


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
        self._directory = UserDirectory(settings, random_bytes(32))
        self._deliver = deliver
        self._wall_ms = wall_ms
        self._random_bytes = random_bytes
        self._throttle = LoginThrottle(settings)
        self._cache = LoginCache(random_bytes(32), settings.login_cache_max, settings.login_cache_ms)
        self._pool: HashingPool | None = None
        self._call_soon = call_soon
        self._now_ms = 0  # of the last request

    def reload(self) -> list[str]:
        """Read all files again and tell which. On ConfigError everything stays as it was.

        Rules count at once, also for connected clients; passwords and keys count for the next login.
        """
        found = self._directory.reload()
        self._cache.clear()
        self.version += 1
        return found

    def set_clients(self, records: Iterable[ClientRecord], acls: Iterable[AclRecord] = ()) -> ClientChanges:
        """Take these clients and rules of the cluster in place of all before; the connected clients it concerns.

        A user of the password file is not concerned: the file wins.
        """
        changes = self._directory.set_clients(records, acls)
        self.version += 1
        return changes

    @property
    def proving(self) -> frozenset[str]:
        """Namespaces in which clients of the cluster have passwords."""
        return self._directory.proving

    def identify(self, client_id: str, username: str | None, namespace: str, peer: str) -> Identity | None:
        """The identity of a session without a connection; None where only a token could tell what it may do."""
        if self._directory.tokens is not None:
            return None
        return Identity(client_id, username, self._is_superuser(username), None, namespace, peer)

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

    # --- identity ---------------------------------------------------------------------------------------------------

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        """Judge a CONNECT or the start of a re-authentication, in the order that the module's text gives."""
        self._now_ms = request.now_ms
        refused = self._refuse_if_blocked(request, request.username)
        if refused is not None:
            return self._remembered(request) or refused
        if request.certificate_name == AMBIGUOUS and self.settings.use_certificate_as_username:
            return Refuse(NOT_AUTHORIZED, _AMBIGUOUS_TEXT)
        if request.method is not None:
            return self._begin_scram(request)
        if request.certificate_name is not None and self.settings.use_certificate_as_username:
            namespace, name = request.locate(request.certificate_name)
            return self._accept(request, name, namespace)
        if self._directory.tokens is not None and request.password is not None:
            from flockmq.security.jwt_auth import looks_like_token

            if looks_like_token(request.password) or not self._directory.has_logins(request.namespace):
                return self._judge_token(request, self._directory.tokens, request.password)
        is_named = request.username is not None or request.password is not None
        if is_named and not request.is_known() and self._directory.find(request.username or "") is None:
            return Refuse(SERVER_UNAVAILABLE, _NOT_YET)
        if is_named and self._directory.has_logins(request.namespace):
            return self._judge_password(request)
        if self.settings.allow_anonymous and (self._directory.tokens is None or request.username is None):
            return self._accept(request, None, request.namespace)
        return Refuse(NOT_AUTHORIZED, "This broker lets no client in without credentials")

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        """Judge the client's last SCRAM message."""
        exchange = request.state
        request.state = None  # an exchange ends here, whatever comes of it
        if not isinstance(exchange, ScramServer):
            return Refuse(BAD_AUTHENTICATION_METHOD, "No enhanced authentication is in progress")
        namespace, name = _scram_name(request, exchange.username)
        refused = self._refuse_if_blocked(request, name)
        if refused is not None:
            return refused
        try:
            answer = exchange.final(data)
            if not exchange.is_current():  # the client was removed, or got another password meanwhile
                raise ScramError(_WRONG)
        except ScramError as error:
            if isinstance(error, ScramMismatchError):
                self._throttle.failed(request.peer, name, request.now_ms)
            return Refuse(NOT_AUTHORIZED, str(error))
        self._throttle.succeeded(name)
        return self._accept(request, name, namespace, data=answer)

    def _begin_scram(self, request: AuthRequest) -> Verdict:
        if request.method == METHOD and not request.is_known() and not self._directory.has_scram():
            return Refuse(SERVER_UNAVAILABLE, _NOT_YET)
        if request.method != METHOD or not self._directory.has_scram() or not self.settings.scram:
            return Refuse(BAD_AUTHENTICATION_METHOD, f"Authentication method {request.method!r} is not supported here")
        nonce = b64encode(self._random_bytes(18)).decode("ascii")
        exchange = ScramServer(lambda name: self._directory.scram_keys(_scram_name(request, name)[1]), nonce)
        try:
            challenge = exchange.first(request.data or b"")
        except ScramError as error:
            return Refuse(NOT_AUTHORIZED, str(error))
        proving = _scram_name(request, exchange.username)[1]
        certified = None
        if request.certificate_name is not None and self.settings.use_certificate_as_username:
            certified = request.locate(request.certificate_name)[1]
        for name in (request.username, certified):
            if name is not None and name != proving:
                return Refuse(NOT_AUTHORIZED, "The user name of the SCRAM exchange is not the one of this connection")
        refused = self._refuse_if_blocked(request, proving)
        if refused is not None:
            return refused
        request.state = exchange
        return Continue(challenge)

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
        namespace, name = request.namespace, token.username
        if name is not None:  # what the client said to be called is not believed, nor the namespace in it
            namespace, name = request.locate(name)
        elif not request.is_namespace_proved():
            return Refuse(NOT_AUTHORIZED, "The token names no user, and so does not prove this namespace")
        if token.rights is not None:
            principal = Principal(request.client_id, name and unqualified(namespace, name), request.peer)
            own = grant(token.rights.publish, token.rights.subscribe, principal, token.rights.capture)
        expires_at_ms = 0
        if token.expires_at_wall_ms is not None:
            expires_at_ms = max(1, request.now_ms + token.expires_at_wall_ms - wall_ms)
        return self._accept(request, name, namespace, own=own, expires_at_ms=expires_at_ms)

    def _judge_password(self, request: AuthRequest) -> Verdict | None:
        name, password = request.username, request.password
        if name is None or password is None or len(password) > PASSWORD_BYTES_MAX:
            return Refuse(BAD_USER_NAME_OR_PASSWORD, _WRONG)
        user = self._directory.with_password(name)
        # A user that does not exist takes the same way and the same time.
        password_hash = user.password_hash if user is not None else self._directory.dummy_hash()
        if not password_hash:
            return Refuse(BAD_USER_NAME_OR_PASSWORD, _WRONG)
        tag = self._cache.tag(name, password, password_hash)
        if user is not None and self._cache.holds(tag, request.now_ms):
            return self._accept(request, name, request.namespace)
        check = Check(
            network_of(request.peer),
            password_hash,
            password,
            lambda matches: self._hashed(request, user, tag, matches=matches),
            lambda: not request.abandoned,
        )
        return None if self._hashing().submit(check) else _BUSY

    def _remembered(self, request: AuthRequest) -> Verdict | None:
        """Let a refused address in after all: with a login that was right not long ago."""
        name, password = request.username, request.password
        if name is None or password is None or request.method is not None or not len(self._cache):
            return None
        if request.certificate_name is not None and self.settings.use_certificate_as_username:
            return None
        user = self._directory.with_password(name) if len(password) <= PASSWORD_BYTES_MAX else None
        if user is None or not self._cache.holds(self._cache.tag(name, password, user.password_hash), request.now_ms):
            return None
        return self._accept(request, name, request.namespace)

    def _hashing(self) -> HashingPool:
        if self._pool is None:
            settings = self.settings
            self._pool = HashingPool(
                threads_for(settings.hash_threads),
                settings.hash_queue_max,
                settings.hash_queue_per_peer_max,
                self._call_soon,
                lambda peer: self._throttle.has_failed(peer, self._now_ms),
            )
        return self._pool

    def _hashed(self, request: AuthRequest, user: User | None, tag: bytes, *, matches: bool | None) -> None:
        """A password was compared, maybe long after it was asked for; or gave way to others (None)."""
        if matches is None:
            self._deliver(request, _BUSY)
            return
        verdict = self._refuse_if_blocked(request, request.username)  # guesses made at once count one by one
        known = self._directory.find(request.username or "")
        if verdict is None and known != user and (user is not None or (known is not None and known.password_hash)):
            verdict = self._judge_password(request)  # users changed meanwhile: only the new password counts
            if verdict is None:
                return
        elif verdict is None and user is not None and matches:
            self._cache.add(tag, request.now_ms)
            self._throttle.succeeded(user.name)
            verdict = self._accept(request, user.name, request.namespace)
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
        namespace: str,
        *,
        own: Selection | None = None,
        expires_at_ms: int = 0,
        data: bytes | None = None,
    ) -> Accept:
        claims = Grant(own) if own is not None else None
        superuser = self._is_superuser(username)
        identity = Identity(request.client_id, username, superuser, claims, namespace, request.peer)
        return Accept(identity, expires_at_ms, data)

    def _is_superuser(self, username: str | None) -> bool:
        return username is not None and username in self.settings.superusers

    # --- what -------------------------------------------------------------------------------------------------------

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        """Whether this identity may publish to this name; a delayed message is judged by where it goes."""
        while topic.startswith(DELAYED_PREFIX):
            _, slash, target = topic[len(DELAYED_PREFIX) :].partition(b"/")
            if not slash:
                break
            topic = target
        own = own_name(identity, topic)
        return own is not None and self._may(identity, "publish", parse_name(own))

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        """Whether this identity may read all names that this filter matches."""
        own = own_name(identity, topic_filter)
        return own is not None and self._may(identity, "subscribe", parse_filter(own))

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        """Whether messages that this filter matches may be stored for a persistent session of this identity."""
        own = own_name(identity, topic_filter)
        return own is not None and self._may(identity, "capture", parse_filter(own))

    def _may(self, identity: Identity, action: Action, wanted: Filter) -> bool:
        if identity.superuser:
            return True
        claims = identity.claims
        if not isinstance(claims, Grant):
            # Most brokers have no rules: their connections then cost no object more. Rules may come at any time.
            rules = self._directory.rules(identity)
            if rules is NO_RULES:
                return rules.decide(action, wanted)
            claims = identity.claims = Grant(None)
            claims.rules, claims.version = rules, self.version
        if claims.own is not None:
            return claims.own.decide(action, wanted)
        if claims.rules is None or claims.version != self.version:
            claims.rules, claims.version = self._directory.rules(identity), self.version
        return claims.rules.decide(action, wanted)


def _scram_name(request: AuthRequest, name: str) -> tuple[str, str]:
    """Namespace and whole name of the user of a SCRAM exchange: CONNECT or the exchange may name the namespace."""
    asked = request.username
    if asked is not None and name in (asked, unqualified(request.namespace, asked)):
        return request.namespace, asked
    return request.locate(name)
