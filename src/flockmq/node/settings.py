"""What can be set about the broker's behaviour, as frozen values. Units stand in the names; 0 means no limit.

``Limits`` belong to a listener (each may have its own), ``BrokerSettings`` to the whole node. The configuration
layer reads files and environment into these; nothing here knows where a value came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHARED_STRATEGIES = ("random", "round_robin", "sticky", "hash_client", "hash_topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client connection may cost."""

    packet_bytes_max: int = 1_048_576
    """Largest packet accepted. Higher lets clients send more at once and hold more memory while doing so."""
    connect_bytes_max: int = 65_536
    """Largest packet accepted before a client is let in: its CONNECT, with will and password, and its AUTHs. Higher
    lets clients have larger wills, and strangers hold and cost more."""
    connect_properties_max: int = 64
    """Most properties in such a packet, and in a will. Each is decoded before the client is known."""
    properties_max: int = 1_024
    """Most properties in any later packet. Higher lets clients add more user properties to a message, and lets one
    packet take longer."""
    filters_max: int = 4_096
    """Most topic filters in one SUBSCRIBE or UNSUBSCRIBE. One packet is worked on at a stretch, so higher lets a client
    make the others wait longer."""
    connect_timeout_ms: int = 10_000
    """How long a connection may take from its acceptance to the last byte of its CONNECT, TLS and WebSocket included.
    Lower frees sockets sooner, higher suits slow radios."""
    packet_bytes_per_s_min: int = 1_024
    """Slowest that a packet may come in once it has begun: it may take 30 seconds, and then as long as its bytes take
    at this rate. The keep alive holds beside it: within 1.5 times that a whole packet must come."""
    keep_alive_s_max: int = 0
    """Longest keep alive granted; MQTT 5 clients are told (Server Keep Alive). Lower finds dead clients sooner."""
    inflight_max: int = 1_024
    """Most QoS 1 and 2 messages sent to a client and not yet acknowledged, also when it allows more."""
    receive_max: int = 1_024
    """Most QoS 2 messages of a client that wait for their release; told to MQTT 5 clients as Receive Maximum."""
    queue_messages_max: int = 10_000
    """Most QoS 1 and 2 messages waiting for one session. When full, new ones are dropped and counted."""
    queue_bytes_max: int = 16_777_216
    """Most bytes held for one session: waiting and in flight."""
    write_bytes_max: int = 8_388_608
    """Most bytes waiting for a client that reads slowly. When full, QoS 0 messages to it are dropped and counted."""
    topic_levels_max: int = 128
    """Most levels in a topic name or filter."""
    topic_bytes_max: int = 65_535
    """Longest topic name or filter, in bytes of UTF-8."""
    topic_aliases_max: int = 64
    """Topic aliases a client may set, and most that the broker sets towards it. Each holds one topic name."""
    subscriptions_max: int = 10_000
    """Most subscriptions of one session; filters of more than 16 levels or a kilobyte count as several."""
    messages_per_s_max: int = 0
    """Most PUBLISH packets a second from one client, with a burst of one second's worth."""
    connections_max: int = 0
    """Most connections on the listener at once."""
    connections_per_s_max: int = 0
    """Most new connections a second on the listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What holds for the node as a whole."""

    node_name: str = "flockmq@127.0.0.1"
    """Name in logs, metrics and ``$SYS`` topics, as ``name@host``."""
    limits: Limits = field(default_factory=Limits)
    """Limits of listeners that bring none of their own."""
    sessions_max: int = 1_000_000
    """Most sessions, connected or not. A CONNECT beyond it is refused with Quota exceeded."""
    connections_max: int = 0
    """Most connections on all listeners together. 0: what the limit of open files leaves when the store, other nodes
    and the admin API have theirs. A node without free files can neither store nor talk to others."""
    strangers_max: int = 16_384
    """Most connections that are not let in yet, on all listeners together; one more, and the oldest of them is closed.
    Never more than half of `connections_max`, or 16. Higher takes larger storms of clients that come back, and costs
    some kilobytes for each."""
    strangers_bytes_max: int = 16_777_216
    """Most bytes of half-sent CONNECTs, and of CONNECTs whose sender is being judged, held for all of them together;
    beyond it the connections that hold bytes for the longest time are closed."""
    session_expiry_s_max: int = 604_800
    """Longest life of a session without its client; also the life of 3.1.1 sessions that are not clean."""
    resumes_per_s_max: int = 1_000
    """Most clients a second that come back to persistent sessions on this node. The others wait for up to 8 seconds, in
    turn by namespace, or are refused with Server busy. Higher takes storms sooner, and lets live traffic wait."""
    retained_messages_max: int = 100_000
    """Most retained messages. A QoS 1 or 2 publish beyond it is refused with Quota exceeded."""
    retained_bytes_max: int = 268_435_456
    """Most bytes in retained messages."""
    retained_tombstone_s: int = 604_800
    """How long the nodes of a cluster remember that a retained message was deleted. A node that was away for longer
    brings back what was deleted meanwhile; longer costs memory for each deletion."""
    delayed_messages_max: int = 100_000
    """Most ``$delayed/`` messages waiting for their time."""
    delayed_bytes_max: int = 67_108_864
    """Most bytes in ``$delayed/`` messages."""
    delayed_s_max: int = 4_294_967
    """Longest delay of a ``$delayed/`` message."""
    shared_strategy: str = "round_robin"
    """How a shared subscription picks the member that gets a message."""
    shared_local_first: bool = False
    """Whether members on the publisher's node go before those on other nodes. On saves hops, off spreads evenly."""
    forward_bytes_max: int = 67_108_864
    """Most bytes of messages that wait for one other node, and as many that it has not acknowledged."""
    forward_grace_ms: int = 5_000
    """How long publishers wait for another node that takes no more; about the time in which a dead one is found."""
    sys_interval_ms: int = 10_000
    """Gap between two updates of the ``$SYS`` topics; 0 turns them off."""
    plan_cache_max: int = 65_536
    """Topic names whose routes are kept ready. Higher suits fleets with many topics and costs memory."""
    congestion_grace_ms: int = 250
    """How long publishers wait for a subscriber whose buffer is full before messages to it are dropped."""
    response_information: str = "response/"
    """Prefix of the Response Information given to MQTT 5 clients that ask for it; the client id follows."""
