"""The exactly-once sink of Spark: chunks staged at the leader of a partition, and their commit.

Decides whether a chunk may enter a log, and when a commit is done. Imports ``machine`` and ``calls``.
"""
