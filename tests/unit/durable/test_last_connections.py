"""A client goes on with its session, and lets it end with this connection: it gets from logs what it got before."""

from __future__ import annotations

import pytest

from flockmq.node.settings import BrokerSettings, Limits
from session_nodes import Device, SessionNodes


def slow_stage(qos: int) -> tuple[SessionNodes, Device]:
    """Nodes whose clients take little at a time; "c" is away from node 1, and 100 messages wait for it."""
    limits = Limits(inflight_max=10, queue_messages_max=40)
    nodes = SessionNodes(settings=BrokerSettings(sys_interval_ms=0, limits=limits))
    device = nodes.subscriber(1, "c", b"a/#", qos)
    publisher = nodes.clean(2, "p")
    nodes.drop(device)
    for number in range(100):
        assert nodes.publish(publisher, b"a/b", b"%d" % number, qos) < 0x80
    return nodes, publisher


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("qos", [1, 2])
def test_each_message_comes_once_and_in_order(number: int, qos: int) -> None:
    nodes, publisher = slow_stage(qos)
    device = nodes.connect(number, "c", expiry_s=0)
    assert device.connack.session_present
    device.holds = True
    for count in range(100, 130):
        assert nodes.publish(publisher, b"a/b", b"%d" % count, qos) < 0x80
        device.look()
    device.holds = False
    for _ in range(200):
        nodes.run(50)
        device.look()
    assert device.payloads() == [b"%d" % count for count in range(130)]


def test_the_session_is_over_with_the_connection() -> None:
    nodes, publisher = slow_stage(1)
    device = nodes.connect(3, "c", expiry_s=0)
    assert device.connack.session_present
    device.client.drop()
    nodes.until(lambda: not nodes.has_record("c"))
    assert nodes.publish(publisher, b"a/b", b"later") == 0x10
    assert not nodes.connect(1, "c").connack.session_present
