"""QoS 2 exactly once into the log, on several nodes that die at the wrong moment."""

from __future__ import annotations

import pytest

from flockmq.durable.qos2.collecting import LEADERLESS_MS
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
        self.epoch = 0
        self.pubrecs: list[int] = []
        self.pubcomps: list[int] = []
        self.refused = 0

    def connect(self, number: int, ms: int = 2_000) -> None:
        """To another node, which has no session of it."""
        self.node = self.cluster.nodes[number]
        self.epoch += 10
        self.refused = 0
        self.session = Session(self.client_id, 5, self.cluster.now)
        self.session.epoch = self.epoch
        if self.node.releases.wants():
            self.node.releases.collect(self.client_id, self.epoch, self.collected, self.cluster.now)
        self.cluster.run(ms)

    def collected(self, ids: set[int] | None, now: int) -> None:
        if ids is None:
            self.refused += 1
        else:
            self.session.received = set(ids).union(self.session.received or ())

    def publish(self, group: int, packet_id: int, payload: bytes, run: bool = True) -> None:
        """PUBLISH: appended unless its id waits for PUBREL; PUBREC when it is committed."""
        received = self.session.received = self.session.received or set()
        if packet_id not in received:
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


def payloads(cluster: PartitionCluster, group: int) -> list[bytes]:
    node = cluster.leader(group)
    batches = node.local.read(group, node.local.first(group), 1 << 20)
    return [record.payload for batch in batches for record in BatchView(batch).records()]


def unreleased(node: Node, group: int) -> set[int]:
    known = node.machines.by_group[group].unreleased(b"c")
    return set() if known is None else known.ids


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
    assert all(not node.machines.by_client for node in cluster.nodes.values())


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


def test_without_a_majority_nobody_can_release_and_nobody_can_say() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    leader = cluster.leader(1).id
    publisher.connect(leader)
    publisher.publish(1, 9, b"x")
    others = [number for number in (1, 2, 3) if number != leader]
    cluster.lost = lambda sender, receiver: sender in others or receiver in others
    publisher.pubrel(9, 12_000)
    assert publisher.pubcomps == []
    publisher.connect(leader, 4_000)
    assert publisher.refused == 1, "others are alive, and their groups were not answered for"
    assert publisher.session.received is None


def test_a_group_that_can_have_no_leader_does_not_keep_everybody_out() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    cluster.kill(2)
    cluster.kill(3)
    cluster.run(3_000)
    publisher.connect(1, 4_000)
    assert publisher.session.received == set()
    kinds = [event.kind for event in cluster.nodes[1].events.take()]
    assert kinds == ["unreleased_not_known"]


def test_what_may_be_in_a_group_without_a_leader_waits_for_it() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(2)
    publisher.publish(1, 5, b"x")
    cluster.kill(2)
    cluster.kill(3)
    cluster.run(3_000)
    publisher.connect(1, 1_000)
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


def test_a_group_without_a_leader_for_long_keeps_nobody_out_any_more() -> None:
    cluster = PartitionCluster(groups=2)
    leader = cluster.leader(1).id
    sound, damaged = [number for number in (1, 2, 3) if number != leader]
    for number in (leader, damaged):
        cluster.nodes[number].engine.host.break_group(1, FlockError("damaged"))
    cluster.run(3_000)
    publisher = Publisher(cluster)
    publisher.connect(sound, 4_000)
    assert publisher.refused == 1
    cluster.run(LEADERLESS_MS)
    publisher.connect(sound, 4_000)
    assert publisher.refused == 0
    assert publisher.session.received == set()


def test_collecting_waits_for_what_is_in_the_log_and_not_applied() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    leader = cluster.leader(1).id
    others = [number for number in (1, 2, 3) if number != leader]
    publisher.connect(leader)
    cluster.lost = lambda sender, receiver: receiver in others
    publisher.publish(1, 7, b"late", run=False)
    cluster.run(50)
    state = cluster.nodes[leader].engine.host.groups[1].state
    assert state.log.last_index > state.applied
    publisher.connect(others[0], 50)
    assert publisher.session.received is None
    cluster.lost = lambda sender, receiver: False
    cluster.run(2_500)
    assert publisher.session.received == {7}


def batch_of(client: bytes, epoch: int) -> bytes:
    builder = BatchBuilder()
    builder.add(b"t", client, 1, 2, b"x")
    builder.mark(packet_id=3, session_epoch=epoch)
    return builder.build()


def test_what_a_replaced_owner_still_wants_to_append_is_refused_by_every_leader() -> None:
    cluster = PartitionCluster(groups=2)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.connect(2)
    for group in (1, 2):
        leader = cluster.leader(group)
        assert leader.fences.admits(group, batch_of(b"c", 10)) == 0
        assert leader.fences.admits(group, batch_of(b"c", 20)) == ADMITTED
        assert leader.fences.admits(group, batch_of(b"d", 1)) == ADMITTED
        assert leader.fences.admits(group, batch_of(b"c", 0)) == ADMITTED, "not QoS 2"
    for number in (1, 2, 3):
        cluster.kill(number)
    for number in (1, 2, 3):
        cluster.restart(number)
    assert cluster.nodes[1].fences.admits(1, batch_of(b"c", 10)) == ASK_LATER, "its log may know better"
    cluster.run(4_000)
    assert cluster.leader(1).fences.admits(1, batch_of(b"c", 10)) == 0, "the log has it"


def test_a_release_that_an_earlier_owner_sent_late_changes_nothing() -> None:
    cluster = PartitionCluster(groups=1)
    first = Publisher(cluster)
    first.connect(1)
    first.publish(1, 5, b"x")
    second = Publisher(cluster)
    second.epoch = 10
    second.connect(2)
    first.pubrel(5)
    assert unreleased(cluster.leader(1), 1) == {5}
    second.pubrel(5)
    assert unreleased(cluster.leader(1), 1) == set()


def test_a_session_that_comes_back_means_by_its_ids_what_the_logs_know() -> None:
    known: dict[str, Session] = {}
    cluster = PartitionCluster(groups=1, sessions={1: known})
    here = Publisher(cluster)
    here.connect(1)
    node, session = here.node, here.session
    known["c"] = session
    for packet_id in (5, 6):
        here.publish(1, packet_id, b"%d" % packet_id)
    elsewhere = Publisher(cluster)
    elsewhere.epoch = 10
    elsewhere.connect(2)
    elsewhere.pubrel(5)
    node.releases.collect("c", 30, here.collected, cluster.now)
    cluster.run(2_000)
    assert here.session.received == {6}
    assert session.received == {6}, "5 may be another message's by now"


def test_a_session_that_ends_leaves_no_ids_behind() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    publisher.node.releases.ended(publisher.session)
    cluster.run(500)
    assert unreleased(cluster.leader(1), 1) == set()
    publisher.connect(2)
    assert publisher.session.received == set()


def end_session(publisher: Publisher) -> None:
    publisher.session.received = None
    publisher.session.is_over = True


def test_that_a_session_has_ended_is_noticed() -> None:
    known: dict[str, Session] = {}
    cluster = PartitionCluster(groups=1, sessions={1: known})
    publisher = Publisher(cluster)
    publisher.connect(1)
    known["c"] = publisher.session
    publisher.publish(1, 5, b"x")
    cluster.run(500)
    assert unreleased(cluster.leader(1), 1) == {5}
    known.clear()
    end_session(publisher)
    cluster.run(500)
    assert unreleased(cluster.leader(1), 1) == set()


def test_a_session_that_moved_away_is_left_to_its_new_owner() -> None:
    known: dict[str, Session] = {}
    cluster = PartitionCluster(groups=1, sessions={1: known})
    publisher = Publisher(cluster)
    publisher.connect(1)
    known["c"] = publisher.session
    publisher.publish(1, 5, b"x")
    known.clear()
    cluster.run(500)
    assert unreleased(cluster.leader(1), 1) == {5}


def test_a_session_after_one_that_ended_here_does_not_inherit_its_ids() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    end_session(publisher)
    publisher.connect(1)
    assert publisher.session.received == set()
    assert unreleased(cluster.leader(1), 1) == set()
    publisher.publish(1, 6, b"y")
    end_session(publisher)
    publisher.session = Session("c", 5, cluster.now)
    publisher.session.epoch = 99
    publisher.publish(1, 7, b"z")
    assert unreleased(cluster.leader(1), 1) == {7}


def test_a_clean_start_elsewhere_voids_what_a_dead_owner_left() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    publisher.publish(1, 5, b"x")
    cluster.kill(1)
    cluster.nodes[2].releases.begins_anew("c", 20, cluster.now)
    cluster.run(4_000)
    assert unreleased(cluster.leader(1), 1) == set()
    publisher.epoch = 20
    publisher.connect(3)
    assert publisher.session.received == set()


def test_nothing_is_asked_without_durable_topics_and_for_ids_of_other_topics() -> None:
    cluster = PartitionCluster(groups=1)
    publisher = Publisher(cluster)
    publisher.connect(1)
    told: list[bool] = []
    assert not publisher.node.releases.release(publisher.session, [1, 2], told.append, cluster.now)
    assert publisher.node.releases.wants()
    cluster.state.places = {}
    assert not publisher.node.releases.wants()


def test_many_clients_share_a_round() -> None:
    cluster = PartitionCluster(groups=2)
    publishers = [Publisher(cluster, f"c{number}") for number in range(40)]
    for publisher in publishers:
        publisher.connect(1, 0)
    cluster.run(1_000)
    for number, publisher in enumerate(publishers):
        publisher.publish(1 + number % 2, 1 + number, b"x", run=False)
    cluster.run(1_000)
    cluster.kill(1)
    for publisher in publishers:
        publisher.connect(2, 0)
    cluster.run(4_000)
    assert [publisher.session.received for publisher in publishers] == [{1 + number} for number in range(40)]


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_leader_that_was_cut_off_does_not_speak_for_its_group(is_quiet: bool) -> None:
    """The others may have the next one already, and stored something."""
    cluster = PartitionCluster(nodes=5, groups=1)
    leader = cluster.leader(1)
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
    missing: list[list[int]] = []
    cluster.nodes[4].seen = side
    cluster.nodes[4].collecting.collect(b"c", 20, lambda found, groups, now: missing.append(groups), cluster.now)
    cluster.run(4_000)
    assert missing == [[1]]


def test_a_leader_that_hears_one_member_again_does_not_speak_for_its_group() -> None:
    """The others have the next one already; this one stood still, and only hears the one that does not lead."""
    cluster = PartitionCluster(nodes=3, groups=1)
    old = cluster.leader(1)
    cluster.run(5_000)
    old.running = False
    cluster.run(5_000)
    new = cluster.leader(1)
    assert new is not old
    old.running = True
    old.seen = [old.id]
    cluster.lost = lambda one, other: {one, other} == {old.id, new.id}
    while all(peer.heard_raw < cluster.now for peer in old.engine.host.peers.values()):
        cluster.tick()
        cluster.turn()
    assert old.engine.host.groups[1].state.quiet
    missing: list[list[int]] = []
    old.collecting.collect(b"c", 20, lambda found, groups, now: missing.append(groups), cluster.now)
    cluster.run(4_000)
    assert missing == [[1]]
