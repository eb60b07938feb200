"""Durable topics: consensus joined with the clustered broker. Pure.

| decision | room |
| --- | --- |
| which partition takes a message, and what its publisher hears | ``publish`` |
| which client gets which committed message, and when | ``deliver`` |
| which replica serves a read; where a log begins and ends | ``logs`` |
| what a committed batch changes in the state of a partition | ``machine`` |
| where named readers stand, and their lag | ``cursors`` |
| takeover of a client id between nodes; QoS 2 exactly once to clients of persistent sessions | ``sessions`` |
| which QoS 2 ids of publishers the logs hold until PUBREL | ``qos2`` |
| which partitions have a replica here; when retention runs | ``replicas`` |
| what this node knows of the cluster state | ``state`` |
| whether a chunk from Spark enters a log, and when a commit is done | ``sinks`` |

``assembly`` puts a node together, ``order`` has the order of its turns and ticks.
"""
