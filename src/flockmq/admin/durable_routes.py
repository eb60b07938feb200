"""The part of the table of operations that is about durable topics."""

from __future__ import annotations

from typing import Any, Final

from flockmq.admin import cluster_model, durable_cluster, durable_logs, durable_losses, durable_topics, node_removal
from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.durable_group_routes import GROUP_OPERATIONS
from flockmq.admin.durable_sink_routes import SINK_OPERATIONS
from flockmq.admin.durable_tenant_routes import TENANT_OPERATIONS
from flockmq.admin.model import Page
from flockmq.admin.operations import PREFIX, Operation
from flockmq.cluster.advice import Advice
from flockmq.errors import (
    BEYOND_END,
    CHANGE_ERRORS,
    CURSOR_EXPIRED,
    DAMAGED,
    GONE,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    REFUSED,
    TRY_AGAIN,
    UNAVAILABLE,
)

_LOG: Final = (NOT_FOUND, DAMAGED, *TRY_AGAIN, UNAVAILABLE)

TOPIC_OPERATIONS: Final = (
    Operation(
        at=f"GET {PREFIX}/topics",
        tag="topics",
        summary="Durable topics, of one namespace or of all",
        handler=durable_topics.list_topics,
        query=tenants.TopicPage,
        answer=Page[model.DataTopic],
        answer_text="A page of topics",
        errors=(CURSOR_EXPIRED, UNAVAILABLE),
    ),
    Operation(
        at=f"POST {PREFIX}/topics",
        tag="topics",
        summary="Declare a durable topic; refused when its filters could match a name that another topic's match",
        handler=durable_topics.create_topic,
        body=model.TopicRequest,
        answer=model.DataTopic,
        answer_text="The topic, known to this node",
        status=201,
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"GET {PREFIX}/topics/{{name}}",
        tag="topics",
        summary="One durable topic",
        handler=durable_topics.get_topic,
        query=model.TopicQuery,
        answer=model.DataTopic,
        answer_text="The topic",
        errors=(NOT_FOUND, UNAVAILABLE),
    ),
    Operation(
        at=f"PATCH {PREFIX}/topics/{{name}}",
        tag="topics",
        summary="Change a durable topic. After shards are added, later records of a key may be in another shard than "
        "earlier ones",
        handler=durable_topics.alter_topic,
        query=model.InNamespace,
        body=model.TopicChange,
        answer=model.DataTopic,
        answer_text="The topic as it is now",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"DELETE {PREFIX}/topics/{{name}}",
        tag="topics",
        summary="Delete a durable topic, its records and its cursors",
        handler=durable_topics.delete_topic,
        query=model.InNamespace,
        answer_text="The topic is gone",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"GET {PREFIX}/topics/{{name}}/partitions",
        tag="topics",
        summary="The partitions of a topic, by shard, with leaders, replicas and the addresses of their nodes' APIs",
        handler=durable_topics.list_topic_partitions,
        query=model.TopicQuery,
        answer=list[model.Partition],
        answer_text="The partitions",
        errors=(NOT_FOUND, UNAVAILABLE),
    ),
    Operation(
        at=f"GET {PREFIX}/topics/{{name}}/partitions/{{shard}}/records",
        tag="topics",
        summary="Committed records from an offset or time on, from any node. As batches they come as the log stores "
        "them: the whole batch that holds the offset and those after it, with the oldest offset and the committed end "
        "in the headers `X-Flockmq-First-Offset` and `X-Flockmq-End-Offset`, where to read on (behind batches that a "
        "filter left out) in `X-Flockmq-Next-Offset`, and in `X-Flockmq-Replicas` the APIs of the nodes that hold the "
        "partition: they serve more at once",
        handler=durable_logs.read_records,
        query=model.ReadQuery,
        answer=model.Records,
        answer_text="Records",
        raw_type=durable_logs.BATCHES,
        errors=(*_LOG, GONE, BEYOND_END),
    ),
    Operation(
        at=f"GET {PREFIX}/topics/{{name}}/heads",
        tag="topics",
        summary="How far the partitions reach; with `after` and `wait_ms` it answers once one of them reaches further",
        handler=durable_logs.get_heads,
        query=model.HeadsQuery,
        answer=model.Heads,
        answer_text="First and end offsets by shard",
        errors=_LOG,
    ),
    Operation(
        at=f"GET {PREFIX}/topics/{{name}}/offsets",
        tag="topics",
        summary="For each shard the first offset whose record came at a time or later",
        handler=durable_logs.get_offsets,
        query=model.OffsetsQuery,
        answer=model.Offsets,
        answer_text="Offsets by shard",
        errors=_LOG,
    ),
    Operation(
        at=f"POST {PREFIX}/topics/{{name}}/records",
        tag="topics",
        summary="Append many messages to a durable topic; answered after commit with shard and offset of each",
        handler=durable_logs.publish_records,
        query=model.InNamespace,
        body=model.PublishRecords,
        answer=model.Publication,
        answer_text="Where the records are",
        errors=(NOT_FOUND, REFUSED, *TRY_AGAIN, UNAVAILABLE, OUTCOME_UNKNOWN),
    ),
    Operation(
        at=f"GET {PREFIX}/partitions",
        tag="topics",
        summary="Partitions of all topics, as the nodes that hold them tell",
        handler=durable_topics.list_partitions,
        query=tenants.PartitionPage,
        answer=Page[model.Partition],
        answer_text="A page of partitions",
        errors=(CURSOR_EXPIRED, UNAVAILABLE),
    ),
    Operation(
        at=f"GET {PREFIX}/partitions/{{group}}",
        tag="topics",
        summary="One partition, by the number of its Raft group",
        handler=durable_topics.get_partition,
        answer=model.Partition,
        answer_text="The partition",
        errors=(NOT_FOUND, UNAVAILABLE),
    ),
    Operation(
        at=f"POST {PREFIX}/cluster/scrub",
        tag="cluster",
        summary="Let all nodes read and verify their replicas now, and compare them with each other",
        handler=durable_topics.start_scrub,
        query=tenants.ScrubQuery,
        answer=model.Scrub,
        answer_text="What was begun; partitions tell when each replica was read",
        errors=(NOT_FOUND, *TRY_AGAIN, UNAVAILABLE),
    ),
    Operation(
        at=f"POST {PREFIX}/partitions/{{group}}/accept-loss",
        tag="topics",
        summary="Let a partition go on whose data is gone with the stores of most replicas; the best one left leads it",
        handler=durable_losses.accept_loss,
        query=model.AcceptLossQuery,
        answer=model.Partition,
        answer_text="The partition as it was found; it has a leader a moment later",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"POST {PREFIX}/cluster/rebalance",
        tag="cluster",
        summary="Begin to move replicas and leaders so that all nodes have about the same; nothing stops meanwhile",
        handler=durable_cluster.start_rebalance,
        query=tenants.RebalanceQuery,
        answer=tenants.Rebalance,
        answer_text="What was begun and what is left",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"DELETE {PREFIX}/cluster/nodes/{{node}}",
        tag="cluster",
        summary="Take a dead node out for good, by its name or id; refused while it is alive, and, unless that is "
        "accepted, when records would be lost. Asked again, it tells how far that is",
        handler=node_removal.remove_node,
        query=cluster_model.RemoveNodeQuery,
        answer=cluster_model.NodeRemoval,
        answer_text="What still depends on it",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"POST {PREFIX}/cluster/advice",
        tag="cluster",
        summary="Put leaders and copies where an advice says, as far as that can be done; they stay until another "
        "advice, an evening out that is asked for, or the loss of a node",
        handler=durable_cluster.apply_advice,
        query=tenants.AdviceQuery,
        body=Advice,
        answer=tenants.AdviceOutcome,
        answer_text="What came of each entry",
        errors=CHANGE_ERRORS,
    ),
    Operation(
        at=f"GET {PREFIX}/cluster/rebalance",
        tag="cluster",
        summary="How many replicas and leaders are not yet where they should be",
        handler=durable_cluster.get_rebalance,
        answer=tenants.Rebalance,
        answer_text="What is left",
        errors=(UNAVAILABLE,),
    ),
    Operation(
        at=f"GET {PREFIX}/dump",
        tag="cluster",
        summary="Cluster state, the same on any node at the same index, and the segments that replicas hold",
        handler=durable_cluster.get_dump,
        answer=dict[str, Any],
        answer_text="The dump, without secrets",
        errors=(UNAVAILABLE,),
    ),
)

DURABLE_OPERATIONS: Final = TOPIC_OPERATIONS + SINK_OPERATIONS + GROUP_OPERATIONS + TENANT_OPERATIONS
