"""QoS 2 exactly once into the log: which packet ids wait for their PUBREL, over all partitions and owners of a session.

```
 PUBLISH --> node/publishing.take_one: is the id in Session.received? --yes--> repeat: only its PUBREC again (dedupe)
                                                   ^    `--no---------------> into the log, with its id
                                                   |
 the session has a new owner --> collecting, releases: rebuilt from the ids that the logs hold
```
The decision that a message is a repeat is not here but in ``node/publishing.take_one``. This package rebuilds the set
that the decision reads (``Session.received``) for a new owner, and releases ids from the logs after PUBREL.

Imports ``publish`` (ids on their way), ``machine`` (the committed ids) and ``calls``.
"""
