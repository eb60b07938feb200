"""Each rule can be broken, and is then named."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flockmq.testing.simulation.events import EventQueue
from flockmq.testing.simulation.nodes.rules import Rules
from flockmq.testing.simulation.world import Violation

TOPIC = b"t/p/0"


class Cluster:
    """What rules need of a cluster."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}
        self.queue = EventQueue()
        self.ends = [2]

    def count(self, name: str, by: int = 1) -> None:
        self.figures[name] = self.figures.get(name, 0) + by


class Client:
    """A subscriber that is still connected."""

    connected = True
    connections = 1


def payload(number: int) -> bytes:
    return b"p 0 %d" % number


def log(*numbers: int) -> list[list[tuple[bytes, bytes]]]:
    return [[(TOPIC, payload(number)) for number in numbers]]


def rules(qos: int = 1, sent: int = 5, acknowledged: int = 5) -> Rules:
    found = Rules(cast("Any", Cluster()), 1)
    for number in range(1, sent + 1):
        found.sent(payload(number), TOPIC, qos)
        if number <= acknowledged:
            found.acknowledged(payload(number))
    return found


def test_what_holds() -> None:
    rules(acknowledged=4).check_logs(log(1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("numbers", "rule"),
    [
        ((1, 2, 4, 5), "nothing lost"),
        ((1, 3, 2, 4, 5), "order"),
        ((1, 2, 2, 3, 4, 5), "exactly once"),
        ((1, 2, 3, 4, 5, 6), "no phantom"),
    ],
)
def test_what_does_not(numbers: tuple[int, ...], rule: str) -> None:
    with pytest.raises(Violation) as broken:
        rules().check_logs(log(*numbers))
    assert broken.value.rule == rule


def test_what_was_sent_again_may_be_there_twice_at_qos_1_only() -> None:
    for qos in (1, 2):
        found = rules(qos)
        found.sent_again(payload(2))
        if qos == 1:
            found.check_logs(log(1, 2, 2, 3, 4, 5))
        else:
            with pytest.raises(Violation, match="exactly once"):
                found.check_logs(log(1, 2, 2, 3, 4, 5))


def test_what_was_refused_may_not_be_there() -> None:
    found = rules(acknowledged=4)
    found.refused(payload(5), 0x97)
    found.check_logs(log(1, 2, 3, 4))
    with pytest.raises(Violation, match="no phantom"):
        found.check_logs(log(1, 2, 3, 4, 5))


@pytest.mark.parametrize("qos", [1, 2])
def test_an_early_answer_is_a_promise_while_its_node_lives(qos: int) -> None:
    found = Rules(cast("Any", Cluster()), 1, is_early=True)
    for number in (1, 2):
        found.sent(payload(number), TOPIC, qos, connection=1)
        found.acknowledged(payload(number), node=number)
    with pytest.raises(Violation, match="nothing lost"):
        found.check_logs(log(2))
    found.died(1)
    with pytest.raises(Violation, match="nothing lost"):
        found.check_logs(log(1))
    if qos == 1:
        found.check_logs(log(2))
    else:
        with pytest.raises(Violation, match="nothing lost"):
            found.check_logs(log(2))


def test_the_order_of_early_answers_is_that_of_a_connection() -> None:
    found = Rules(cast("Any", Cluster()), 1, is_early=True)
    for number, connection in ((1, 1), (2, 1), (3, 2)):
        found.sent(payload(number), TOPIC, 1, connection)
    found.check_logs(log(3, 1, 2))
    with pytest.raises(Violation, match="order"):
        found.check_logs(log(2, 1, 3))
    found.sent_again(payload(2))
    found.check_logs(log(2, 1, 3))


@pytest.mark.parametrize(
    ("came", "replay", "is_kept"),
    [
        ((3, 4, 5), False, True),
        ((2, 3, 4, 5), False, True),
        ((3, 5), False, False),
        ((3, 3, 4, 5), False, False),
        ((4, 5), False, False),
        ((3, 4), False, False),
        ((), False, False),
        ((1, 2, 3, 4, 5), True, True),
        ((2, 3, 4, 5), True, False),
    ],
    ids=["all", "more", "gap", "repeat", "late", "not to the end", "nothing", "replay", "not from the start"],
)
def test_deliveries(came: tuple[int, ...], replay: bool, is_kept: bool) -> None:
    cluster = Cluster()
    found = Rules(cast("Any", cluster), 1)
    seen = found.asked("s", cast("Any", Client()))
    for number in range(1, 6):
        if number == 3:
            found.promised_to(seen, replay, 0)
        cluster.queue.now = number
        found.sent(payload(number), TOPIC, 1)
    seen.messages.extend((TOPIC, payload(number)) for number in came)
    if is_kept:
        found.check_deliveries(log(1, 2, 3, 4, 5))
    else:
        with pytest.raises(Violation, match="delivery"):
            found.check_deliveries(log(1, 2, 3, 4, 5))


def moved(rules: Rules) -> bytes:
    """A topic name that another shard takes when there are two."""
    names = (b"t/p/%d" % number for number in range(100))
    return next(name for name in names if rules.shards_of(name) == [0, 1])


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ((1, 2), (3, 4, 5), ""),
        ((1, 2), (2, 3, 4, 5), ""),
        ((), (1, 2, 3, 4, 5), ""),
        ((1, 3), (2, 4, 5), "order"),
        ((1, 2), (3, 5, 4), "order"),
        ((1, 2), (4, 5), "nothing lost"),
    ],
)
def test_the_order_of_a_key_goes_on_in_its_new_shard(old: tuple[int, ...], new: tuple[int, ...], rule: str) -> None:
    found = Rules(cast("Any", Cluster()), 1)
    topic = moved(found)
    for number in range(1, 6):
        found.sent(payload(number), topic, 1)
        found.acknowledged(payload(number))
    found.sent_again(payload(2))
    logs = [[(topic, payload(number)) for number in numbers] for numbers in (old, new)]
    if not rule:
        found.check_logs(logs)
        return
    with pytest.raises(Violation) as broken:
        found.check_logs(logs)
    assert broken.value.rule == rule


@pytest.mark.parametrize(
    ("came", "is_kept"),
    [((1, 2, 2, 3, 4, 5), True), ((1, 2, 3, 4, 5), False), ((1, 2, 2, 4, 5), False), ((1, 2, 2, 3, 4), False)],
)
def test_deliveries_from_both_shards_of_a_key(came: tuple[int, ...], is_kept: bool) -> None:
    """Message 2 stands in both."""
    found = Rules(cast("Any", Cluster()), 1)
    topic = moved(found)
    seen = found.asked("s", cast("Any", Client()))
    found.promised_to(seen, True, 0)
    for number in range(1, 6):
        found.sent(payload(number), topic, 1)
    seen.messages.extend((topic, payload(number)) for number in came)
    logs = [[(topic, payload(number)) for number in numbers] for numbers in ((1, 2), (2, 3, 4, 5))]
    if is_kept:
        found.check_deliveries(logs)
    else:
        with pytest.raises(Violation, match="delivery"):
            found.check_deliveries(logs)
