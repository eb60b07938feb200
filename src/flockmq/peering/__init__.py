"""What brokers say to each other: routes, forwarded runs, retained messages, and calls for the rooms above. Pure.

Which node owns a session is decided in ``durable/sessions/owning.py``.
"""
