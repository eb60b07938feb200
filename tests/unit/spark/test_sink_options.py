"""Options and columns of a sink: what is right becomes a value, what is wrong is told what would be right."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flockmq.errors import FlockError
from flockmq.spark.sink import FlockStreamWriter, FlockWriter
from flockmq.spark.sink_options import SinkColumns, SinkOptions

SERVER = {"server": "http://127.0.0.1:1", "token": "t"}


def pairs_of(value: DataType) -> DataType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "tinyint": ByteType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), StringType()),
    "pairs": pairs_of(StringType()),
    "numbers": pairs_of(IntegerType()),
}


def schema(text: str) -> StructType:
    """Columns as SQL writes them; SQL's own parser would need a JVM."""
    columns = [column.split() for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in columns])


EVERYTHING = (
    "topic string, partition int, offset bigint, timestamp timestamp, mqtt_topic string, client_id string, "
    "key binary, payload binary, qos int, retain boolean, headers pairs"
)


def test_options_in_any_case() -> None:
    found = SinkOptions.parse({**SERVER, "TOPIC": "plant/1", "clientid": "etl", "checkpointLocation": "/tmp/x"})
    assert (found.topic, found.client_id, found.query, found.batch) == ("plant/1", "etl", "", 0)
    assert found.servers.urls == ("http://127.0.0.1:1",)


def test_a_path_is_a_topic() -> None:
    assert SinkOptions.parse({**SERVER, "path": "plant/1"}).topic == "plant/1"
    assert SinkOptions.parse({**SERVER, "path": "plant/1", "topic": "plant/2"}).topic == "plant/2"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": "x"}, "no option 'topics'; did you mean topic\\? There are batch, ca, cert, clientId"),
        ({"subscribe": "x"}, "The sink has no option 'subscribe'"),
        ({"topic": "plant/#"}, "wildcard"),
        ({"query": "etl"}, "belong together"),
        ({"batch": "1"}, "belong together"),
        ({"query": "etl", "batch": "-1"}, "number of 0 or more"),
        ({"query": "", "batch": "1"}, "1 to 128 characters"),
        ({"query": "q" * 129, "batch": "1"}, "1 to 128 characters"),
    ],
)
def test_wrong_options(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(FlockError, match=sentence):
        SinkOptions.parse({**SERVER, **options})


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("mqtt_topic string, payload binary", {"topic": "mqtt_topic", "payload": "payload"}),
        ("topic string, value string", {"topic": "topic", "payload": "value"}),
        (
            "topic string, mqtt_topic string, value string, payload binary",
            {"topic": "mqtt_topic", "payload": "payload"},
        ),
        ("Topic string, Payload binary, QOS tinyint", {"topic": "Topic", "payload": "Payload", "qos": "QOS"}),
        (
            EVERYTHING,
            {
                "topic": "mqtt_topic",
                "payload": "payload",
                "qos": "qos",
                "retain": "retain",
                "headers": "headers",
                "key": "key",
            },
        ),
    ],
)
def test_columns(ddl: str, expected: dict[str, str]) -> None:
    assert SinkColumns.of(schema(ddl), fixed_topic=False) == SinkColumns(**expected)


def test_a_fixed_topic_goes_before_columns() -> None:
    assert SinkColumns.of(schema("topic string, value string"), fixed_topic=True) == SinkColumns(payload="value")


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [
        ("mqtt_topic string", "no payload, only mqtt_topic; the sink takes payload or value"),
        ("payload binary", "set option topic, or add a column mqtt_topic"),
        ("topic string, payload binary, humidity double", "does not know column 'humidity'; it takes payload or value"),
        ("topic string, value double", "Column value of the sink is of type binary or string, not double; make it one"),
        ("topic int, value string", "Column topic of the sink is of type string, not int"),
        ("topic string, value string, qos string", "Column qos"),
        ("topic string, value string, retain int", "Column retain"),
        ("topic string, value string, key int", "Column key"),
        ("topic string, value string, headers map", "array<struct<key string, value string>>, not map"),
        ("topic string, value string, headers numbers", "Column headers"),
    ],
)
def test_wrong_columns(ddl: str, sentence: str) -> None:
    with pytest.raises(FlockError, match=sentence):
        SinkColumns.of(schema(ddl), fixed_topic=False)


def test_each_batch_write_is_a_query_of_its_own_wherever_it_is_pickled_to() -> None:
    rows = schema("topic string, value string")
    one, other = FlockWriter(SERVER, rows, False), FlockWriter(SERVER, rows, False)
    assert one._query != other._query
    assert pickle.loads(pickle.dumps(one))._query == one._query


def test_a_batch_write_that_is_named() -> None:
    writer = FlockWriter({**SERVER, "query": "etl", "batch": "7"}, schema("topic string, value string"), False)
    assert (writer._query, writer._batch) == ("etl", 7)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(FlockError, match=r"\.mode\('append'\)"):
        FlockWriter(SERVER, schema("topic string, value string"), True)


def test_streams_have_names_of_their_own() -> None:
    with pytest.raises(FlockError, match="leave out the options query and batch"):
        FlockStreamWriter({**SERVER, "query": "etl", "batch": "7"}, schema("topic string, value string"), False)
