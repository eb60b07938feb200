"""Each rule can be broken, and is then named."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flockmq.testing.durable_rules import Rules
from flockmq.testing.simulation.events import EventQueue
from flockmq.testing.simulation.history import Violation

TOPIC = b"t/p/0"


class Cluster:
    """What rules need of a cluster."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}
        self.queue = EventQueue()

    def count(self, name: str, by: int = 1) -> None:
        self.figures[name] = self.figures.get(name, 0) + by

    def committed_end(self, shard: int) -> int:
        return 2 + shard


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
