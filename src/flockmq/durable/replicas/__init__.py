"""Replicas on this node: opened, moved, removed, kept within retention, scrubbed and mended.

Decides which partitions have a replica here and what their files keep. The rule of retention itself is
``log/retention.expired``; ``retention_sweeper`` decides when it runs, and against which cursors. Imports ``machine``,
``calls`` and ``state``.
"""
