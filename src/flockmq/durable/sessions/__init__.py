"""Sessions in the log: which node has a client id, records in ``$sessions``, and which names are captured for them.

| question | module |
| --- | --- |
| which node has a client id? | ``owning``, ``claims``, ``reclaiming``; elsewhere: ``yielding``, ``reloading`` |
| which QoS 2 messages are under way to a client? (exactly once to subscribers) | ``sending`` |
| what is in the log of a session? | ``keeping``, ``submitting``, ``repeating``, ``restoring`` |
| where does a session stand? | ``positions``, ``marking``, ``standing``, ``lag`` (of cursors: ``durable/cursors``) |
| which names are captured, and for how long? | ``serving``, ``leases``, ``holding`` |
| when is a will published? | ``firing`` |
| which sessions end because their user or namespace is no more? | ``pruning`` |

Decides when a CONNECT, SUBSCRIBE or DISCONNECT of a persistent session is in the log, and which filters each publishing
node has to know before a SUBACK. What statements change is decided in ``machine/session_table.py``. Imports ``deliver``
and all rooms below it.
"""
