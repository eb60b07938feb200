"""QoS 2 exactly once into the log: which packet ids wait for their PUBREL, over all partitions and owners of a session.

Rebuilds ``Session.received`` for a new owner and releases ids from logs. The check itself (this id came before) is
``node/publishing.take_one``.

Imports ``publish`` (ids on their way), ``machine`` (the committed ids) and ``calls``.
"""
