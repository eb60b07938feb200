"""Makes ``format("flockmq")`` known to Spark, which imports every package named ``pyspark_*`` and takes its source."""

from flockmq.spark.source import FlockSource as DefaultSource

__all__ = ["DefaultSource"]
