"""The columns of a row, and which of them a query takes.

```
 default columns + those of the template = all columns --> .schema(...) of the user: any of them, in any order
```
Spark does not tell a Python source which columns a query uses, so a query of few columns names them in ``.schema``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flockmq.errors import FlockError
from flockmq.spark.template import Template

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", StringType())])
COLUMNS: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "mqtt_topic": StringType(),
    "client_id": StringType(),
    "key": BinaryType(),
    "payload": BinaryType(),
    "qos": IntegerType(),
    "retain": BooleanType(),
    "headers": ArrayType(_HEADER),
}
NULLABLE: Final = frozenset({"key", "headers"})
"""Spark need not ask for each row whether the others are null. Parts of a template are, where a name does not fit."""
_TEMPLATE: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
}


def full_schema(template: Template | None, *, headers: bool = True) -> StructType:
    """All columns that there are."""
    fields = [
        StructField(name, kind, name in NULLABLE) for name, kind in COLUMNS.items() if headers or name != "headers"
    ]
    if template is not None:
        fields += [StructField(field.name, _TEMPLATE[field.kind]) for field in template.fields]
    return StructType(fields)


def checked_schema(asked: StructType, template: Template | None) -> StructType:
    """What the user asked for, if these columns are there with these types."""
    known = {field.name: field for field in full_schema(template)}
    for field in asked:
        if field.name not in known:
            raise FlockError(f"There is no column {field.name!r}; there are {', '.join(known)}")
        kind = known[field.name].dataType
        if _nullable(field.dataType) != kind:
            raise FlockError(
                f"Column {field.name} is of type {kind.simpleString()}, not {field.dataType.simpleString()}; "
                "take it as it is and cast it with .withColumn"
            )
        if known[field.name].nullable and not field.nullable:
            raise FlockError(f"Column {field.name} is null for messages that have none; let the schema say nullable")
    if not asked.fields:
        raise FlockError(f"A schema names at least one column of {', '.join(known)}")
    # Spark wants to be answered as it asked, to the letter.
    return StructType([StructField(field.name, known[field.name].dataType, field.nullable) for field in asked])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a reader, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


def _nullable(kind: DataType) -> DataType:
    """The same type where everything within may be null."""
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind])
    return kind
