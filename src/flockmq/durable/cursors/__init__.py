"""Named positions in partitions: moved, asked for, and swept away when their cursor is gone.

The formula of the lag is ``cursors.lag_of``; ``admin/durable_cursors.py`` brings its inputs together.

Imports ``logs``, ``machine``, ``calls`` and ``state``.
"""
