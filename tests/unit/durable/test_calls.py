"""Questions find the leader, whoever that is by then."""

from __future__ import annotations

from functools import partial

import pytest

from flockmq.durable.calls import ASKS_MAX, LATER, OK, REFUSED, TASKS_PER_ASK, TIMED_OUT, Gathered, Reply
from flockmq.peering.calls import ANSWERS_MAX
from flockmq.peering.fields import Reader
from flockmq.peering.kinds import SCRUB_CALL
from flockmq.tasks import TASKS_MAX, Task, all_of
from partition_cluster import Node, PartitionCluster

KIND = 39
EACH = 38


def serve(cluster: PartitionCluster) -> None:
    for node in cluster.nodes.values():
        node.asking.serve_leader(KIND, partial(answer, node))
        node.asking.serve_each(EACH, partial(answer_each, node))


def answer(node: Node, group: int, reader: Reader) -> Reply:
    word = reader.sized()
    if word == b"later":
        return Reply(LATER)
    if word == b"no":
        return Reply(REFUSED, b"because")
    return Reply(OK, b"%d:%d:%s" % (node.id, group, word))


def answer_each(node: Node, group: int, reader: Reader) -> bytes | None:
    return b"%d" % node.id if group != 2 else None


def ask(cluster: PartitionCluster, number: int, word: bytes, group: int = 1, ms: int = 500) -> Reply:
    told: list[Reply] = []
    body = len(word).to_bytes(2, "little") + word
    cluster.nodes[number].asking.ask_leader(group, KIND, body).then(told.append)
    cluster.run(ms)
    assert len(told) == 1
    return told[0]


def test_any_node_reaches_the_leader() -> None:
    cluster = PartitionCluster(nodes=5, groups=2)
    serve(cluster)
    for group in (1, 2):
        leader = cluster.leader(group).id
        for number in cluster.nodes:
            assert ask(cluster, number, b"x", group) == (OK, b"%d:%d:x" % (leader, group))


def test_refusals_come_through_and_what_is_later_is_tried_again_until_the_time_is_over() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    serve(cluster)
    assert ask(cluster, 4, b"no") == (REFUSED, b"because")
    assert ask(cluster, 4, b"later", ms=3_500) == (TIMED_OUT, b"")
    assert ask(cluster, 4, b"x", group=77, ms=3_500) == (TIMED_OUT, b"")


def test_nonsense_is_refused_not_repeated() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    serve(cluster)
    told: list[Reply] = []
    for number in (cluster.leader(1).id, 4):
        asking = cluster.nodes[number].asking
        asking.ask_leader(1, KIND, b"\xff").then(told.append)
    cluster.run(3_500)
    assert [code for code, _ in told] == [REFUSED, TIMED_OUT]


def test_a_question_follows_a_leadership_that_moves() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    serve(cluster)
    ask(cluster, 4, b"x")
    dead = cluster.leader(1).id
    cluster.kill(dead)
    code, found = ask(cluster, 4, b"y", ms=3_000)
    assert code == OK
    assert found == b"%d:1:y" % cluster.leader(1).id
    target = next(number for number in (1, 2, 3) if number not in (dead, cluster.leader(1).id))
    cluster.lead(1, target)
    assert ask(cluster, 4, b"z") == (OK, b"%d:1:z" % target)


def test_questions_of_one_task_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.calls.ASKS_MAX", 2)
    cluster = PartitionCluster(nodes=3, groups=1)
    serve(cluster)
    asking = cluster.leader(1).asking
    body = b"\x01\x00x"

    def ask_thrice() -> Task[list[int]]:
        replies = yield from all_of([asking.ask_leader(1, KIND, body) for _ in range(3)])
        return [reply.code for reply in replies]

    assert asking.tasks.start("asks", ask_thrice()).value == [OK, OK, REFUSED]
    assert asking.tasks.start("asks again", ask_thrice()).value == [OK, OK, REFUSED]


def test_all_questions_and_answers_together_leave_tasks_for_the_rest() -> None:
    assert ASKS_MAX * TASKS_PER_ASK + ANSWERS_MAX <= TASKS_MAX * 9 // 10


def test_gathering_asks_each_node_once_and_says_who_is_missing() -> None:
    cluster = PartitionCluster(nodes=4, groups=6)
    serve(cluster)
    told: list[Gathered] = []
    cluster.nodes[4].asking.ask_leaders([1, 2, 3, 6], EACH, b"").then(told.append)
    cluster.run(1_000)
    assert told == []
    cluster.run(3_000)
    found, missing = told[0]
    assert missing == [2]
    assert found == {group: b"%d" % cluster.leader(group).id for group in (1, 3, 6)}


def test_gathering_from_nobody_ends_at_once() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    told: list[Gathered] = []
    cluster.nodes[1].asking.ask_leaders([], 21, b"").then(told.append)
    assert told == [({}, [])]


def test_a_node_that_can_not_be_asked_says_nothing() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    told: list[int] = []
    cluster.nodes[1].asking.ask_replica(99, SCRUB_CALL, b"").then(lambda reply: told.append(reply.code))
    cluster.nodes[1].asking.ask_replica(1, SCRUB_CALL, b"\xff").then(lambda reply: told.append(reply.code))
    assert told == [TIMED_OUT, REFUSED]
