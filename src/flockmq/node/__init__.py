"""The whole broker as one pure object: bytes and time in, bytes out per connection.

| decision | module |
| --- | --- |
| may a client connect, and which session does it get? | ``connecting`` |
| takeover of a client id on this node | ``connecting.claim_session``; between nodes: ``durable/sessions/owning.py`` |
| did this QoS 2 packet id come before? (dedupe) | ``publishing.take_one`` |
| when does a session end, and what becomes of its will? | ``lifecycle`` |
| which publishers wait for a slow subscriber? | ``congestion`` |
| which client comes next in a turn? | ``turns`` |

Which member of a ``$share`` group gets a message is decided in ``routing/shared.py``.
"""
