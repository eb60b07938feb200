"""Sink: every row of gold goes back to MQTT, once, for all subscribers of ``results/#``."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import concat_ws, lit, struct, to_json

spark = SparkSession.active()

dp.create_sink("results", "flockmq", {"clientId": "plant-pipeline"})


@dp.append_flow(target="results")
def publish() -> DataFrame:
    """One message for each row."""
    name = concat_ws("/", lit(str(spark.conf.get("spark.plant.results"))), "site", "line", "machine", "metric")
    figures = to_json(struct("begin", "end", "count", "min", "mean", "max"))
    rows = spark.readStream.table("gold")
    return rows.select(name.alias("mqtt_topic"), figures.cast("binary").alias("payload"), lit(1).alias("qos"))
