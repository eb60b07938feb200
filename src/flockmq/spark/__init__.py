"""FlockMQ in Spark: the data source and sink behind ``format("flockmq")``, and the pipelines. Needs ``flockmq[spark]``."""
