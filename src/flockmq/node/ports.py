"""What the broker asks of the packages around it: a gate, and six ports that a node alone leaves empty.

| port | asks | implemented by |
| --- | --- | --- |
| ``Gate`` | may this client connect, publish, subscribe? | ``security/`` |
| ``OwnerPort`` | may this node have the client id? | ``durable/sessions/owning.py`` |
| ``SubscribePort`` | do all nodes know of this subscription? | ``peering/routes.py`` |
| ``DurablePort`` | append this run to the log of its topic | ``durable/publish/`` |
| ``LogPort`` | bring records of a log to this subscription | ``durable/deliver/`` |
| ``SessionPort`` | keep this session in the log | ``durable/sessions/`` |
| ``GroupPort`` | let this client be a member of a group | ``durable/groups/`` |

```
 CONNECT ----> gate.authenticate(request) ----> Accept | Refuse | Continue       answered at once
                                          `---> None: later, broker.auth_result(request, verdict, now)
 AUTH -------> gate.resume(request, data) ----> the same
 PUBLISH ----> gate.may_publish(identity, topic)        SUBSCRIBE ----> gate.may_subscribe(identity, filter)
```
The answers of ``may_*`` are cached by the broker per connection until ``gate.version`` changes. Names and filters of a
namespace come with its prefix (``$ns/NAME/``), which is always that of the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from flockmq.mqtt.packets import Suback
    from flockmq.mqtt.run import Run
    from flockmq.routing.durable import DurableTopic
    from flockmq.routing.subscription import Subscription
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session
    from flockmq.session.space import Spaces

CLAIMED: Final = 1
CLAIM_WAITS: Final = 0
CLAIM_BUSY: Final = -1
PENDING: Final = -2
"""Instead of a reason code: the answer comes later."""
NAMESPACE_FULL: Final = -3
"""Instead of a reason code: the durable topics of this namespace are at their limit of bytes."""
TOO_LARGE: Final = -4
"""Instead of a reason code: no log takes so large a message."""
CUT_OFF: Final = -5
"""Instead of a reason code: this node can't know whether a persistent session waits for the message."""
NOT_KEPT: Final = -7
"""Instead of a reason code: there is no room to retain the message."""
BEYOND_CAPTURE: Final = -6
"""Instead of a reason code: the namespace is at its limit of captured bytes a second."""


@dataclass(slots=True)
class Identity:
    """The client and user behind a connection. ``claims`` belongs to the gate (for example ACL rules out of a JWT).

    Outside the default namespace ``username`` is ``NAMESPACE/NAME``; ``client_id`` is as the client sent it.
    """

    client_id: str
    username: str | None = None
    superuser: bool = False
    claims: object = None
    namespace: str = DEFAULT_NAMESPACE
    peer: str = ""
    """The address of the client, for rules that come later than the connection; empty where there is none."""


Identify = Callable[[str, str | None, str, str], Identity | None]
"""Finds the identity of a session without a connection, by client id, user name, namespace, and the last address of its
client; None: the identity can't be known."""


@dataclass(slots=True, kw_only=True)
class AuthRequest:
    """All that a client brought to prove its identity. ``state`` is the gate's own between two steps of an exchange."""

    connection_id: int
    client_id: str
    username: str | None
    password: bytes | None = field(repr=False)
    method: str | None
    data: bytes | None = field(repr=False)
    listener: str
    peer: str
    """Address of the client, without port; what PROXY protocol said, where a listener trusts it."""
    certificate_name: str | None
    """Common name of a verified client certificate; empty when it has several, and so names no user."""
    now_ms: int
    state: object = field(default=None, repr=False)
    namespace: str = DEFAULT_NAMESPACE
    """Which one the client asks for: by its user name, or by its listener. ``username`` has it in front, but for the
    default one."""
    spaces: Spaces | None = field(default=None, repr=False)
    """All there are, to find the namespace of a name that was proved in another way (certificate, token)."""
    abandoned: bool = False
    """The connection is gone: no verdict is wanted any more."""

    def locate(self, name: str) -> tuple[str, str]:
        """The namespace of a proved name, and the name with its namespace."""
        return self.spaces.locate(name, self.listener) if self.spaces is not None else (DEFAULT_NAMESPACE, name)

    def is_known(self) -> bool:
        """Whether this node knows the clients that the cluster agreed on, as far as there are any."""
        return self.spaces is None or self.spaces.is_known

    def is_namespace_proved(self) -> bool:
        """Whether the namespace that is asked for needs no proof: it is the listener's."""
        return self.spaces is None or self.namespace == self.spaces.of_listener(self.listener)


@dataclass(frozen=True, slots=True)
class Accept:
    """Let the client in. ``expires_at_ms`` is the end of the connection (token expiry), 0 means never."""

    identity: Identity
    expires_at_ms: int = 0
    data: bytes | None = None
    """Authentication data for the CONNACK or the last AUTH packet."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the client, with an MQTT 5 reason code (mapped for 3.1.1) and a sentence that gives away no secret."""

    reason_code: int
    text: str


@dataclass(frozen=True, slots=True)
class Continue:
    """Send AUTH with this data and wait for the client's next step."""

    data: bytes


Verdict = Accept | Refuse | Continue


class Gate(Protocol):
    """Authentication and authorisation, behind which files, hashing threads and clocks may live."""

    version: int
    """Grows whenever an answer of ``may_*`` could have changed."""

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        """Judge a CONNECT; None when the verdict will come through ``Broker.auth_result``."""

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        """Judge the client's next AUTH step of the exchange that ``request.state`` belongs to."""

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        """Whether this identity may publish to this (valid) topic name."""

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        """Whether this identity may subscribe to this (valid) filter; ``$share/group/`` is already off."""

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        """Whether publishers may have to store messages for this identity on a filter that it may subscribe to."""


class SubscribePort(Protocol):
    """The other nodes of the cluster: a SUBACK promises that they know the subscription."""

    def hold(
        self,
        connection: Connection,
        session: Session,
        suback: bytes,
        entered: list[Subscription],
        fresh: list[Subscription],
        now: int,
    ) -> bool:
        """Keep a SUBACK until all nodes know ``entered``, then call ``subscribed``; False: they do, answer at once."""


class DurablePort(Protocol):
    """Where messages of durable topics go: into a log, and from there to all that want them."""

    def append(
        self,
        topic: DurableTopic,
        run: Run,
        connection: Connection | None,
        now: int,
        client_id: str = "",
        is_repeat: bool = False,
    ) -> int:
        """Take a run: ``PENDING``, it will be acknowledged; or why not: a reason code or one of those above.

        Without a connection no client waits for an acknowledgement, and ``client_id`` names the publisher.
        ``is_repeat``: their client says that it sent them before, and so they may be in the log already.
        """

    def repeat(self, connection: Connection, packet_id: int) -> bool:
        """A QoS 2 message without an outcome came again: acknowledge both when it has one; False: it has one now."""

    def release(self, connection: Connection, packet_ids: list[int], now: int) -> int:
        """PUBREL. Any result but ``PENDING``: no log holds the ids, go on.

        ``PENDING``: PUBCOMP follows when the logs have forgotten these ids, and so has the session by then.
        """


class LogPort(Protocol):
    """The logs of durable topics, for subscribers: history on request, and the offset at which it goes live."""

    def refusal(self, topic_filter: bytes, start: bytes) -> str:
        """Why history can't be replayed from ``start`` for this filter; empty: it can."""

    def entered(self, subscription: Subscription, old: Subscription | None, start: bytes, now: int) -> None:
        """A subscription is in the table, maybe in place of an old one; ``start``: where its history begins."""

    def left(self, subscription: Subscription) -> None:
        """A subscription was taken out of the table."""

    def arrived(self, session: Session, now: int) -> None:
        """A session came from another node, with its places; its subscriptions stand in the table."""

    def resumed(self, session: Session) -> None:
        """The client of a session is back, and takes what waits in logs."""

    def ended(self, session: Session) -> None:
        """A session is no more."""

    def hold(
        self,
        connection: Connection,
        session: Session,
        suback: Suback,
        entered: list[Subscription],
        fresh: list[Subscription],
        now: int,
    ) -> bool:
        """Keep a SUBACK until the starts of ``entered`` are known, then call ``answer``; False: they are known now."""


class OwnerPort(Protocol):
    """Decides, among several nodes, which one has the session of a client id. A node without a store has no such port.

    ```
     CONNECT, accepted --> claim --> CLAIMED: go on                                     at once
                                 `-> CLAIM_WAITS: later, broker.claimed(connection, now), or the client is refused
    ```
    """

    def claim(self, connection: Connection, client_id: str) -> int:
        """Ask for the client id of an admission: ``CLAIMED``, ``CLAIM_WAITS`` or ``CLAIM_BUSY``."""

    def ended(self, session: Session) -> None:
        """A session of this node is no more."""


class Claimed:
    """The result of a claim, with the record."""

    def __init__(
        self,
        code: int,
        text: str,
        record: object = None,
        is_certain: bool = True,
        keeps_will: bool = False,
    ) -> None:
        self.code = code
        """0, or the reason code of the refusal."""
        self.text = text
        self.record = record
        """The record, in the keeper's own form; None: the session has none and ends with its connection."""
        self.standing: object = None
        """The session's standing as its former owner told it, in the keeper's own form; None: no node told one."""
        self.keeps_will = keeps_will
        """The record has the will of this connection."""
        self.is_certain = is_certain
        """False: the log could not be asked, and may have a record all the same."""


class SessionPort(Protocol):
    """Keeps persistent sessions in a replicated log. A node without durable topics has no such port."""

    def abandoned(self, claimed: Claimed) -> None:
        """A client does not get the session that it claimed."""

    def is_outdated(self, session: Session, claimed: Claimed) -> bool:
        """Whether a session that is here is older than the record."""

    def restore(self, client_id: str, claimed: Claimed, now: int) -> Session | None:
        """Make the session of a record whose copy is not on this node; None: the record had no session to continue."""

    def attached(self, session: Session, claimed: Claimed, now: int) -> None:
        """A client has its session."""

    def hold(
        self,
        connection: Connection,
        session: Session,
        suback: Suback,
        entered: list[Subscription],
        fresh: list[Subscription],
    ) -> bool:
        """Keep a SUBACK until the log has the subscriptions, then call ``tell_routes``; False: there is no record."""

    def hold_unsuback(
        self, connection: Connection, session: Session, full_filters: list[bytes], unsuback: bytes
    ) -> bool:
        """Keep an UNSUBACK until the log has these subscriptions no more; False: there is no record."""

    def revoked(self, session: Session, full_filters: list[bytes]) -> None:
        """Subscriptions of a session were taken away: the log must not have them any more."""

    def users_removed(self, users: frozenset[str]) -> None:
        """These users are no more: their sessions that no node has end, too."""

    def detached(self, session: Session) -> None:
        """A session has lost its connection, and outlives it."""

    def ended(self, session: Session) -> None:
        """A session is over."""

    def will_revoked(self, session: Session) -> None:
        """The will of a connected client must not be published."""


class GroupPort(Protocol):
    """Consumer groups, for clients that are members of them while they are connected."""

    def join(
        self,
        session: Session,
        full_filter: bytes,
        name: bytes,
        inner: bytes,
        identifier: int,
        wants_info: bool,
    ) -> tuple[int, str]:
        """Make a connected client a member: reason code 0, or another one and why."""

    def leave(self, session: Session, full_filter: bytes) -> None:
        """A client unsubscribes: what it has goes to other members."""

    def detached(self, session: Session) -> None:
        """A client is gone: what it has goes to other members."""

    def resumed(self, session: Session) -> None:
        """A client is back in its session, and is a member again."""


class BrokerPorts(Protocol):
    """The parts of a node that its broker calls. The broker gets them as one value when it is made."""

    @property
    def ownership(self) -> OwnerPort | None:
        """Gives each client id's session to one node of the cluster; None: this node has all sessions."""

    @property
    def routes(self) -> SubscribePort | None:
        """Know whether all nodes have heard of a subscription; None: this node is alone."""

    @property
    def appending(self) -> DurablePort | None:
        """Takes messages of durable topics; None: there are no such topics."""

    @property
    def replay(self) -> LogPort | None:
        """Brings messages of durable topics to subscribers; None: there are no such topics."""

    @property
    def sessions(self) -> SessionPort | None:
        """Keeps persistent sessions in the log; None: they live in the memory of this node."""

    @property
    def groups(self) -> GroupPort | None:
        """Lets clients be members of consumer groups; None: there are no such groups."""


class Alone:
    """The ports of a broker without other nodes and durable topics."""

    ownership: OwnerPort | None = None
    routes: SubscribePort | None = None
    appending: DurablePort | None = None
    replay: LogPort | None = None
    sessions: SessionPort | None = None
    groups: GroupPort | None = None


class OpenGate:
    """Lets every client in: the gate of ``--allow-anonymous`` without any file."""

    version = 0

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        """Accept, unless the client asks for an enhanced authentication, which an open gate has none of."""
        if request.method is not None:
            return Refuse(0x8C, f"Authentication method {request.method[:64]!r} is not supported")
        return Accept(Identity(request.client_id, request.username, namespace=request.namespace, peer=request.peer))

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:  # noqa: ARG002
        """No exchange was ever started here."""
        return Refuse(0x8C, "No enhanced authentication is in progress")

    def may_publish(self, identity: Identity, topic: bytes) -> bool:  # noqa: ARG002
        """Everything is allowed."""
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:  # noqa: ARG002
        """Everything is allowed."""
        return True

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:  # noqa: ARG002
        """Everything is allowed."""
        return True
