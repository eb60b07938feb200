"""QoS 2 exactly once into the log, on several nodes that die at the wrong moment."""

from __future__ import annotations

from functools import partial

import pytest

from flockmq.durable.machine.session_bodies import CLAIM, TOUCH, UNTOUCH, TouchStatement
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.publish.releasing import FULL, LOST, OPENED
from flockmq.durable.qos2.releases import IDLE_MS
from flockmq.errors import FlockError
from flockmq.log.batch import BatchBuilder, BatchView
from flockmq.raft.senders import ADMITTED, ASK_LATER, COMMITTED
from flockmq.session.session import Session
from partition_cluster import Node, PartitionCluster


class Publisher:
    """What the owner of a session does for its client: the broker's part of QoS 2, and nothing else."""

    def __init__(self, cluster: PartitionCluster, client_id: str = "c") -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.pubrecs: list[int] = []
        self.pubcomps: list[int] = []
        self.is_connected = False

    def connect(self, number: int, ms: int = 2_000, clean: bool = False, session: Session | None = None) -> None:
        """To a node, which has no session of the client unless one is given."""
        self.node = self.cluster.nodes[number]
        claimed = self.cluster.records.claim(self.client_id, number, clean)
        record = claimed.record
        assert isinstance(record, SessionRecord)
        self.session = Session(self.client_id, 5, self.cluster.now) if session is None else session
        self.is_connected = False
        if self.node.releases.wants(claimed):
            self.node.releases.collect(self.client_id, claimed).then(partial(self.attach, self.session, record))
        else:
            self.attach(self.session, record, set())
        self.cluster.run(ms)

    def attach(self, session: Session, record: SessionRecord, ids: set[int]) -> None:
        if session is not self.session:
            return
        session.is_logged = True
        session.has_record = True
        session.record_epoch = record.epoch
        self.node.sessions[self.client_id] = session
        self.node.releases.attached(session, record)
        session.received = set(ids).union(session.received or ())
        self.is_connected = True

    def open(self, *groups: int, ms: int = 500) -> list[int]:
        codes: list[int] = []
        if self.node.releases.is_open(self.session, list(groups)):
            return [OPENED]
        self.node.releases.open(self.session, list(groups), codes.append)
        self.cluster.run(ms)
        return codes

    def publish(self, group: int, packet_id: int, payload: bytes, run: bool = True) -> None:
        """PUBLISH: appended unless its id waits for PUBREL; PUBREC when it is committed."""
        received = self.session.received = self.session.received or set()
        if packet_id not in received:
            assert self.open(group) == [OPENED]
            received.add(packet_id)
            epoch = self.node.releases.tag(self.session)
            client = self.client_id.encode()
            sent = self.cluster.publish(self.node.id, group, payload, client=client, epoch=epoch, ids=(packet_id,))
            self.node.releases.note(self.session, group, [packet_id])
            if not run:
                return
            self.cluster.run(500)
            assert [outcome.kind for outcome in sent.outcomes] == [COMMITTED]
        self.pubrecs.append(packet_id)

    def pubrel(self, packet_id: int, ms: int = 1_000) -> None:
        assert self.session.received is not None
        self.session.received.discard(packet_id)
        told: list[bool] = []
        if not self.node.releases.release(self.session, [packet_id], told.append, self.cluster.now):
            told.append(True)
        self.cluster.run(ms)
        if told == [True]:
            self.pubcomps.append(packet_id)

    def touched(self) -> list[int]:
        return list(self.cluster.records.table.records[self.client_id.encode()].touched)


def payloads(cluster: PartitionCluster, group: int) -> list[bytes]:
    node = cluster.leader(group)
    batches = node.local.read(group, node.local.first(group), 1 << 20)
    return [record.payload for batch in batches for record in BatchView(batch).records()]


def unreleased(node: Node, group: int) -> set[int]:
    known = node.machines.by_group[group].client(b"c")
    return set() if known is None else set(known.ids)


def batch_of(client: bytes, epoch: int) -> bytes:
    builder = BatchBuilder()
    builder.add(b"t", client, 1, 2, b"x")
    builder.mark(packet_id=3, session_epoch=epoch)
    return builder.build()


def test_resent_to_another_node_after_its_own_died_then_the_id_is_used_again() -> None:
    cluster = PartitionCluster(groups=2)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"first")
    assert publisher.pubrecs == [5]
    cluster.kill(1)
    cluster.run(3_000)
    publisher.connect(2)
    assert publisher.session.received == {5}
    publisher.publish(1, 5, b"first")
    assert publisher.pubrecs == [5, 5]
    assert payloads(cluster, 1) == [b"first"], "no second append"
    publisher.pubrel(5)
    assert publisher.pubcomps == [5]
    assert unreleased(cluster.nodes[2], 1) == unreleased(cluster.nodes[3], 1) == set()
    publisher.publish(1, 5, b"second")
    assert payloads(cluster, 1) == [b"first", b"second"], "a new message under the old id"
    assert unreleased(cluster.nodes[3], 1) == {5}


def test_the_id_may_be_used_again_in_another_partition_and_on_a_third_node() -> None:
    cluster = PartitionCluster(nodes=5, groups=3)
    publisher = Publisher(cluster)
    publisher.connect(4)
    publisher.publish(1, 5, b"a")
    publisher.publish(2, 6, b"b")
    publisher.pubrel(5)
    publisher.publish(3, 5, b"c")
    cluster.kill(4)
    publisher.connect(5)
    assert publisher.session.received == {5, 6}
    publisher.publish(3, 5, b"c")
    publisher.pubrel(5)
    publisher.pubrel(6)
    assert publisher.pubcomps == [5, 5, 6]
    assert [payloads(cluster, group) for group in (1, 2, 3)] == [[b"a"], [b"b"], [b"c"]]


def test_a_session_touches_a_partition_once_however_many_messages_go_there() -> None:
    cluster = PartitionCluster(groups=2)
    publisher = Publisher(cluster)
    publisher.connect(1)
    for packet_id in range(1, 6):
        publisher.publish(1, packet_id, b"x")
        publisher.pubrel(packet_id)
    assert cluster.records.said == [CLAIM, TOUCH]
    assert publisher.touched() == [1]
    cluster.run(IDLE_MS - 10_000)
    assert cluster.records.said == [CLAIM, TOUCH]
    cluster.run(20_000)
    assert cluster.records.said == [CLAIM, TOUCH, UNTOUCH]
    assert cluster.leader(1).machines.by_group[1].client(b"c") is None, "its fence ends with that"


def test_a_partition_with_ids_stays_touched_and_one_without_does_not_when_the_client_goes() -> None:
    cluster = PartitionCluster(groups=2)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.publish(2, 6, b"y")
    publisher.pubrel(6)
    publisher.node.releases.detached(publisher.session)
    cluster.run(IDLE_MS + 10_000)
    assert publisher.touched() == [1]
    publisher.connect(2)
    assert publisher.session.received == {5}


def test_an_untouch_that_is_applied_late_does_not_undo_a_touch() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.pubrel(5)
    publisher.node.releases.detached(publisher.session)
    publisher.publish(1, 6, b"y")  # the FORGET of before may come behind the ADOPT of now
    cluster.run(2_000)
    assert publisher.touched() == [1]
    assert unreleased(cluster.leader(1), 1) == {6}


def test_nothing_is_appended_where_the_record_can_not_say_so() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    cluster.records.is_there = False
    assert publisher.open(1, ms=11_000) == [LOST]
    cluster.records.is_there = True
    publisher.publish(1, 5, b"x")
    other = Publisher(cluster)
    other.connect(2)
    assert publisher.open(2) == [LOST], "another owner has the session"


def test_more_partitions_than_a_session_may_touch() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    record = cluster.records.table.records[b"c"]
    record.touch(TouchStatement(b"c", record.epoch, 1, list(range(1_000, 2_024))))
    assert publisher.open(1) == [FULL]


def test_a_pubrel_after_the_failover_clears_the_id_before_its_pubcomp() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(2)
    publisher.publish(1, 9, b"x")
    cluster.kill(2)
    publisher.connect(3, 4_000)
    publisher.pubrel(9)
    assert publisher.pubcomps == [9]
    cluster.kill(1)
    cluster.restart(2)
    cluster.run(4_000)
    assert unreleased(cluster.nodes[2], 1) == unreleased(cluster.nodes[3], 1) == set()


def test_without_a_majority_no_node_can_release() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    leader = cluster.leader(1).id
    publisher.connect(leader)
    publisher.publish(1, 9, b"x")
    others = [number for number in (1, 2, 3) if number != leader]
    cluster.lost = lambda sender, receiver: sender in others or receiver in others
    publisher.pubrel(9, 12_000)
    assert publisher.pubcomps == []


def test_what_may_be_in_a_partition_without_a_leader_waits_for_it() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(2)
    publisher.publish(1, 5, b"x")
    cluster.kill(2)
    cluster.kill(3)
    cluster.run(3_000)
    publisher.connect(1, 4_000)
    assert publisher.is_connected
    assert publisher.session.received == set()
    assert not publisher.node.releases.may_append(publisher.session, 1)
    publisher.pubrel(5, 9_000)
    assert publisher.pubcomps == []
    cluster.restart(3)
    cluster.run(1_500)
    told: list[bool] = []
    assert publisher.node.releases.release(publisher.session, [5], told.append, cluster.now)
    cluster.run(5_000)
    assert told == [True]
    assert unreleased(cluster.leader(1), 1) == set()
    assert publisher.node.releases.may_append(publisher.session, 1)


def test_a_partition_that_can_not_be_asked_keeps_only_its_own_ids_unknown() -> None:
    cluster = PartitionCluster(groups=2)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.publish(2, 6, b"y")
    for number in (1, 2):
        cluster.nodes[number].engine.host.break_group(2, FlockError("damaged"))
    cluster.run(3_000)
    publisher.connect(3, 4_000)
    assert publisher.session.received == {5}
    assert publisher.node.releases.may_append(publisher.session, 1)
    assert not publisher.node.releases.may_append(publisher.session, 2)


def test_an_owner_that_asks_waits_for_what_is_in_the_log_and_not_applied() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    leader = cluster.leader(1).id
    others = [number for number in (1, 2, 3) if number != leader]
    publisher.connect(leader)
    assert publisher.open(1) == [OPENED]
    cluster.lost = lambda sender, receiver: receiver in others
    publisher.publish(1, 7, b"late", run=False)
    cluster.run(50)
    state = cluster.nodes[leader].engine.host.groups[1].state
    assert state.log.last_index > state.applied
    publisher.connect(others[0], 50)
    assert not publisher.is_connected
    cluster.lost = lambda sender, receiver: False
    cluster.run(3_500)
    assert publisher.session.received == {7}


def test_what_a_replaced_owner_still_wants_to_append_is_refused() -> None:
    cluster = PartitionCluster(groups=2)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    old = publisher.session.record_epoch
    publisher.connect(2)
    new = publisher.session.record_epoch
    leader = cluster.leader(1)
    assert leader.fences.admits(1, batch_of(b"c", old)) == 0
    assert leader.fences.admits(1, batch_of(b"c", new)) == ADMITTED
    assert leader.fences.admits(1, batch_of(b"c", 0)) == ADMITTED, "not QoS 2"
    assert cluster.leader(2).fences.admits(2, batch_of(b"c", old)) == 0, "it never was opened"
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.restart(number)
    assert cluster.nodes[1].fences.admits(1, batch_of(b"c", old)) == ASK_LATER, "its log may know better"
    cluster.run(4_000)
    assert cluster.leader(1).fences.admits(1, batch_of(b"c", old)) == 0, "the log has it"


def test_a_fence_holds_however_late_a_replaced_owner_comes() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    old = publisher.session.record_epoch
    publisher.connect(2)
    publisher.pubrel(5)
    cluster.run(1_200_000)
    assert publisher.touched() == []
    assert cluster.leader(1).fences.admits(1, batch_of(b"c", old)) == 0
    publisher.publish(1, 5, b"y")
    assert payloads(cluster, 1) == [b"x", b"y"]


def test_a_release_that_an_earlier_owner_sent_late_changes_nothing() -> None:
    cluster = PartitionCluster(groups=1)
    first = Publisher(cluster)
    first.connect(1)
    first.publish(1, 5, b"x")
    second = Publisher(cluster)
    second.connect(2)
    first.pubrel(5)
    assert unreleased(cluster.leader(1), 1) == {5}
    second.pubrel(5)
    assert unreleased(cluster.leader(1), 1) == set()


def test_a_session_that_stayed_means_by_its_ids_what_the_logs_know() -> None:
    """Its RELEASE was committed, and this node did not hear of that before the client came again."""
    cluster = PartitionCluster(nodes=4, groups=1)
    publisher = Publisher(cluster)
    publisher.connect(4)
    for packet_id in (5, 6):
        publisher.publish(1, packet_id, b"%d" % packet_id)
    cluster.lost = lambda sender, receiver: receiver == 4
    publisher.node.releases.release(publisher.session, [5], lambda done: None, cluster.now)
    cluster.run(1_000)
    cluster.lost = lambda sender, receiver: False
    assert unreleased(cluster.leader(1), 1) == {6}
    assert publisher.session.received == {5, 6}
    publisher.connect(4, session=publisher.session)
    assert publisher.session.received == {6}


def test_a_session_that_ends_leaves_no_ids_behind() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.node.releases.ended(publisher.session)
    cluster.run(500)
    assert cluster.leader(1).machines.by_group[1].client(b"c") is None


def test_a_copy_that_is_forgotten_or_moved_is_left_to_its_new_owner() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.node.sessions.clear()
    cluster.run(500)
    publisher.session.is_logged = False
    publisher.session.has_record = False
    publisher.node.releases.ended(publisher.session)
    cluster.run(500)
    assert unreleased(cluster.leader(1), 1) == {5}


def test_a_clean_start_elsewhere_voids_what_a_dead_owner_left() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    cluster.kill(1)
    publisher.connect(2, 4_000, clean=True)
    assert publisher.session.received == set()
    assert publisher.touched() == []
    assert unreleased(cluster.leader(1), 1) == set()


def test_a_session_after_a_clean_start_does_not_inherit_ids_that_are_still_there() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    cluster.records.claim("c", 2, clean=True)  # its owner dies before it says anything
    publisher.connect(3)
    assert publisher.session.received == set()
    publisher.publish(1, 5, b"y")
    assert payloads(cluster, 1) == [b"x", b"y"]


def test_nothing_is_asked_for_a_session_that_touches_nothing() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    told: list[bool] = []
    assert not publisher.node.releases.release(publisher.session, [1, 2], told.append, cluster.now)
    publisher.connect(2, 0)
    assert publisher.is_connected


def test_many_clients_share_a_call() -> None:
    cluster = PartitionCluster(groups=2)
    publishers = [Publisher(cluster, f"c{number}") for number in range(40)]
    for number, publisher in enumerate(publishers):
        publisher.connect(1, 0)
        publisher.node.releases.open(publisher.session, [1 + number % 2], lambda code: None)
    cluster.run(1_000)
    for number, publisher in enumerate(publishers):
        publisher.publish(1 + number % 2, 1 + number, b"x", run=False)
    cluster.run(1_000)
    cluster.kill(1)
    cluster.run(3_000)
    before = [cluster.leader(group).machines.by_group[group].applied for group in (1, 2)]
    for publisher in publishers:
        publisher.connect(2, 0)
    cluster.run(4_000)
    assert [publisher.session.received for publisher in publishers] == [{1 + number} for number in range(40)]
    after = [cluster.leader(group).machines.by_group[group].applied for group in (1, 2)]
    assert [one - other for one, other in zip(after, before, strict=True)] == [1, 1], "one ADOPT entry each"


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_leader_that_was_cut_off_does_not_speak_for_its_partition(is_quiet: bool) -> None:
    """The others may have the next one already, and stored something."""
    cluster = PartitionCluster(nodes=5, groups=1)
    leader = cluster.leader(1)
    publisher = Publisher(cluster)
    publisher.connect(5)
    publisher.publish(1, 5, b"x")
    if is_quiet:
        cluster.run(5_000)
    else:
        cluster.publish(leader.id, 1, b"x")
        cluster.run(200)
    assert leader.engine.host.groups[1].state.quiet == is_quiet
    side = [leader.id, 4]
    cluster.lost = lambda one, other: (one in side) != (other in side)
    cluster.run(700)
    assert leader.engine.is_leader(1)
    publisher.connect(4, 4_000)
    assert publisher.is_connected
    assert not publisher.node.releases.may_append(publisher.session, 1), "not known"
