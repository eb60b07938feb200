"""Named positions in partitions: moved, asked for, and swept away when their cursor is gone. The lag comes from here.

Imports ``logs``, ``machine``, ``calls`` and ``state``.
"""
