"""The cluster state: what group 0 agrees on, as a machine that commands are applied to.

```
 log of group 0 --apply(bytes)--> tables, index + 1 --> Result (for the caller)
                                   `-> versions: which section changed, for its followers
```
The same commands make the same state on every node: no clock, no chance, no order that depends on hashing. A command
that can't be done is refused and changes nothing but the index. That holds for one that is unknown, too: nodes that run
an older version than the cluster's leader refuse what the others do, so upgrade all nodes before using what is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.cluster import (
    changes_bans,
    changes_cursors,
    changes_groups,
    changes_nodes,
    changes_removal,
    changes_tenants,
    changes_topics,
)
from flockmq.cluster.codec import decode_tables, encode_tables
from flockmq.cluster.commands import (
    COMMAND_BYTES_MAX,
    INVALID,
    AcceptLoss,
    AlterNamespace,
    AlterTopic,
    Ban,
    CreateCursor,
    CreateHidden,
    CreateNamespace,
    CreateTopic,
    DeleteAcl,
    DeleteClient,
    DeleteCursor,
    DeleteNamespace,
    DeleteSetting,
    DeleteTopic,
    ForgetNode,
    NodeSeen,
    NodeStateChanged,
    PutAcl,
    PutClient,
    Rebalance,
    RefusedError,
    RemoveNode,
    ReplaceNode,
    ReplicasAre,
    Result,
    SetClusterId,
    SetSetting,
    SetTarget,
    Unban,
    decode_command,
    decode_envelope,
)
from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, DeleteGroup, ReadDead, ResetGroup, ShareGroup
from flockmq.cluster.tables import Tables

if TYPE_CHECKING:
    from flockmq.cluster.commands import Command, Value


class ClusterState(Tables):
    """Tables that follow commands."""

    def apply(self, envelope: bytes) -> Result:
        """Do what stands in the log, or refuse it; the index moves on either way."""
        self.index += 1
        try:
            if len(envelope) > COMMAND_BYTES_MAX:
                raise RefusedError(INVALID, f"A command has at most {COMMAND_BYTES_MAX} bytes; ask for less at once.")
            opened = decode_envelope(envelope)
            return Result(True, "", self._do(decode_command(opened.command), opened.wall_ms))
        except RefusedError as refusal:
            return Result(False, str(refusal), None, refusal.code)

    def encode(self) -> bytes:
        """The whole state."""
        return encode_tables(self)

    @staticmethod
    def decode(data: bytes) -> ClusterState:
        """The state that was encoded; FlockError when it can't be read."""
        state = ClusterState()
        decode_tables(data, state)
        return state

    def _do(self, command: Command, wall_ms: int) -> Value | None:
        match command:
            case NodeSeen():
                return changes_nodes.node_seen(self, command, wall_ms)
            case NodeStateChanged():
                return changes_nodes.node_state_changed(self, command, wall_ms)
            case ForgetNode():
                return changes_nodes.forget_node(self, command)
            case RemoveNode():
                return changes_removal.remove_node(self, command, wall_ms)
            case ReplaceNode():
                return changes_nodes.replace_node(self, command)
            case SetClusterId():
                changes_nodes.set_cluster_id(self, command)
            case SetSetting():
                changes_nodes.set_setting(self, command)
            case DeleteSetting():
                changes_nodes.delete_setting(self, command)
            case _:
                return self._do_tenants(command, wall_ms)
        return None

    def _do_tenants(self, command: Command, wall_ms: int) -> Value:
        match command:
            case CreateNamespace():
                return changes_tenants.create_namespace(self, command, wall_ms)
            case AlterNamespace():
                return changes_tenants.alter_namespace(self, command)
            case DeleteNamespace():
                return changes_tenants.delete_namespace(self, command)
            case PutClient():
                return changes_tenants.put_client(self, command, wall_ms)
            case DeleteClient():
                return changes_tenants.delete_client(self, command)
            case PutAcl():
                return changes_tenants.put_acl(self, command)
            case DeleteAcl():
                return changes_tenants.delete_acl(self, command)
            case Ban():
                return changes_bans.ban(self, command, wall_ms)
            case Unban():
                return changes_bans.unban(self, command)
            case _:
                return self._do_topics(command, wall_ms)

    def _do_topics(self, command: Command, wall_ms: int) -> Value:
        match command:
            case CreateTopic():
                return changes_topics.create_topic(self, command, wall_ms)
            case AlterTopic():
                return changes_topics.alter_topic(self, command)
            case DeleteTopic():
                return changes_topics.delete_topic(self, command)
            case CreateHidden():
                return changes_topics.create_hidden(self, command, wall_ms)
            case CreateCursor():
                return changes_cursors.create_cursor(self, command, wall_ms)
            case DeleteCursor():
                return changes_cursors.delete_cursor(self, command)
            case SetTarget():
                return changes_topics.set_target(self, command)
            case ReplicasAre():
                return changes_topics.replicas_are(self, command)
            case AcceptLoss():
                return changes_topics.accept_loss(self, command)
            case Rebalance():
                return changes_topics.rebalance(self, command)
            case _:
                return self._do_groups(command, wall_ms)

    def _do_groups(self, command: Command, wall_ms: int) -> Value:
        match command:
            case CreateGroup():
                return changes_groups.create_group(self, command, wall_ms)
            case AlterGroup():
                return changes_groups.alter_group(self, command, wall_ms)
            case DeleteGroup():
                return changes_groups.delete_group(self, command)
            case ResetGroup():
                return changes_groups.reset_group(self, command, wall_ms)
            case ShareGroup():
                return changes_groups.share_group(self, command, wall_ms)
            case ReadDead():
                return changes_groups.read_dead(self, command, wall_ms)
            case _:
                raise RefusedError(INVALID, "This node's version does not know this command; upgrade all nodes.")
