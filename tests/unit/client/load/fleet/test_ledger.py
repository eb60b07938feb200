from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.client.load.fleet.ledger import Arrivals, Ledger

numbers = st.lists(st.integers(1, 40), max_size=80)


@given(numbers, st.integers(0, 40))
def test_arrivals_know_what_a_set_would_know(arrived: list[int], confirmed: int) -> None:
    arrivals = Arrivals()
    known: set[int] = set()
    for number in arrived:
        assert arrivals.add(number) == (number not in known)
        known.add(number)
    assert arrivals.missing(confirmed) == len(set(range(1, confirmed + 1)) - known)


def test_what_arrives_in_order_takes_no_room() -> None:
    arrivals = Arrivals()
    for number in range(1, 1_000):
        arrivals.add(number)
    assert (arrivals.through, arrivals.ahead) == (999, set())


def test_a_lost_message_is_missing_until_it_arrives() -> None:
    ledger = Ledger()
    for number in (1, 2, 3):
        ledger.confirm("plant/a/vibration", 1, number)
    ledger.receive("plant/a/vibration", 1, 1)
    ledger.receive("plant/a/vibration", 1, 3)
    assert (ledger.missing(), ledger.settled()) == (1, False)
    ledger.receive("plant/a/vibration", 1, 2)
    assert (ledger.missing(), ledger.settled()) == (0, True)


def test_a_topic_that_nothing_arrived_of_is_missing_altogether() -> None:
    ledger = Ledger()
    ledger.confirm("plant/a/pieces", 2, 1)
    assert ledger.missing() == 1


def test_qos_0_may_be_lost() -> None:
    ledger = Ledger()
    ledger.confirm("plant/a/temperature", 0, 1)
    assert ledger.published == [1, 0, 0]
    assert ledger.settled()


def test_repeats_are_told_apart() -> None:
    ledger = Ledger()
    ledger.confirm("plant/a/pieces", 2, 1)
    ledger.receive("plant/a/pieces", 2, 1)
    ledger.receive("plant/a/pieces", 2, 1)
    assert (ledger.received, ledger.repeated) == ([0, 0, 1], [0, 0, 1])


def test_commands_and_wills_must_be_settled_too() -> None:
    ledger = Ledger()
    ledger.commands_sent = 1
    assert not ledger.settled()
    assert ledger.answer(1)
    assert not ledger.answer(1)
    ledger.wills_due = 1
    assert not ledger.settled()
    ledger.wills_seen = 1
    assert ledger.settled()


def test_what_a_dead_node_had_in_its_hands_is_excused_and_nothing_else() -> None:
    ledger = Ledger()
    for number in (1, 2, 3):
        ledger.confirm("t", 1, number)
    ledger.receive("t", 1, 1)
    ledger.ask("device", 1)
    ledger.ask("other", 2)
    ledger.node_died("device", ["t"])
    assert ledger.missing() == 1  # the second; the last one the node may have had alone
    assert ledger.excused == 2  # that one, and the command
    assert not ledger.settled()
    ledger.receive("t", 1, 2)
    ledger.answer(2)
    assert ledger.settled()
    ledger.receive("t", 1, 3)
    assert ledger.excused == 1


def test_a_message_sent_again_after_its_node_died_is_no_repetition() -> None:
    ledger = Ledger()
    ledger.confirm("t", 2, 1)
    ledger.receive("t", 2, 1)
    ledger.receive("t", 2, 2)  # it came through, but its acknowledgement did not
    ledger.node_died("device", ["t"])
    ledger.receive("t", 2, 2)
    assert ledger.repeated == [0, 0, 0]
    ledger.confirm("t", 2, 3)
    ledger.receive("t", 2, 3)
    ledger.receive("t", 2, 3)
    assert ledger.repeated == [0, 0, 1]
