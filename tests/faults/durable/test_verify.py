"""The rules themselves: each of them can be broken, and is then named."""

from __future__ import annotations

import pytest

from faults.durable.memory import Memory, payload_of
from faults.durable.verify import Record, check_deliveries, check_promises

TOPIC = b"orders/p0/k0"
MESSAGES = [payload_of("p0", 0, number) for number in range(1, 6)]


def kept(acknowledged: int = 5) -> Memory:
    """Five messages were sent, the first so many acknowledged."""
    memory = Memory(1)
    for number, payload in enumerate(MESSAGES):
        memory.sent[payload] = 0
        if number < acknowledged:
            memory.told(payload, 0)
    return memory


def log(*numbers: int) -> dict[int, list[Record]]:
    return {0: [(TOPIC, MESSAGES[number - 1]) for number in numbers]}


async def test_what_was_promised_is_there() -> None:
    figures = check_promises(kept(4), log(1, 2, 3, 4, 5))
    assert figures["acknowledged"] == 4


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((1, 2, 4, 5), "lost"), ((1, 3, 2, 4, 5), "stands behind"), ((1, 2, 2, 3, 4, 5), "sent once")],
    ids=["lost", "reordered", "doubled"],
)
async def test_what_was_not_promised_is_told(numbers: tuple[int, ...], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_promises(kept(), log(*numbers))


async def test_what_was_sent_again_may_be_there_again() -> None:
    memory = kept()
    memory.attempts = {MESSAGES[1]: 2, MESSAGES[2]: 2}
    assert check_promises(memory, log(1, 2, 3, 2, 3, 4, 5))["of these sent again"] == 2


async def test_what_was_refused_may_not_be_there() -> None:
    memory = kept(3)
    memory.told(MESSAGES[4], 0x97)
    check_promises(memory, log(1, 2, 3, 4))
    with pytest.raises(AssertionError, match="refused"):
        check_promises(memory, log(1, 2, 3, 4, 5))


@pytest.mark.parametrize("came", [(1, 2, 4), (2, 3, 3), (3, 2)], ids=["gap", "repeat", "reordered"])
async def test_a_delivery_is_a_piece_of_the_log(came: tuple[int, ...]) -> None:
    memory = kept()
    memory.seen = [{0: [MESSAGES[number - 1] for number in (2, 3, 4)]}]
    assert check_deliveries(memory, log(1, 2, 3, 4, 5)) == 3
    memory.seen = [{0: [MESSAGES[number - 1] for number in came]}]
    with pytest.raises(AssertionError, match="shard 0"):
        check_deliveries(memory, log(1, 2, 3, 4, 5))
