"""What load to make, as values: where (``Target``), what (``Load``), and which client publishes and hears which topic.

```
 Load(publishers=2, subscribers=2, topics=4)          publisher 0 -> topics 0 2     subscriber 0 <- topics 0 2
                                                      publisher 1 -> topics 1 3     subscriber 1 <- topics 1 3
 Load(publishers=4, subscribers=2, topics=2)          publishers 0 2 -> topic 0     subscriber 0 <- topic 0 ...
```
Topic names are padded to one length, so all packets of a run have one size; that is what lets the engine count by
multiplication. What subscribers should receive follows from what was sent: ``expected`` says how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flockmq.errors import FlockError

TRANSPORTS: Final = ("tcp", "tls", "ws", "wss")
FILTERS: Final = ("each", "plus", "wild", "share")

FRESH_DIGITS: Final = 10
STAMP_BYTES: Final = 8
TOPICS_PER_PUBLISHER_MAX: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker and how to reach it."""

    host: str = "127.0.0.1"
    port: int = 1883
    more_ports: tuple[int, ...] = ()
    """Of further nodes on the same host: clients are spread over all of them in turn, subscribers first."""
    transport: str = "tcp"
    path: str = "/mqtt"
    """Where MQTT lives on a WebSocket listener."""
    ca_file: str = ""
    """Certificate authority to trust for TLS; empty means those of the system."""
    insecure: bool = False
    """Accept any certificate: for measuring a test set-up, never for more."""
    username: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise FlockError(f"Transport {self.transport!r} is unknown; use one of {', '.join(TRANSPORTS)}")
        if not 0 < self.port < 65_536:
            raise FlockError(f"Port {self.port} is not between 1 and 65535")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.transport in {"tls", "wss"}

    @property
    def websocket(self) -> bool:
        """Whether MQTT travels in WebSocket frames."""
        return self.transport in {"ws", "wss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The work. A run ends after ``messages`` of each publisher, or, where that is 0, after ``seconds``."""

    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    subscriptions: int = 0
    """With filter ``plus``: how many filters the subscribers hold in all; those beyond ``topics`` match nothing."""
    qos: int = 0
    payload_bytes: int = 64
    messages: int = 0
    seconds: float = 5.0
    window: int = 100
    """QoS 1 and 2: how many messages of a publisher may be unacknowledged. More hides latency, less shows it."""
    rate: float = 0.0
    """Messages a second of all publishers together, each stamped for latency; 0 means as fast as possible."""
    filter: str = "each"
    """``each``: exact names; ``plus``: one ``+`` filter a topic; ``wild``: all hear all; ``share``: one group."""
    version: int = 4
    """Protocol level of publishers, and of subscribers unless ``subscriber_version`` says otherwise: 4 or 5."""
    subscriber_version: int = 0
    user_properties: int = 0
    topic_alias: bool = False
    fresh_names: bool = False
    """Publish every message to a name that was never seen before, one level below its topic."""
    retain: bool = False
    persistent: bool = False
    """Sessions of subscribers outlive their connections."""
    prefix: str = "bench"
    idle_s: float = 3.0
    """How long nothing may move before what is missing counts as lost."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise FlockError(problem)

    def _problems(self) -> list[str]:
        checks = [
            (
                self.publishers < 0 or self.subscribers < 0,
                "Publishers and subscribers can't be fewer than none",
            ),
            (
                self.publishers + self.subscribers == 0,
                "Nothing to do: no publishers, no subscribers",
            ),
            (self.topics < 1, "At least one topic is needed"),
            (self.qos not in {0, 1, 2}, f"QoS {self.qos} does not exist; use 0, 1 or 2"),
            (self.version not in {4, 5}, f"Protocol level {self.version} is unknown; use 4 (MQTT 3.1.1) or 5"),
            (self.subscriber_version not in {0, 4, 5}, "The subscribers' protocol level is 4 (MQTT 3.1.1) or 5"),
            (self.filter not in FILTERS, f"Filter {self.filter!r} is unknown; use one of {', '.join(FILTERS)}"),
            (not 1 <= self.window <= 16_000, "The window is between 1 and 16000 messages"),
            (self.payload_bytes < 0, "The payload can't be shorter than nothing"),
            (self.rate < 0 or self.seconds < 0 or self.messages < 0, "Rate, seconds and messages can't be negative"),
            (self.messages == 0 and self.seconds == 0, "Say when to end: a number of messages or of seconds"),
            (
                self.rate > 0 and self.payload_bytes < STAMP_BYTES,
                f"Latency needs a payload of at least {STAMP_BYTES} bytes to carry the time of sending",
            ),
            (
                (self.user_properties > 0 or self.topic_alias) and self.version != 5,
                "User properties and topic aliases need MQTT 5; add --mqtt 5",
            ),
            (self.fresh_names and self.topic_alias, "Names that are never seen twice can't have aliases"),
            (
                self.fresh_names and self.filter == "each",
                "Fresh names need filter plus, wild or share",
            ),
            (
                bool(self.subscriptions) and (self.filter != "plus" or self.subscriptions < self.topics),
                "A number of subscriptions goes with filter plus and is at least that of the topics",
            ),
            (
                self.publishers > 0 and self.topics > self.publishers * TOPICS_PER_PUBLISHER_MAX,
                f"A publisher takes at most {TOPICS_PER_PUBLISHER_MAX} topics; add publishers",
            ),
            (
                not self.prefix or any(mark in self.prefix for mark in "+#\0"),
                "The topic prefix can't be empty or hold + or #",
            ),
        ]
        return [text for wrong, text in checks if wrong]

    @property
    def timed(self) -> bool:
        """Whether messages carry the time of sending."""
        return self.rate > 0

    @property
    def version_of_subscribers(self) -> int:
        """Protocol level of the subscribers."""
        return self.subscriber_version or self.version


def topic_name(load: Load, topic: int) -> str:
    """Name of one topic; always the same length within a load."""
    width = len(str(max(load.topics, load.subscriptions) - 1))
    name = f"{load.prefix}/{topic:0{width}d}"
    if load.fresh_names:
        return f"{name}/{0:0{FRESH_DIGITS}d}"
    return f"{name}/value" if load.filter == "plus" else name


def topics_of_publisher(load: Load, publisher: int) -> range:
    """The topics one publisher goes through, again and again."""
    if load.topics <= load.publishers:
        topic = publisher % load.topics
        return range(topic, topic + 1)
    return range(publisher, load.topics, load.publishers)


def topics_of_subscriber(load: Load, subscriber: int) -> range:
    """The topics one subscriber names in its filters (not used where one filter matches all)."""
    topics = load.subscriptions or load.topics
    if topics <= load.subscribers:
        topic = subscriber % topics
        return range(topic, topic + 1)
    return range(subscriber, topics, load.subscribers)


def filters_of_subscriber(load: Load, subscriber: int) -> list[str]:
    """The filters one subscriber asks for."""
    if load.filter == "wild":
        return [f"{load.prefix}/#"]
    if load.filter == "share":
        return [f"$share/bench/{load.prefix}/#"]
    names = [topic_name(load, topic) for topic in topics_of_subscriber(load, subscriber)]
    return [name.rpartition("/")[0] + "/+" for name in names] if load.filter == "plus" else names


def expected(load: Load, sent: Sequence[int]) -> int:
    """How many messages all subscribers together should receive when publisher ``i`` has sent ``sent[i]``."""
    if load.filter == "wild":
        return sum(sent) * load.subscribers
    if load.filter == "share":
        return sum(sent) if load.subscribers else 0
    hearers: dict[int, int] = {}
    for subscriber in range(load.subscribers):
        for topic in topics_of_subscriber(load, subscriber):
            hearers[topic] = hearers.get(topic, 0) + 1
    total = 0
    for publisher, count in enumerate(sent):
        topics = topics_of_publisher(load, publisher)
        laps, rest = divmod(count, len(topics))
        total += sum(hearers.get(topic, 0) * (laps + (at < rest)) for at, topic in enumerate(topics))
    return total
