"""Records of sessions, found and ended from any node of three, at the leader of their shard."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from flockmq.cluster.model import SESSIONS_TOPIC
from flockmq.durable.machine.session_bodies import ClaimStatement, EndStatement, SessionStatement
from flockmq.durable.sessions.finding import ABSENT, CLAIMED, ENDED, UNKNOWN, SessionFinder, Sought
from flockmq.durable.sessions.membership import Membership
from flockmq.durable.sessions.quotas import SessionQuotas
from flockmq.durable.sessions.serving import SessionShards
from flockmq.durable.sessions.submitting import SessionLog
from flockmq.tasks import Promise
from partition_cluster import Node, PartitionCluster

CLIENT = b"c"
T = TypeVar("T")


class Sessions:
    """A cluster whose partitions are those of ``$sessions``."""

    def __init__(self, has_topic: bool = True) -> None:
        self.cluster = PartitionCluster(groups=2)
        if has_topic:
            topics = self.cluster.state.topics
            topics[f"default/{SESSIONS_TOPIC}"] = replace(topics["default/t"], name=SESSIONS_TOPIC)
        self.logs: dict[int, SessionLog] = {}
        self.finders: dict[int, SessionFinder] = {}
        for number, node in self.cluster.nodes.items():
            self._serve(number, node)
        self.nonce = 0

    def _serve(self, number: int, node: Node) -> None:
        meta = self.cluster  # has a ``state``, which is all that these parts read
        log = self.logs[number] = SessionLog(node.asking, meta)  # type: ignore[arg-type]
        quotas = SessionQuotas(node.asking, node.machines, log, meta)  # type: ignore[arg-type]
        SessionShards(node.asking, node.control, node.machines, log, meta, list, quotas, Membership(meta))  # type: ignore[arg-type]
        self.finders[number] = SessionFinder(node.asking, node.machines, log)

    def run(self, turns: int = 10) -> None:
        for _ in range(turns):
            for number in self.cluster.alive():
                self.logs[number].flush(self.cluster.now)
            self.cluster.run(500)

    def say(self, number: int, statement: SessionStatement) -> None:
        said = self.logs[number].say(CLIENT, statement)
        self.run()
        assert said.value is not None

    def claim(self, number: int) -> None:
        self.nonce += 1
        self.say(number, ClaimStatement(CLIENT, self.nonce, 0, number, 1, b"ann", 60, 5, 0))

    def find(self, number: int) -> Sought:
        return self.value(self.finders[number].find(CLIENT))

    def end(self, number: int) -> int:
        return self.value(self.finders[number].end(CLIENT))

    def value(self, promise: Promise[T]) -> T:
        told: list[T] = []
        promise.then(told.append)
        self.run()
        assert len(told) == 1
        return told[0]


def test_a_record_is_found_and_ended_from_any_node() -> None:
    sessions = Sessions()
    for number in (1, 2, 3):
        sessions.claim(1)
        found = sessions.find(number).record
        assert found is not None
        assert (found.client, found.owner, found.user) == (CLIENT, 1, b"ann")
        assert sessions.end(number) == ENDED
        assert sessions.find(number) == Sought(True, None)
        assert sessions.end(number) == ABSENT


def test_before_any_session_was_persistent_there_is_nothing_to_find() -> None:
    sessions = Sessions(has_topic=False)
    assert sessions.find(1) == Sought(True, None)
    assert sessions.end(1) == ABSENT


def test_a_client_that_connects_meanwhile_keeps_its_session() -> None:
    sessions = Sessions()
    sessions.claim(1)
    group = sessions.logs[1].group_of(CLIENT)
    leader = sessions.cluster.leader(group)
    ending = sessions.finders[leader.id].end(CLIENT)
    again = ClaimStatement(CLIENT, 99, 0, 2, 1, b"ann", 60, 5, 0)
    claimed = sessions.logs[leader.id].say(CLIENT, again)  # goes into the log before END
    assert sessions.value(ending) == CLAIMED
    assert claimed.is_set
    found = sessions.find(1).record
    assert found is not None
    assert found.owner == 2


def test_without_a_majority_nothing_is_known() -> None:
    sessions = Sessions()
    sessions.claim(1)
    for number in (2, 3):
        sessions.cluster.kill(number)
    assert sessions.end(1) == UNKNOWN
    assert sessions.find(1).is_known is False


def test_the_end_of_a_session_is_waited_for() -> None:
    sessions = Sessions()
    sessions.value(sessions.finders[2].until_ended(CLIENT))
    sessions.claim(1)
    record = sessions.find(1).record
    assert record is not None
    waiting = sessions.finders[2].until_ended(CLIENT)
    sessions.logs[1].say(CLIENT, EndStatement(CLIENT, record.epoch))
    sessions.value(waiting)
    assert sessions.find(2) == Sought(True, None)
    sessions.claim(1)
    sessions.value(sessions.finders[2].until_ended(CLIENT))  # gives up
    assert sessions.find(2).record is not None
