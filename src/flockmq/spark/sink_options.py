"""The options and columns of a query that writes: what they may be, and what a wrong one is told.

```
 option("...")  --> SinkOptions (frozen, pickled into tasks)      topic | clientId | query + batch | those of servers
 df.schema      --> SinkColumns                                   topic name | payload | qos | retain | headers | key
     `-- missing, unknown, of a wrong type: one sentence with what is right
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from flockmq.admin.durable_sinks_model import QUERY_CHARS_MAX
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt.topics import check_topic_name
from flockmq.spark.options import spelled
from flockmq.spark.schema import COLUMNS
from flockmq.spark.servers import SERVER_OPTIONS, Servers

NAMES: Final = (*SERVER_OPTIONS, "topic", "clientId", "query", "batch")
CLIENT_ID: Final = "spark"
_IGNORED: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark puts among the options for itself."""
_BY_LOWER: Final = {name.lower(): name for name in NAMES} | {"path": "topic"}
"""``path`` stands for topic, as in ``save("plant/summary")``."""

EXPECTED: Final = (
    "payload or value (binary or string), and where they are wanted mqtt_topic or topic (string), qos (0, 1 or 2), "
    "retain (boolean), headers (array<struct<key string, value string>>), key (binary or string)"
)
_TOPICS: Final = ("mqtt_topic", "topic")
_PAYLOADS: Final = ("payload", "value")
_OWN: Final = frozenset({*_TOPICS, *_PAYLOADS, "qos", "retain", "headers", "key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """See the module."""

    servers: Servers
    topic: str = ""
    """MQTT topic name of all rows; empty: each row has its own."""
    client_id: str = CLIENT_ID
    query: str = ""
    """Name of the writer, when a program gives it (``foreachBatch``); empty: Spark's own, or a new one per write."""
    batch: int = 0

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """From Spark's options; FlockError says what is wrong."""
        has_topic = any(name.lower() == "topic" for name in options)
        ignored = _IGNORED | ({"path"} if has_topic else set())
        own = {name: value for name, value in options.items() if name.lower() not in ignored}
        given = spelled(own, _BY_LOWER, "The sink has")
        topic = given.get("topic", "")
        if topic:
            try:
                check_topic_name(topic.encode())
            except RemoteProtocolError as error:
                raise FlockError(f"Option topic={topic!r} can't be published to: {error}") from None
        if ("query" in given) != ("batch" in given):
            raise FlockError("Options query and batch belong together: the writer's name, and the number of this write")
        query = given.get("query", "")
        if "query" in given and not 0 < len(query) <= QUERY_CHARS_MAX:
            raise FlockError(f"Option query is a name of 1 to {QUERY_CHARS_MAX} characters, not {query[:40]!r}")
        batch = given.get("batch", "0").strip()
        if not (batch.isascii() and batch.isdecimal()):
            raise FlockError(f"Option batch is a number of 0 or more that grows with each write, not {batch!r}")
        return cls(
            servers=Servers.from_options(given),
            topic=topic,
            client_id=given.get("clientId") or CLIENT_ID,
            query=query,
            batch=int(batch),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """Which column of the rows is what; empty where there is none."""

    payload: str
    topic: str = ""
    qos: str = ""
    retain: str = ""
    headers: str = ""
    key: str = ""

    @classmethod
    def of(cls, schema: StructType, *, fixed_topic: bool) -> SinkColumns:
        """Those of a query; FlockError when one is missing, unknown or of a wrong type.

        Columns that only reading gives (``offset``, ``timestamp``, ...) are left alone, so that what was read can be
        written.
        """
        types = {field.name.lower(): (field.name, field.dataType) for field in schema}
        for lower, (name, _kind) in types.items():
            if lower not in _OWN and lower not in COLUMNS:
                raise FlockError(f"The sink does not know column {name!r}; it takes {EXPECTED}: select these")
        payload = next((one for one in _PAYLOADS if one in types), "")
        if not payload:
            raise FlockError(f"The rows have no payload, only {_listed(schema)}; the sink takes {EXPECTED}")
        topic = "" if fixed_topic else next((one for one in _TOPICS if one in types), "")
        if not topic and not fixed_topic:
            raise FlockError("The rows have no topic to go to: set option topic, or add a column mqtt_topic")
        found = {"payload": payload, "topic": topic}
        found |= {one: one for one in ("qos", "retain", "headers", "key") if one in types}
        for role, lower in found.items():
            if lower:
                name, kind = types[lower]
                _check(role, name, kind)
                found[role] = name
        return cls(**found)


def _listed(schema: StructType) -> str:
    return ", ".join(schema.fieldNames()) or "nothing"


def _check(role: str, name: str, kind: DataType) -> None:
    wanted: tuple[type[DataType], ...] = {
        "payload": (BinaryType, StringType),
        "topic": (StringType,),
        "qos": (ByteType, ShortType, IntegerType, LongType),
        "retain": (BooleanType,),
        "key": (BinaryType, StringType),
    }.get(role, ())
    if role == "headers":
        is_right = _is_headers(kind)
        what = "array<struct<key string, value string>>"
    else:
        is_right = isinstance(kind, wanted)
        what = " or ".join(one().simpleString() for one in wanted)
    if not is_right:
        hint = "; make it one, for example with to_json(struct(...))" if role == "payload" else ""
        raise FlockError(f"Column {name} of the sink is of type {what}, not {kind.simpleString()}{hint}")


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return [field.name.lower() for field in fields] == ["key", "value"] and all(
        isinstance(field.dataType, StringType) for field in fields
    )
