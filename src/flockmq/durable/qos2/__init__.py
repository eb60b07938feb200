"""QoS 2 exactly once into logs: which packet ids wait for their PUBREL, over all partitions and owners of a session.

```
 PUBLISH --> node/publishing.take_one: is the id in Session.received? --yes--> repeat: only its PUBREC again (dedupe)
                                                   ^    `--no--> into the log, with its id; TOUCH before the first one
                                                   |             of a session into a partition
 the session has a new owner --> ADOPT in the partitions that it touched: the ids that their logs hold
```
The decision that a message is a repeat is not here but in ``node/publishing.take_one``. This package rebuilds the set
that the decision reads (``Session.received``) for a new owner, and releases ids from the logs after PUBREL.

The other direction, QoS 2 from logs to clients: ``durable/sessions/sending.py``, and ``session/outbound.py`` for what
is in flight on one connection.

Sessions that end with their connection have no record and leave no ids in logs: a client that comes back has a new
session, and none of its ids means anything.

Imports ``publish`` (ids on their way), ``sessions`` (statements about records), ``machine`` (the committed ids).
"""
