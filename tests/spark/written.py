"""What tests of the sink look at: the records of a topic, and an MQTT client that listens while they are written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from flockmq.client.log_client import LogClient

WAIT_S: Final = 60.0


class Written(NamedTuple):
    """A record of a durable topic."""

    shard: int
    offset: int
    name: str
    payload: bytes
    client: str
    flags: int
    key: bytes | None
    user: list[tuple[bytes, bytes]]


def written(client: LogClient, topic: str) -> list[Written]:
    """All records of a topic, by shard and offset."""
    found: list[Written] = []
    for head in client.heads(topic).heads:
        offset = 0
        while offset < head.end_offset:
            batches = client.read(topic, head.shard, offset, wait_ms=1_000)
            for view in batches:
                for index in range(view.count):
                    one = view.record(index)
                    found.append(
                        Written(
                            head.shard,
                            one.offset,
                            one.topic.decode(),
                            one.payload,
                            one.client.decode(),
                            one.flags,
                            one.key,
                            one.user,
                        )
                    )
            offset = batches.next_offset
    return found


def payloads(client: LogClient, topic: str) -> list[bytes]:
    """The payloads of a topic, sorted."""
    return sorted(one.payload for one in written(client, topic))


class Listener:
    """An MQTT 5 client that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[mqtt.MQTTMessage] = []
        self._subscribed = threading.Event()
        self._news = threading.Condition()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_message = self._keep

    def _keep(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        with self._news:
            self.messages.append(message)
            self._news.notify_all()

    def wait_for(self, count: int) -> list[mqtt.MQTTMessage]:
        """Messages, once there are that many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.messages) >= count, WAIT_S), f"{len(self.messages)} of {count}"
            return list(self.messages)

    def subscribe(self, port: int, topic_filter: str) -> None:
        """Return when the broker has said that it will send."""
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe(topic_filter, options=SubscribeOptions(qos=1))
        assert self._subscribed.wait(WAIT_S)


@contextmanager
def listening(port: int, topic_filter: str) -> Iterator[Listener]:
    """Subscribed, QoS 1."""
    listener = Listener()
    try:
        listener.subscribe(port, topic_filter)
        yield listener
    finally:
        listener.client.disconnect()
        listener.client.loop_stop()
