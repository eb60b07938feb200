"""Persistent sessions in the log: their records in ``$sessions``, and which names are captured for them.

Decides when a CONNECT, SUBSCRIBE or DISCONNECT of a persistent session is in the log, and which filters each publishing
node has to know before a SUBACK. What statements change is decided in ``machine/session_table.py``. Imports ``deliver``
and all rooms below it.
"""
