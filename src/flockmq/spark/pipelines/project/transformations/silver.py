"""Silver: measurements. What is no JSON with a number in ``value`` stays in bronze."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.active()


@dp.table(comment="Measurements of machines")
def silver() -> DataFrame:
    """Only what has a number."""
    content = from_json(col("payload").cast("string"), "value double, unit string")
    rows = spark.readStream.table("bronze").withColumn("content", content).where("content.value is not null")
    return rows.select("timestamp", "site", "line", "machine", "metric", "content.value", "content.unit")
