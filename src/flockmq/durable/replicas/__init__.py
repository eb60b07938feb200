"""Replicas on this node: opened, moved, removed, kept within retention, scrubbed and mended.

Decides which partitions have a replica here and what their files keep. Imports ``machine``, ``calls`` and ``state``.
"""
