"""What Spark finds behind ``format("flockmq")``: which reader or writer serves a query.

```
 spark.read        --> reader        --> batch_reader     one plan, from heads to tasks
 spark.readStream  --> streamReader  --> stream_reader    a plan per micro-batch
 df.write          --> writer        --> sink
 df.writeStream    --> streamWriter  --> sink
```
An instance is made, pickled and made again in several processes: it opens nothing and keeps nothing but the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class FlockSource(DataSource):
    """Durable topics as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "flockmq"

    def schema(self) -> StructType:
        """All columns, and those of the template."""
        from flockmq.spark.options import ReadOptions
        from flockmq.spark.reading import plain_errors
        from flockmq.spark.schema import full_schema

        with plain_errors():
            options = ReadOptions.parse(self.options)
            return full_schema(options.template, headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a range of each topic once."""
        from flockmq.spark.batch_reader import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Follows topics."""
        from flockmq.spark.stream_reader import FlockStreamReader

        return FlockStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publishes the rows of a DataFrame."""
        from flockmq.spark.sink import FlockWriter

        return FlockWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Publishes the rows of a stream, each once."""
        from flockmq.spark.sink import FlockStreamWriter

        return FlockStreamWriter(self.options, schema, overwrite)
