"""Forks Spark's Python workers out of a process that has loaded what they need.

```
 JVM --> this process, once per kind of worker --fork--> worker, worker, ...
            `-- pyspark's own daemon, with Arrow, pandas and FlockMQ loaded before the first fork
```
Spark plans each write, and commits it, in a worker that is forked for just that. Loading Arrow and this package there
costs hundreds of milliseconds in each micro-batch; a fork that has them costs a few. ``session.build`` names this
module as ``spark.python.daemon.module`` for local sessions.
"""

from __future__ import annotations

import gc
import importlib
import sys

import pandas  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark import daemon

import flockmq.spark.options
import flockmq.spark.sink
import flockmq.spark.sink_rows
import flockmq.spark.source  # noqa: F401

if __name__ == "__main__":
    importlib.import_module(sys.argv[1])  # what its workers will run
    gc.freeze()  # collections in workers need not walk, and so copy, what they share
    daemon.manager()
