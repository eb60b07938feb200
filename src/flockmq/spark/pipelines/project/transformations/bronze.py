"""Bronze: every message of the durable topic, as it came, with the levels of its name as columns."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Messages as they came")
def bronze() -> DataFrame:
    """From the first message that is still there."""
    source = spark.readStream.format("flockmq")
    source = source.option("subscribe", str(spark.conf.get("spark.plant.topic")))
    source = source.option("columns", str(spark.conf.get("spark.plant.levels")))
    return source.option("startingOffsets", "earliest").load()
