"""``$delayed/SECONDS/topic``: messages that are published later. Bounded in number, bytes and time."""

from __future__ import annotations

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.namespaces import DOLLAR, INSIDE
from flockmq.mqtt.run import Run, make_run
from flockmq.mqtt.topics import check_topic_name, split_delayed
from flockmq.node.state import DELAYED_TIMER, NodeState


class Delayed:
    """A run that waits, and its publisher."""

    def __init__(self, number: int, run: Run, sender: str, due_at: int) -> None:
        self.number = number
        self.run = run
        self.sender = sender
        self.due_at = due_at


def delay_run(node: NodeState, run: Run, sender: str, levels_max: int, now: int) -> int:
    """Put a run published to ``$delayed/...`` aside; the reason code for its publisher."""
    parts = split_delayed(run.topic)
    if parts is None:
        raise RemoteProtocolError(
            reasons.TOPIC_NAME_INVALID,
            "A delayed message is published to $delayed/SECONDS/topic, for example $delayed/60/a",
        )
    seconds, topic = parts
    settings = node.settings
    is_system = topic[0] == DOLLAR and not topic.startswith(INSIDE)
    if is_system or (settings.delayed_s_max and seconds > settings.delayed_s_max):
        return reasons.TOPIC_NAME_INVALID
    check_topic_name(topic, levels_max, 65_535)
    size = len(run.wire)
    if settings.delayed_messages_max and len(node.delayed) + run.count > settings.delayed_messages_max:
        return reasons.QUOTA_EXCEEDED
    if settings.delayed_bytes_max and node.delayed_bytes + size > settings.delayed_bytes_max:
        return reasons.QUOTA_EXCEEDED
    due_at = now + seconds * 1000
    for index in range(run.count):
        properties, payload = run.parse(index)
        later = make_run(run.version, run.qos, run.retain, topic, payload, properties, run.expires_at)
        timer = node.timers.add(due_at, DELAYED_TIMER, None)
        delayed = Delayed(timer.key, later, sender, due_at)
        timer.subject = delayed
        node.delayed[delayed.number] = delayed
        node.delayed_bytes += len(later.wire)
    node.stats.delayed_accepted += run.count
    return reasons.SUCCESS


def take_delayed(node: NodeState, delayed: Delayed) -> Run:
    """The delay of a message is over: no longer count the message."""
    node.delayed.pop(delayed.number, None)
    node.delayed_bytes -= len(delayed.run.wire)
    node.stats.delayed_published += 1
    return delayed.run
