"""Jobs of pipelines on the shared cluster and session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flockmq.spark.pipelines.parameters import make_values
from flockmq.spark.pipelines.registry import Pipeline
from flockmq.spark.pipelines.run import Job, RunSettings
from spark.nodes import SparkCluster
from spark.written import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def job_of(pipeline: Pipeline, spark: SparkSession, cluster: SparkCluster, checkpoint: str, **parameters: str) -> Job:
    """A job that reads what is there and ends; ``_`` in names of parameters stands for ``-``."""
    values = make_values(pipeline.parameters, {name.replace("_", "-"): value for name, value in parameters.items()})
    settings = RunSettings(options=cluster.options(), checkpoint=checkpoint, once=True, quiet=True)
    return Job(pipeline.name, spark, values, settings)


def messages(cluster: SparkCluster, topic: str) -> list[tuple[str, Any]]:
    """Name and JSON of all that is in a durable topic."""
    with cluster.client() as client:
        return [(one.name, json.loads(one.payload)) for one in written(client, topic)]
