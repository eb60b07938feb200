"""Pipelines that ``flockmq pipeline run`` runs: each a short PySpark program with parameters."""
