"""Silver: measurements. What is no JSON with a number in ``value`` stays in bronze.

No ``withColumn``: Spark would look for bronze before it knows the pipeline, and silver would not wait for bronze.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.active()


@dp.table(comment="Measurements of machines")
def silver() -> DataFrame:
    """Only what has a number."""
    content = from_json(col("payload").cast("string"), "value double, unit string").alias("content")
    rows = spark.readStream.table("bronze").select("timestamp", "site", "line", "machine", "metric", content)
    found = rows.where(col("content.value").isNotNull())
    return found.select("timestamp", "site", "line", "machine", "metric", "content.value", "content.unit")
