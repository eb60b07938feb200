"""Where messages go: subscriptions, topic trie, route plans, shared groups, retained messages.

| decision | module |
| --- | --- |
| which subscribers a topic name has | ``table``, ``trie``, ``plan`` |
| shared dispatch: which member of a ``$share`` group gets a message | ``shared`` |
| which partition of which durable topic a name belongs to | ``durable`` |
| which names persistent sessions wait for | ``capture`` |
| which retained message of a name stays | ``retained`` |
"""
