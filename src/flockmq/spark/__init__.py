"""FlockMQ in Spark: data source and sink behind ``format("flockmq")``, and pipelines. Needs ``flockmq[spark]``."""
