"""Cluster state on several nodes: founded, joined, changed from anywhere, pulled, kept over restarts."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import Command, CreateTopic, DeleteTopic, SetSetting
from flockmq.cluster.state import ClusterState
from flockmq.durable.state.submitting import UNAVAILABLE, UNKNOWN, WAITING_MAX
from flockmq.testing.lockstep_nodes import NodesLockstep, WholeNode


def three() -> NodesLockstep:
    """Three nodes, all voters."""
    cluster = NodesLockstep(cores=3)
    cluster.found(2, 3)
    cluster.until(lambda: cluster.voters() == (1, 2, 3))
    return cluster


def same(nodes: list[WholeNode]) -> bool:
    return len({node.meta.state.encode() for node in nodes}) == 1


def test_a_node_alone_founds_the_cluster() -> None:
    cluster = NodesLockstep(cores=1)
    cluster.found()
    cluster.until(lambda: cluster[1].meta.state.cluster_id == 77)
    cluster.until(lambda: 1 in cluster[1].meta.state.nodes)
    assert cluster[1].meta.is_current
    assert cluster.submit(1, SetSetting("a", 1)).ok


def test_others_become_voters_and_know_the_same() -> None:
    cluster = three()
    cluster.until(lambda: same(cluster.running()))
    state = cluster[3].meta.state
    assert state.cluster_id == 77
    assert list(state.nodes) == [1, 2, 3]
    assert all(node.meta.is_current for node in cluster.running())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_node_takes_commands(number: int) -> None:
    cluster = three()
    seen: list[int] = []
    cluster[number].watchers.append(lambda state: seen.append(len(state.topics)))
    result = cluster.submit(number, CreateTopic("orders", shards=2))
    assert result.ok
    assert "default/orders" in cluster[number].meta.state.topics
    assert seen[-1] == 1
    refused = cluster.submit(number, CreateTopic("orders"))
    assert not refused.ok
    assert refused.code == "exists"


@pytest.mark.parametrize(
    ("command", "is_in_doubt"), [(CreateTopic("orders"), True), (SetSetting("a", 1), False)], ids=["topic", "setting"]
)
def test_a_change_that_only_the_log_has_is_in_doubt_until_a_majority_is_there(
    command: Command, is_in_doubt: bool
) -> None:
    cluster = three()
    cluster.run(3_000)
    kept = {node.number: node.kept for node in cluster.running()}
    assert cluster.submit(1, command).ok
    cluster.until(lambda: same(cluster.running()))
    for number, copy in kept.items():
        cluster[number].kill()
        cluster[number].kept = copy
    cluster[2].start()
    cluster.run(10_000)
    meta = cluster[2].meta
    assert not meta.is_current
    assert meta.is_in_doubt == is_in_doubt
    cluster[3].start()
    cluster.until(lambda: cluster[2].meta.is_current)
    assert not meta.is_in_doubt
    assert ("default/orders" in meta.state.topics) == is_in_doubt


def test_damage_before_the_checkpoint_of_group_0_is_nobody_s_doubt() -> None:
    cluster = three()
    node = cluster[2]
    for number in range(40):
        assert cluster.submit(1, SetSetting(f"s{number}", "x" * 900)).ok
    replica = node.engine.replicas[0]
    replica.checkpoints.save(replica.node, node.engine.host.desks[0].table, node.meta.state_bytes())
    cluster.until(replica.checkpoints.use_saved)
    for number in range(90):
        assert cluster.submit(1, SetSetting(f"u{number % 30}", "y" * 900 + str(number))).ok
    node.store.request_checkpoint()
    cluster.run(1_000)
    path = replica.log.path(replica.log.segments[0].file_name())
    node.kill()
    data = node.disk.read(path, 0, 1 << 20)
    node.disk.write(path, 20_000, bytes([data[20_000] ^ 1]))
    node.disk.sync(path)
    node.start()
    cluster.until(lambda: node.meta.is_current)


def test_a_lone_change_is_kept_at_once() -> None:
    cluster = three()
    cluster.run(3_000)
    assert cluster.submit(1, CreateTopic("orders")).ok
    cluster.run(200)
    for node in cluster.running():
        assert "default/orders" in ClusterState.decode(node.kept).topics


def test_watchers_hear_before_whoever_asked() -> None:
    cluster = three()
    order: list[str] = []
    node = cluster[2]
    node.watchers.append(lambda state: order.append("watcher") if "a" in state.settings else None)
    node.meta.submit(SetSetting("a", 1)).then(lambda result: order.append("reply"))
    cluster.until(lambda: "reply" in order)
    assert order[0] == "watcher"


def test_the_death_of_the_leader_is_survived() -> None:
    cluster = three()
    leader = cluster.leader()
    assert leader is not None
    leader.kill()
    other = next(node for node in cluster.running())
    assert cluster.submit(other.number, SetSetting("a", 1)).ok
    leader.start()
    cluster.until(lambda: leader.meta.state.settings.get("a") == 1)
    cluster.until(lambda: leader.meta.is_current)


def test_without_a_quorum_nobody_says_that_it_is_done() -> None:
    cluster = three()
    cluster[2].kill()
    cluster[3].kill()
    result = cluster.submit(1, SetSetting("a", 1), ms_max=20_000)
    assert not result.ok
    assert result.code in (UNKNOWN, UNAVAILABLE)
    assert "a" not in cluster[1].meta.state.settings


@pytest.mark.parametrize("asked", [1, 4])
def test_what_was_never_sent_is_certainly_not_done(asked: int) -> None:
    """On a node with a replica, and on one that asks such a node."""
    cluster = NodesLockstep(cores=3, edges=1)
    cluster.found(2, 3, 4)
    cluster.until(lambda: cluster.voters() == (1, 2, 3) and cluster[4].meta.is_current)
    cluster[2].kill()
    cluster[3].kill()
    cluster.run(60_000)
    for _ in range(10):
        cluster.run(cluster.step_ms)
        assert cluster.submit(asked, SetSetting("a", 1)).code == UNAVAILABLE


def test_nodes_without_a_replica_follow_and_take_commands() -> None:
    cluster = NodesLockstep(cores=3, edges=2)
    cluster.found(2, 3, 4, 5)
    cluster.until(lambda: cluster.voters() == (1, 2, 3))
    cluster.until(lambda: same(cluster.running()))
    edge = cluster[4]
    assert not edge.meta.has_replica
    assert cluster.submit(4, SetSetting("a", 1)).ok
    assert edge.meta.state.settings["a"] == 1
    assert cluster.submit(4, DeleteTopic("none")).code == "not_found"
    cluster.until(lambda: cluster[5].meta.state.settings.get("a") == 1, 1_000)
    assert edge.meta.is_current


def test_a_node_without_a_replica_asks_another_when_one_refuses() -> None:
    cluster = NodesLockstep(seed=4, cores=3, edges=1)
    cluster.found(2, 3, 4)
    cluster.until(lambda: cluster.voters() == (1, 2, 3) and cluster[4].meta.is_current)
    leader = cluster.leader()
    assert leader is not None
    leader.kill()
    assert cluster.submit(4, SetSetting("a", 1)).ok


def test_nobody_to_ask_is_a_certain_no() -> None:
    cluster = NodesLockstep(cores=0, edges=1)
    cluster[1].start()
    assert cluster.submit(1, SetSetting("a", 1)).code == UNAVAILABLE


def test_a_late_node_gets_the_whole_state_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.state.ledger.RECENT_MAX", 5)
    monkeypatch.setattr("flockmq.durable.state.pulling.PIECE_BYTES_MAX", 100)
    cluster = NodesLockstep(cores=1, edges=1)
    cluster.found()
    for number in range(20):
        assert cluster.submit(1, SetSetting(f"s{number}", "x" * 50)).ok
    cluster[2].start()
    cluster.until(lambda: same(cluster.running()) and cluster[2].meta.state.index > 20)
    assert cluster[2].meta.ledger.jumps == 1


def test_a_copy_is_kept_where_there_is_no_replica() -> None:
    cluster = NodesLockstep(cores=1, edges=1)
    cluster.found(2)
    assert cluster.submit(2, SetSetting("a", 1)).ok
    cluster.until(lambda: bool(cluster[2].kept) and ClusterState.decode(cluster[2].kept).settings.get("a") == 1)
    cluster[2].kill()
    cluster[1].kill()
    cluster[2].start()
    assert cluster[2].meta.state.settings["a"] == 1
    assert not cluster[2].meta.is_current


def test_a_node_without_a_replica_never_forgets_that_it_knew_of_a_topic() -> None:
    """Not for the moment between two copies either: it would acknowledge messages of the topic that no log has."""
    cluster = NodesLockstep(cores=1, edges=1)
    cluster.found(2)
    for number in range(5):
        cluster.until(lambda: len(cluster[1].meta.state.nodes) == 2 and cluster[2].meta.is_current)
        assert cluster.submit(1, SetSetting("a", number)).ok
        assert cluster.submit(1, CreateTopic(f"t{number}")).ok
        cluster.until(lambda: cluster[1].heads()[2].index == cluster[1].meta.state.index)
        cluster[2].kill()
        cluster[1].kill()
        cluster[2].start()
        assert f"default/t{number}" in cluster[2].meta.state.topics or cluster[2].meta.is_in_doubt
        cluster[1].start()


def test_all_nodes_at_once_start_anew_with_what_they_knew() -> None:
    cluster = three()
    assert cluster.submit(2, SetSetting("a", 1)).ok
    for node in cluster.running():
        node.kill()
    for number in (1, 2, 3):
        cluster[number].start()
    assert not cluster[1].meta.is_current
    cluster.until(lambda: all(node.meta.state.settings.get("a") == 1 for node in cluster.running()))
    cluster.until(lambda: all(node.meta.is_current for node in cluster.running()))
    assert cluster.submit(3, SetSetting("b", 2)).ok


def test_checkpoints_of_the_state_are_used() -> None:
    cluster = three()
    for number in range(30):
        assert cluster.submit(1, SetSetting(f"s{number}", "x" * 200)).ok
    node = cluster[1]
    replica = node.engine.replicas[0]
    assert replica.checkpoints.save(replica.node, node.engine.host.desks[0].table, node.meta.state_bytes())
    cluster.until(replica.checkpoints.use_saved)
    before = node.meta.state.encode()
    cluster.run(1_000)
    node.kill()
    node.start()
    assert node.meta.state.index > 0
    cluster.until(lambda: node.meta.state.index >= ClusterState.decode(before).index)
    assert same(cluster.running())


def test_waiting_is_bounded() -> None:
    cluster = NodesLockstep(cores=1)
    cluster.found()
    cluster.until(lambda: cluster[1].meta.is_current)
    codes: list[str] = []
    for number in range(WAITING_MAX + 3):
        cluster[1].meta.submit(SetSetting("a", number)).then(lambda result: codes.append(result.code))
    assert codes == ["busy"] * 3
    cluster.until(lambda: len(codes) == WAITING_MAX + 3)
    assert set(codes[3:]) == {""}


def test_commands_too_large_are_refused() -> None:
    cluster = NodesLockstep(cores=1)
    cluster.found()
    assert cluster.submit(1, SetSetting("a", "x" * 1_000_000)).code == "invalid"


def test_a_founder_that_lost_the_state_founds_no_second_one() -> None:
    cluster = NodesLockstep(cores=1)
    cluster.found()
    assert cluster.submit(1, SetSetting("a", 1)).ok
    cluster[1].engine.close_group(0)
    cluster.run(200)
    cluster[1].kept = b""
    cluster[1].kill()
    cluster[1].start()
    cluster[1].meta.begin(77)
    assert not cluster[1].meta.has_replica
    cluster[1].meta.invited()
    cluster.run(5_000)
    assert not cluster[1].meta.is_leader


def test_a_founder_that_died_at_once_founds_it_again() -> None:
    cluster = NodesLockstep(cores=1)
    cluster.found()
    cluster[1].kill()
    cluster[1].start()
    cluster[1].meta.begin(77)
    assert cluster.submit(1, SetSetting("a", 1)).ok


def test_a_node_whose_disk_failed_still_follows_and_asks_others() -> None:
    cluster = three()
    follower = next(node for node in cluster.running() if not node.meta.is_leader)
    follower.may_stop = True
    follower.engine.stop("The disk failed.")
    cluster.run(200)
    assert cluster.submit(follower.number, SetSetting("a", 1)).ok
    assert follower.meta.state.settings["a"] == 1
    leader = cluster.leader()
    assert leader is not None
    cluster.until(lambda: not leader.heads()[follower.number].has_replica)
