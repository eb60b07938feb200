"""The log: columnar batches, segments, the shared journal, and what a disk must do for them. Pure: disk is a port.

Which segments retention may remove: ``retention.expired``. When a node removes them:
``durable/replicas/retention_sweeper.py``.
"""
