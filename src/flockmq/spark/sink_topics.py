"""Which durable topic and shard a row belongs to: asked once for each topic name, not for each row.

```
 topic name --> Directory.home (kept) --> Home: durable topic | shard, or "its key decides"
                   `-- unknown name: the list of topics is fetched again --> still unknown: FlockError
```
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from flockmq.admin.durable_model import DataTopic
from flockmq.cluster.filters import internal_filter, namespace_prefix
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.topics import check_topic_name
from flockmq.routing.durable import BY_CLIENT, BY_PROPERTY, BY_TOPIC, DurableTopic, TopicMap, shard_of

BY_KEY: Final = -1
"""In place of a shard: the value of a user property decides, row by row."""
AGE_S_MAX: Final = 10.0
"""How long a list of topics is used: shards may be added meanwhile."""
NAMES_MAX: Final = 100_000


class Home(NamedTuple):
    """Where the rows of a topic name go."""

    topic: str
    """Durable topic."""
    shard: int
    """Or ``BY_KEY``; then rows without a key go to ``shard_without``."""
    shards: int
    key_property: str
    shard_without: int


class Directory:
    """The durable topics of a namespace; one per task or longer."""

    def __init__(self, namespace: str, client_id: str, topics: Callable[[], list[DataTopic]]) -> None:
        self.namespace = namespace
        self.prefix = namespace_prefix(namespace)
        self.client = self.prefix + client_id.encode()
        """In internal form, as all names in batches are."""
        self._ask = topics
        self._map = TopicMap()
        self._loaded_at = float("-inf")
        self._homes: dict[str, Home] = {}

    def refresh(self) -> None:
        """Fetch the list of topics if it is old. Called between tasks: within one, a name has one home."""
        if time.monotonic() - self._loaded_at >= AGE_S_MAX:
            self._load()
            self._homes.clear()

    def home(self, name: str) -> Home:
        """Where a topic name (in user form) belongs; FlockError when no durable topic captures it."""
        found = self._homes.get(name)
        if found is None:
            if len(self._homes) >= NAMES_MAX:
                self._homes.clear()
            found = self._homes[name] = self._find(name)
        return found

    def _load(self) -> None:
        self._map = TopicMap(topics=[_durable(one) for one in self._ask()])
        self._loaded_at = time.monotonic()

    def _find(self, name: str) -> Home:
        try:
            check_topic_name(name.encode())
        except RemoteProtocolError as error:
            raise FlockError(f"A row has the topic {name!r}, which can't be published to: {error}") from None
        internal = self.prefix + name.encode()
        topic = self._map.find(internal)
        if topic is None:
            self._load()  # it may be new
            topic = self._map.find(internal)
        if topic is None:
            raise FlockError(
                f"No durable topic of namespace {self.namespace!r} keeps what goes to {name!r}, so it can't be written "
                f"exactly once; create one, for example: flockmq topic create NAME --filter '{name}'"
            )
        shards = len(topic.groups)
        shard = shard_of(self.client if topic.key == BY_CLIENT else internal, shards)
        by_key = topic.key == BY_PROPERTY
        return Home(topic.name.decode(), BY_KEY if by_key else shard, shards, topic.key_property.decode(), shard)


def _durable(topic: DataTopic) -> DurableTopic:
    rule = {"topic": BY_TOPIC, "client": BY_CLIENT}.get(topic.key, BY_PROPERTY)
    return DurableTopic(
        topic.namespace.encode(),
        topic.name.encode(),
        [internal_filter(topic.namespace, one) for one in topic.filters],
        topic.groups,
        key=rule,
        key_property=topic.key.encode() if rule == BY_PROPERTY else b"",
    )
