"""All kinds of calls between nodes, in one table: ``peering.calls`` carries them, the packages above serve them.

| number | kind | asked | question -> answer |
| --- | --- | --- | --- |
| 1 | PING | a peer | nothing -> wall clock in milliseconds |
| 2 | EXPLAIN | every peer | topic name -> the clients there that would get it |
| 3 | KICK | every peer | client id -> one byte, 1: the client was connected there |
| 4 | END_SESSION | every peer | client id -> one byte, 1: the session was there |
| 5 | BAN_HITS | every peer | kind, 0, value of a ban -> connections that it ended, 4 bytes |
| 6 | LISTING | a peer | a page request (``admin/node_listings.py``) -> clients, sessions or subscriptions |
| 7 | FIND | every peer | client id -> the client or session there |
| 8 | HELD | every peer | client ids -> those of them whose sessions are there |
| 10 | META_SUBMIT | a replica of group 0 | command envelope -> status, index, result |
| 11 | META_PULL | a peer that is ahead | index, index of a state, position -> commands, or a piece of the state |
| 12 | META_HEAD | leader of group 0 | nothing -> committed index, confirmed by a quorum |
| 13 | META_MEMBERS | leader of a group | group -> index, configuration |
| 20 | CURSOR | leader of the partition | commits, resets, deletions -> outcome and offset of each |
| 21 | POSITIONS | leaders of many | cursor names -> per partition: offset of each cursor |
| 22 | ADOPT | leader of the partition | client ids, epochs of new owners -> of each: QoS 2 ids that the log holds |
| 23 | RELEASE | leader of the partition | released QoS 2 ids, clients to be forgotten -> done |
| 24 | STATUS | a node | partitions -> ``ReplicaStatus`` of each replica there |
| 25 | FETCH | a replica | group, offset, until, position, bytes, wait -> first, end, batches |
| 26 | LOCATE | leaders of many, or replicas | start, how sure -> per partition: grade, offset, first, end |
| 28 | SEEK | a replica of ``$capture`` | offsets, filters -> for each: where the next record may be that matches |
| 30 | SINK_STAGE | leader of the partition | a piece of a chunk -> accepted |
| 31 | SINK_COMMIT | leader of the partition | epoch -> committed |
| 32 | SINK_DROP | leader of the partition | sink -> dropped |
| 33 | SINK_STATE | leaders of many | sink -> per partition: its state |
| 35 | SCRUB | a node | partitions -> number of replicas that it will verify |
| 36 | ENTRIES | a replica | index range -> entries |
| 37 | DIGESTS | a replica | index range -> digests of blocks of entries |
| 38 | SEGMENTS | a peer | after which group -> segment files of the following groups |
| 39 | DECIDERS | a replica of group 0 | nothing -> leader, voters, learners |
| 40 | SESSION | leader of a shard of ``$sessions`` | statements about sessions -> index, result of each |
| 41 | LEASE | leader of a shard of ``$sessions`` | node, version of its filters -> changes since, and a lease |
| 42 | RECORD | leader of a shard of ``$sessions`` | client -> the record of its session |
| 43 | RECORDS | leader of a shard of ``$sessions`` | as LISTING -> sessions that no node has, of the shard |
| 44 | WILLS | leader of a partition | shard, sequence, wills -> they are in the log |
| 45 | COUNTS | leaders of many, of ``$sessions`` | namespaces, users -> how many persistent sessions each has there |
| 46 | DISPLACED | a node | (client, epoch)... that it has no more -> nothing |
| 47 | YIELD | a node | client, epoch -> where the session stands, its packet ids in flight |
| 48 | GROUP_PULL | leader of the partition | what members of consumer groups take -> grants, now or in a moment |
| 49 | GROUP_SETTLE | leader of the partition | acks, nacks, ... -> a code for each |
| 50 | GROUP_HELD | every node, by a new leader | partition, term -> what members there hold |
| 51 | GROUP_LETTERS | leader of the partition | partition, sequence, dead letters -> they are in the log |
| 52 | GROUP_BEGIN | leader of the partition | group, generation -> the log has begun it |
| 53 | GROUP_STATUS | leaders of many | group -> per partition: where it stands |

"Leaders of many": one question for all partitions that a node seems to lead (``durable.calls.PartitionCalls.gather``).
"""

from __future__ import annotations

from typing import Final

PING: Final = 1
EXPLAIN: Final = 2
KICK: Final = 3
END_SESSION: Final = 4
BAN_HITS: Final = 5
LISTING: Final = 6
FIND: Final = 7
HELD: Final = 8

META_SUBMIT: Final = 10
META_PULL: Final = 11
META_HEAD: Final = 12
META_MEMBERS: Final = 13

CURSOR_CALL: Final = 20
POSITIONS_CALL: Final = 21
ADOPT_CALL: Final = 22
RELEASE_CALL: Final = 23
STATUS: Final = 24
FETCH: Final = 25
LOCATE: Final = 26
SEEK: Final = 28
SINK_STAGE_CALL: Final = 30
SINK_COMMIT_CALL: Final = 31
SINK_DROP_CALL: Final = 32
SINK_STATE_CALL: Final = 33
SCRUB_CALL: Final = 35
ENTRIES_CALL: Final = 36
DIGESTS_CALL: Final = 37
SEGMENTS: Final = 38
DECIDERS: Final = 39
SESSION_CALL: Final = 40
LEASE_CALL: Final = 41
RECORD_CALL: Final = 42
RECORDS_CALL: Final = 43
WILLS_CALL: Final = 44
COUNTS_CALL: Final = 45
DISPLACED_CALL: Final = 46
YIELD_CALL: Final = 47
GROUP_PULL: Final = 48
GROUP_SETTLE: Final = 49
GROUP_HELD: Final = 50
GROUP_LETTERS: Final = 51
GROUP_BEGIN: Final = 52
GROUP_STATUS: Final = 53
