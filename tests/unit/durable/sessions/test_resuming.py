"""More clients come back than a node takes at once: some wait, some are told to come later, and none loses anything."""

from __future__ import annotations

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Connack
from flockmq.node.settings import BrokerSettings
from session_nodes import Device, SessionNodes, connect_packet

RATE = 1


def test_clients_come_back_by_rate_and_get_all_that_waited() -> None:
    nodes = SessionNodes(settings=BrokerSettings(sys_interval_ms=0, resumes_per_s_max=RATE))
    names = [f"c{number}" for number in range(24)]
    for name in names:
        device = nodes.subscriber(1, name, b"a/#")
        nodes.drop(device)
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1", b"2"])
    nodes.run(2_000)
    clients = [nodes[3].harness.connect(connect_packet(name)) for name in names]
    nodes.until(lambda: all(client.has_received for client in clients), 20_000)
    busy: list[str] = []
    for name, client in zip(names, clients, strict=True):
        connack = client.expect(Connack)
        if connack.reason:
            assert connack.reason == reasons.SERVER_BUSY
            busy.append(name)
        else:
            assert connack.session_present
            assert nodes.until_got(Device(client, connack), 2) == [b"1", b"2"]
    assert 7 <= len(busy) <= 17  # one goes on at once, sixteen wait, and about half of these for too long
    for name in busy:
        device = nodes.connect(2, name)
        assert device.connack.session_present
        assert nodes.until_got(device, 2) == [b"1", b"2"]
