"""Runs the pipeline once over what came since the last time: ``python run.py``.

Any option of ``spark-pipelines run`` can be added, such as ``--full-refresh-all``; so can ``--remote``, ``--conf K=V``
and ``--dry-run``.
"""

import sys
from pathlib import Path

from flockmq.spark.pipelines.project_run import run_project

if __name__ == "__main__":
    sys.exit(run_project(Path(__file__).resolve().parent, sys.argv[1:]))
