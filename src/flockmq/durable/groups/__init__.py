"""Consumer groups: which member gets which record of a partition, and what its ack, nack or silence changes.

The leader of a partition dispatches; nodes ask it for records for their members. Imports ``logs``, ``machine``,
``calls`` and ``state``; sessions and the admin API reach groups through ``port``.
"""
