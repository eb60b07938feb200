"""What it costs to turn stored batches into Arrow, for batches of some tens of records and of thousands.

    python benchmarks/micro/spark_decode.py [--records 32768] [--json]

Processor time, best of several rounds: six columns, and all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from pyspark.sql.types import StructType

from flockmq.log.batch import BatchBuilder, stamp
from flockmq.spark.arrow import Decoder
from flockmq.spark.schema import arrow_schema, full_schema

ROUNDS = 7
SIX = ("topic", "partition", "offset", "timestamp", "mqtt_topic", "payload")


def log_of(records: int, per_batch: int) -> bytes:
    """Records of 100 B from 40 devices."""
    parts: list[bytes] = []
    for base in range(0, records, per_batch):
        builder = BatchBuilder()
        for number in range(base, base + per_batch):
            builder.add(b"plant/%d/temperature" % (number % 40), b"sensor-%d" % (number % 40), number, 1, b"x" * 100)
        parts.append(stamp(builder.build(), 1, len(parts) + 1, base))
    return b"".join(parts)


def rate(records: int, work: Callable[[], int]) -> float:
    """Million records a second."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        assert work() == records
        best = min(best, time.process_time() - began)
    return records / best / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=32_768)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    records: int = options.records
    everything = full_schema(None)
    six = StructType([field for field in everything if field.name in SIX])
    results: dict[str, float] = {}
    for per_batch in (64, 4096):
        data = log_of(records, per_batch)
        for name, schema in (("six columns", six), ("all columns", everything)):
            decoder = Decoder(arrow_schema(schema), "plant", 0)

            def decode(decoder: Decoder = decoder, data: bytes = data) -> int:
                return sum(batch.num_rows for batch in decoder.decode(data, 0, records))

            results[f"decode, {name}, batches of {per_batch}"] = rate(records, decode)
    if options.json:
        print(json.dumps(results))
        return
    for name, found in results.items():
        print(f"{name:40} {found:7.2f} M records/s")


if __name__ == "__main__":
    main()
