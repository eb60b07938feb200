"""Each rule of persistent sessions can be broken, and is then named; what is allowed passes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flockmq.mqtt.packets import Publish
from flockmq.testing.simulation.events import EventQueue
from flockmq.testing.simulation.nodes.archive import Archive
from flockmq.testing.simulation.nodes.ledger import Ledger
from flockmq.testing.simulation.nodes.plan import parse_plan
from flockmq.testing.simulation.nodes.rules import Rules
from flockmq.testing.simulation.nodes.session_machines import SessionMachineRules
from flockmq.testing.simulation.nodes.session_positions import PositionRules
from flockmq.testing.simulation.nodes.session_rules import STUCK_US, UNDER_WAY_US, SessionRules, under_way_us
from flockmq.testing.simulation.world import Violation

TOPIC = b"live/l/0"
SECOND_US = 1_000_000


def payload(number: int) -> bytes:
    return b"l 0 %d" % number


class Cluster:
    """What rules need of a cluster."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}
        self.queue = EventQueue()
        self.groups = [1]
        self.archive = Archive(cast("Any", self), [])
        self.positions = PositionRules(cast("Any", self))
        self.session_machines = SessionMachineRules(cast("Any", self), [])

    def count(self, name: str, by: int = 1) -> None:
        self.figures[name] = self.figures.get(name, 0) + by


class History:
    """A publisher and a persistent session. A second passes before each step."""

    def __init__(self, *, is_early: bool = False, exactly_once_out: bool = False) -> None:
        self.cluster = Cluster()
        self.ledger = Ledger(cast("Any", self.cluster), is_early)
        self.rules = SessionRules(
            cast("Any", self.cluster), [self.ledger], UNDER_WAY_US, exactly_once_out=exactly_once_out
        )
        self.story = self.rules.opened("q")

    def pass_time(self) -> None:
        self.cluster.queue.now += SECOND_US

    def ask(self) -> None:
        self.pass_time()
        self.rules.connected(self.story, is_present=False, is_first=True, node=1)
        self.rules.asked(self.story)

    def subscribe(self) -> None:
        self.ask()
        self.pass_time()
        self.rules.granted(self.story)

    def send(self, *numbers: int, qos: int = 1) -> None:
        for number in numbers:
            self.pass_time()
            self.ledger.sent(payload(number), TOPIC, qos)

    def acknowledge(self, *numbers: int) -> None:
        for number in numbers:
            self.pass_time()
            self.ledger.acknowledged(payload(number), node=1)

    def publish(self, *numbers: int, qos: int = 1) -> None:
        self.send(*numbers, qos=qos)
        self.acknowledge(*numbers)

    def deliver(self, *numbers: int, qos: int = 1, packet_id: int = 1) -> None:
        for number in numbers:
            self.pass_time()
            self.rules.came(self.story, Publish(TOPIC, payload(number), qos, packet_id=packet_id))


@pytest.fixture
def history() -> History:
    return History()


def broken(rule: str) -> Any:
    return pytest.raises(Violation, match=f"^{rule}: ")


# Session present.


def test_a_session_that_was_promised_is_there(history: History) -> None:
    history.subscribe()
    history.rules.connected(history.story, is_present=True, is_first=False, node=1)
    with broken("session present"):
        history.rules.connected(history.story, is_present=False, is_first=False, node=1)


def test_a_session_without_a_suback_may_be_lost_or_there(history: History) -> None:
    history.ask()
    history.rules.connected(history.story, is_present=False, is_first=False, node=1)
    history.rules.connected(history.story, is_present=True, is_first=False, node=1)


def test_there_is_no_session_before_the_first_connect(history: History) -> None:
    with broken("session present"):
        history.rules.connected(history.story, is_present=True, is_first=True, node=1)


# Session keeps.


def test_what_is_acknowledged_after_the_suback_comes(history: History) -> None:
    history.subscribe()
    history.publish(1, 2, 3)
    history.deliver(1, 3)
    assert history.rules.missing() == "q lacks 1 messages, such as [b'l 0 2']"
    with broken("session keeps"):
        history.rules.check()


def test_repeats_are_counted(history: History) -> None:
    history.subscribe()
    history.publish(1, 2)
    history.deliver(1, 2, 1, 2)
    history.rules.check()
    assert history.cluster.figures["session repeats"] == 2
    assert history.cluster.figures["session messages due"] == 2


def test_what_was_sent_before_the_suback_need_not_come(history: History) -> None:
    history.send(1)
    history.ask()
    history.send(2)
    history.rules.granted(history.story)
    history.acknowledge(1, 2)
    history.rules.check()


def test_what_was_refused_or_not_answered_need_not_come(history: History) -> None:
    history.subscribe()
    history.send(1, 2)
    history.ledger.refused(payload(1), 0x80)
    history.rules.check()


def test_an_early_answer_binds_while_its_node_lives() -> None:
    history = History(is_early=True)
    history.subscribe()
    history.publish(1)
    with broken("session keeps"):
        history.rules.check()
    history.ledger.died(1)
    history.rules.check()


# Session order.


def test_first_deliveries_keep_their_order(history: History) -> None:
    history.subscribe()
    history.publish(1, 2, 3)
    history.deliver(1, 2, 1, 2, 3)
    history.rules.check()


def test_a_message_behind_a_later_one(history: History) -> None:
    history.subscribe()
    history.publish(1, 2)
    history.deliver(2)
    with broken("session order"):
        history.deliver(1)


def test_a_second_attempt_of_an_early_message_may_come_behind_later_ones(history: History) -> None:
    """The first attempt at message 1 stands before the start of the subscription."""
    history.send(1)
    history.subscribe()
    history.publish(2)
    history.deliver(2)
    history.ledger.sent_again(payload(1))
    history.acknowledge(1)
    history.deliver(1)
    history.rules.check()


def test_a_second_attempt_after_the_suback_has_its_place(history: History) -> None:
    history.subscribe()
    history.send(1)
    history.publish(2)
    history.ledger.sent_again(payload(1))
    history.deliver(2)
    with broken("session order"):
        history.deliver(1)


@pytest.mark.parametrize("has_grown", [False, True])
def test_a_name_that_moved_to_another_shard_is_read_from_both(has_grown: bool) -> None:
    cluster = Cluster()
    durable = Rules(cast("Any", cluster), 1)
    topic = next(name for name in (b"t/p/%d" % number for number in range(100)) if durable.shards_of(name) == [0, 1])
    rules = SessionRules(cast("Any", cluster), [durable], UNDER_WAY_US)
    story = rules.opened("q")
    cluster.groups = [1, 2] if has_grown else [1]
    for number in (1, 2):
        durable.sent(payload(number), topic, 1)
    rules.came(story, Publish(topic, payload(2), 1, packet_id=1))
    if has_grown:
        rules.came(story, Publish(topic, payload(1), 1, packet_id=2))
    else:
        with broken("session order"):
            rules.came(story, Publish(topic, payload(1), 1, packet_id=2))


# Nothing before, nothing invented.


def test_what_was_acknowledged_before_the_subscribe_does_not_come(history: History) -> None:
    history.publish(1)
    history.subscribe()
    with broken("nothing before"):
        history.deliver(1)


@pytest.mark.parametrize("is_again", [False, True])
def test_what_is_under_way_may_come(history: History, is_again: bool) -> None:
    history.send(1)
    if is_again:
        history.ledger.sent_again(payload(1))
        history.acknowledge(1)
    history.subscribe()
    history.deliver(1)


def test_what_was_acknowledged_just_before_may_come(history: History) -> None:
    history.publish(1)
    history.cluster.queue.now += UNDER_WAY_US
    history.rules.asked(history.story)
    history.deliver(1)


def test_what_was_acknowledged_early_may_come() -> None:
    history = History(is_early=True)
    history.publish(1)
    history.subscribe()
    history.deliver(1)


def test_a_second_subscribe_does_not_move_the_start(history: History) -> None:
    """A node may have taken the first SUBSCRIBE, though its SUBACK never came."""
    history.ask()
    history.publish(1)
    history.ask()
    history.deliver(1)


def test_what_was_never_sent_does_not_come(history: History) -> None:
    history.subscribe()
    with broken("no phantom"):
        history.deliver(1)
    history.publish(1)
    with broken("no phantom"):
        history.rules.came(history.story, Publish(b"live/l/1", payload(1), 1, packet_id=1))


def test_messages_are_longer_under_way_where_nodes_stand_still() -> None:
    assert under_way_us(parse_plan("nodes=3 shards=1 copies=3 ms=9; 1 kill 1")) == UNDER_WAY_US
    assert under_way_us(parse_plan("nodes=3 shards=1 copies=3 ms=9; 1 kill 1; 2 pause 1 300")) == STUCK_US


# Exactly once, outwards.


def qos_2(exactly_once_out: bool) -> History:
    history = History(exactly_once_out=exactly_once_out)
    history.subscribe()
    history.publish(1, 2, qos=2)
    history.deliver(1, qos=2, packet_id=1)
    return history


def test_a_resend_under_its_packet_id_is_no_repeat() -> None:
    history = qos_2(exactly_once_out=True)
    history.deliver(1, qos=2, packet_id=1)
    history.rules.released(history.story, 1)
    history.deliver(2, qos=2, packet_id=1)
    history.rules.check()
    assert history.story.came == {payload(1): 1, payload(2): 1}


def test_a_repeat_after_pubrel() -> None:
    history = qos_2(exactly_once_out=True)
    history.rules.released(history.story, 1)
    with broken("exactly once out"):
        history.deliver(1, qos=2, packet_id=1)


def test_a_repeat_under_another_packet_id() -> None:
    history = qos_2(exactly_once_out=True)
    with broken("exactly once out"):
        history.deliver(1, qos=2, packet_id=2)


def test_a_packet_id_of_two_messages() -> None:
    history = qos_2(exactly_once_out=True)
    with broken("exactly once out"):
        history.deliver(2, qos=2, packet_id=1)


def test_repeats_at_qos_2_of_another_owner_are_counted_while_the_rule_is_off() -> None:
    history = qos_2(exactly_once_out=False)
    history.cluster.session_machines.tenures[b"q"] = (2, 1, 1)
    history.rules.connected(history.story, is_present=True, is_first=False, node=2)
    history.deliver(1, qos=2, packet_id=2)
    history.deliver(2, qos=2, packet_id=3)
    history.rules.check()
    assert history.cluster.figures["session QoS 2 repeats"] == 1


def test_one_owner_repeats_nothing_at_qos_2() -> None:
    history = qos_2(exactly_once_out=False)
    with broken("exactly once out"):
        history.deliver(1, qos=2, packet_id=2)
