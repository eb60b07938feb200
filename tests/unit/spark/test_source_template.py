"""Topic templates and schemas."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from flockmq.errors import FlockError
from flockmq.spark.schema import COLUMNS, arrow_schema, checked_schema, full_schema
from flockmq.spark.template import Template


@pytest.mark.parametrize(
    ("template", "topic", "values"),
    [
        ("plant/{site}/{line:int}/+", "plant/lyon/7/t", ("lyon", 7)),
        ("plant/{site}/{line:int}/+", "plant/lyon/x/t", ("lyon", None)),
        ("plant/{site}/{line:int}/+", "plant/lyon/7", None),
        ("plant/{site}/{line:int}/+", "plant/lyon/7/t/u", None),
        ("plant/{site}/{line:int}/+", "office/lyon/7/t", None),
        ("{a}/#", "x", ("x",)),
        ("{a}/#", "x/y/z", ("x",)),
        ("{a:int}", "2147483648", (None,)),
        ("{a:long}", "2147483648", (2147483648,)),
        ("{a:long}", "9223372036854775808", (None,)),
        ("{a:int}", "1_0", (None,)),
        ("{a:int}", "-12", (-12,)),
        ("{a:double}", "1.5e3", (1500.0,)),
        ("{a:double}", "nan", (None,)),
        ("{a:boolean}", "TRUE", (True,)),
        ("{a:boolean}", "1", (None,)),
        ("{a}", "", ("",)),
    ],
)
def test_parts_of_a_name(template: str, topic: str, values: tuple[Any, ...] | None) -> None:
    assert Template(template).parse(topic) == values


@pytest.mark.parametrize("text", ["a/{b}c", "a/{b:date}", "{a}/{a}", "a/#/{b}", "a+/{b}", "a/b", "{}", "{1}", "{a b}"])
def test_what_is_no_template(text: str) -> None:
    with pytest.raises(FlockError, match="Option columns"):
        Template(text)


def test_the_default_columns() -> None:
    names = ["topic", "partition", "offset", "timestamp", "mqtt_topic", "client_id", "key", "payload", "qos"]
    assert full_schema(None).names == [*names, "retain", "headers"]
    assert full_schema(None, headers=False).names == [*names, "retain"]
    templated = full_schema(Template("{site}/{line:int}"), headers=False)
    assert templated.names[-2:] == ["site", "line"]
    assert [field.name for field in templated if field.nullable] == ["key", "site", "line"]


def test_any_columns_in_any_order() -> None:
    asked = StructType([StructField("payload", COLUMNS["payload"], False), StructField("offset", LongType(), False)])
    found = checked_schema(asked, None)
    assert found.names == ["payload", "offset"]
    assert not any(field.nullable for field in arrow_schema(found))
    asked = StructType([StructField("payload", COLUMNS["payload"]), StructField("key", COLUMNS["key"])])
    assert all(field.nullable for field in arrow_schema(checked_schema(asked, None)))
    with pytest.raises(FlockError, match="Column key is null"):
        checked_schema(StructType([StructField("key", COLUMNS["key"], False)]), None)


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (StructField("value", StringType()), "There is no column 'value'; there are topic, partition"),
        (StructField("offset", IntegerType()), "Column offset is of type bigint, not int"),
    ],
)
def test_other_columns_are_refused(field: StructField, sentence: str) -> None:
    with pytest.raises(FlockError, match=sentence):
        checked_schema(StructType([field]), None)


def test_a_schema_has_columns() -> None:
    with pytest.raises(FlockError, match="at least one"):
        checked_schema(StructType([]), None)
