"""Reading a topic as a table, side by side with Parquet files of the same rows and with a reader of tuples.

```
 rows made by Spark --sink--> topic, 8 shards, 3 replicas --format("flockmq")--> Parquet files, as many as shards
                                   |                                                  |
        in turns, median:          |-- flockmq          |-- flockmq_tuples            `-- parquet
                                   every column of every row goes into a sum or a count
```
Payloads are JSON of 100 bytes, no two alike, from a thousand names: what dictionaries of Parquet and of batches gain is
the names' alone. Spark caches nothing; the files and logs are in the page cache, after a first reading that is not
counted.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.spark.cluster import Cluster
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARDS: Final = 8
NAMES: Final = 1_000
PAYLOAD_BYTES: Final = 100
TOPIC: Final = "table"
READERS: Final = ("parquet", "flockmq", "tuples")
ROWS_A_WRITE: Final = 500_000
"""What is staged at once stays within what nodes take from one query."""
# Fields of fixed widths; the digits of a hash fill the rest and let no two payloads be alike.
_FIELDS: Final = r"""format_string('{"seq":%08d,"value":%07.3f,"check":"', id, (id * 7919) % 100000 / 1000)"""
_PAYLOAD: Final = f"substring(concat({_FIELDS}, sha2(CAST(id AS string), 256)), 1, {PAYLOAD_BYTES - 2})"
COLUMNS: Final = (
    f"concat('{TOPIC}/', lpad(CAST(pmod(hash(id), {NAMES}) AS string), 4, '0'), '/value') AS mqtt_topic",
    f"concat({_PAYLOAD}, '\"}}') AS payload",
)

Figures = dict[str, float]


def load(spark: SparkSession, cluster: Cluster, records: int) -> float:
    """Fill the topic through the sink; seconds that it took."""
    cluster.make_topic(TOPIC, SHARDS)
    took_s = 0.0
    for first in range(0, records, ROWS_A_WRITE):
        rows = spark.range(first, min(records, first + ROWS_A_WRITE), numPartitions=SHARDS).selectExpr(*COLUMNS)
        began = time.perf_counter()
        rows.write.format("flockmq").options(**cluster.options()).mode("append").save()
        took_s += time.perf_counter() - began
        print(f"  {min(records, first + ROWS_A_WRITE):,} rows written, {took_s:.0f} s", file=sys.stderr)
    with cluster.client() as client:
        found = sum(head.end_offset for head in client.heads(TOPIC).heads)
    if found != records:
        raise FlockError(f"{records:,} records were written, and the topic has {found:,}")
    return took_s


def measure(spark: SparkSession, cluster: Cluster, folder: str, records: int, repeats: int) -> dict[str, Figures]:
    """Rows a second of each reader; the topic must be filled."""
    from pyspark import cloudpickle

    from benchmarks.spark import tuples

    cloudpickle.register_pickle_by_value(tuples)  # type: ignore[no-untyped-call]  # workers may run elsewhere
    spark.dataSource.register(tuples.TupleSource)
    files = f"{folder}/table.parquet"
    source = {**cluster.options(), "subscribe": TOPIC}
    spark.read.format("flockmq").options(**source).load().write.parquet(files)
    frames = {
        "parquet": lambda: spark.read.parquet(files),
        "flockmq": lambda: spark.read.format("flockmq").options(**source).load(),
        "tuples": lambda: spark.read.format("flockmq_tuples").options(**source).load(),
    }
    expected = _sums(frames["parquet"]())
    runs: dict[str, list[float]] = {name: [] for name in READERS}
    for repeat in range(repeats + 1):
        for name in READERS:
            if repeat == 0 and name == "tuples":
                continue  # takes long, and gains nothing from a second time
            began = time.perf_counter()
            found = _sums(frames[name]())
            took_s = time.perf_counter() - began
            if found != expected or found[0] != records:
                raise FlockError(f"{name} reads something else than the Parquet files have: {found}, not {expected}")
            print(f"  {name}: {records / took_s:,.0f} rows/s{'' if repeat else ' (not counted)'}", file=sys.stderr)
            if repeat:
                runs[name].append(records / took_s)
    rates = {name: statistics.median(some) for name, some in runs.items()}
    return {
        name: {
            "rate": rate,
            "of_parquet": rate / rates["parquet"],
            "of_tuples": rate / rates["tuples"],
            "least": min(runs[name]),
            "most": max(runs[name]),
        }
        for name, rate in rates.items()
    }


def _sums(rows: DataFrame) -> tuple[int, ...]:
    """Something cheap of every column."""
    from pyspark.sql import functions as sql

    found = rows.agg(
        sql.count("*"),
        *(sql.sum(sql.length(name)) for name in ("topic", "mqtt_topic", "client_id", "payload")),
        *(sql.sum(name) for name in ("partition", "offset", "qos")),
        sql.max(sql.unix_millis("timestamp")),
        sql.count_if("retain"),
        sql.count("key"),
        sql.count("headers"),
    ).first()
    assert found is not None
    return tuple(found)
