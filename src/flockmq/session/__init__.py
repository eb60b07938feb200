"""What a client's connection and session remember: windows, queues, subscriptions, timers.

Which session a connection gets, and takeover on one node: ``node/connecting.py``. Which node owns a session:
``durable/sessions/owning.py``. Whether a QoS 2 message is a repeat: ``node/publishing.take_one``, which reads
``Session.received``.
"""
