"""QoS 2 exactly once into the log: which packet ids wait for their PUBREL, over all partitions and owners of a session.

Imports ``publish`` (ids on their way), ``machine`` (the committed ids) and ``calls``.
"""
