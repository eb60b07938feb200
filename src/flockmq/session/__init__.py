"""What a client's connection and session remember: windows, queues, subscriptions, timers.

Which node owns a session: ``durable/sessions/owning.py``.
"""
