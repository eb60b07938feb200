"""The job that is killed: two queries over one topic, in a process of its own.

```
 source topic --> copy     every record as it is                             --> topic of copies
             `--> windows  watermark, windows of 5 s by device: count and sum --> topic of windows, each when it closes
```
    python job.py SETTINGS.json

A payload is ``device,number,milliseconds since 1970``; a window is ``device,start in ms,count,sum of numbers``. The
time is the device's, so that anybody can tell from the records alone which windows there must be.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flockmq.spark.session import build

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW_MS = 5_000
LATE_MS = 45_000
RECORDS_A_BATCH = 100
STARTING = "Initializing sources"


def source(spark: SparkSession, settings: dict[str, Any]) -> DataFrame:
    """The stream that both queries read."""
    reader = spark.readStream.format("flockmq").options(**settings["options"])
    reader = reader.options(
        subscribe=settings["source"], startingOffsets="earliest", maxOffsetsPerTrigger=str(RECORDS_A_BATCH)
    )
    return reader.load()


def copies(rows: DataFrame, settings: dict[str, Any]) -> DataFrame:
    """Each record, with its place in the source."""
    name = f"replace(mqtt_topic, '{settings['source']}/', '{settings['copies']}/') AS mqtt_topic"
    return rows.selectExpr(name, "payload")


def windows(rows: DataFrame, settings: dict[str, Any]) -> DataFrame:
    """A record for each window that is over."""
    from pyspark.sql import functions as sql

    parts = sql.split(sql.col("payload").cast("string"), ",")
    readings = rows.select(
        parts[0].alias("device"),
        parts[1].cast("long").alias("number"),
        sql.timestamp_millis(parts[2].cast("long")).alias("at"),
    ).withWatermark("at", f"{LATE_MS} milliseconds")
    found = readings.groupBy(sql.window("at", f"{WINDOW_MS} milliseconds"), "device").agg(
        sql.count("*").alias("count"), sql.sum("number").alias("sum")
    )
    payload = sql.concat_ws(",", "device", sql.unix_millis("window.start"), "count", "sum")
    return found.select(
        sql.concat(sql.lit(f"{settings['windows']}/"), "device").alias("mqtt_topic"), payload.alias("payload")
    )


def main(file: str) -> None:
    """Run both queries until somebody kills this, or one of them fails."""
    settings = json.loads(Path(file).read_text("utf-8"))
    spark = build("killed", master="local[2]", quick=True, conf=settings["conf"])
    for name, shape in (("copies", copies), ("windows", windows)):
        writer = shape(source(spark, settings), settings).writeStream.format("flockmq").options(**settings["options"])
        writer = writer.outputMode("append").queryName(name).trigger(processingTime="0 seconds")
        query = writer.option("checkpointLocation", f"{settings['checkpoints']}/{name}").start()
        # One after the other: a worker has only seconds to start, whatever a machine does beside that.
        while query.isActive and query.status["message"] == STARTING:
            time.sleep(0.05)
    spark.streams.awaitAnyTermination()
    for query in spark.streams.active:
        query.stop()


if __name__ == "__main__":
    main(sys.argv[1])
