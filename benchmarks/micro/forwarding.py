"""What a message costs on its way from one node to another: plan, head, batch, reading it again, delivery.

    python benchmarks/micro/forwarding.py [--seconds 1] [--json]

Two brokers in this process, without sockets: runs are routed on the first as if clients had published them, a turn of
them is one part, the second reads it and writes to its subscriber. ``here`` is the same for a subscriber on the first
node, for comparison. Times are processor time, the best of some rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.run import Run
from flockmq.mqtt.scan import scan_run
from flockmq.node import delivering
from flockmq.node.broker import Broker
from flockmq.node.delivering import route
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.peering.forwarding import Forwarding
from flockmq.routing.subscription import Subscription
from flockmq.session.connection import CONNECTED
from flockmq.session.session import Session

ROUNDS = 5
TURN_RUNS = 64
PAYLOAD = b"x" * 100


class Direct:
    """An Outbox that ends at the other node."""

    def __init__(self, sender: int) -> None:
        self.sender = sender
        self.other: Forwarding | None = None
        self.bytes = 0

    def send(self, peer: int, channel: int, body: bytes) -> None:  # noqa: ARG002 there is one peer
        self.bytes += len(body)
        if self.other is not None:
            self.other.receive(self.sender, body, 0)


class Pair:
    """Two nodes and a subscriber on each."""

    def __init__(self) -> None:
        self.ports = [Direct(1), Direct(2)]
        settings = BrokerSettings(sys_interval_ms=0)
        self.brokers = [Broker(settings, OpenGate(), random.Random(1), 0) for _ in range(2)]
        self.sides = [Forwarding(broker.node, 1, port) for broker, port in zip(self.brokers, self.ports, strict=True)]
        self.ports[0].other, self.ports[1].other = self.sides[1], self.sides[0]
        self.sides[0].peer_up(2, 0)
        self.sides[1].peer_up(1, 0)
        self.sides[0].tick(2_000)
        self.turn()
        assert self.sides[0].peer(2).linked
        self.brokers[0].subscriptions.add_route(b"there/+", self.sides[0].peer(2))
        for broker, topic_filter in zip(self.brokers, (b"here/+", b"there/+"), strict=True):
            session = Session("subscriber", 5, 0)
            connection = broker.open("tcp", settings.limits, "127.0.0.1", 0)
            connection.phase = CONNECTED
            connection.version = 5
            connection.session = session
            session.connection = connection
            session.window = 60_000
            broker.subscriptions.add(Subscription(session, topic_filter, b"", 1, False, False, 0, 0))

    def turn(self) -> None:
        """The end of a loop turn on both nodes; what is written goes nowhere, and is acknowledged by nobody."""
        for side in self.sides:
            side.flush(0)
        for broker in self.brokers:
            for connection in broker.take_dirty():
                connection.take()
                if connection.session is not None:
                    connection.session.outbound = None


def runs_of(topic: bytes, qos: int, count: int) -> list[Run]:
    """A turn's worth, on some topics."""
    runs = []
    for number in range(TURN_RUNS):
        name = topic + b"/%d" % (number % 8)
        packets = [Publish(name, PAYLOAD, qos, packet_id=place + 1 if qos else 0) for place in range(count)]
        wire = b"".join([encode_packet(packet, 5) for packet in packets])
        run = scan_run(wire, 0, len(wire), 5, 1 << 20)
        assert run is not None
        runs.append(run)
    return runs


def measure(topic: bytes, qos: int, count: int, seconds: float) -> float:
    """Seconds per run."""
    pair = Pair()
    node = pair.brokers[0].node
    runs = runs_of(topic, qos, count)
    best = float("inf")
    for _ in range(ROUNDS):
        done = 0
        start = time.process_time()
        while time.process_time() - start < seconds / ROUNDS:
            for run in runs:
                route(node, node.table.plan(run.topic), run, None, 0)
            pair.turn()
            done += TURN_RUNS
        best = min(best, (time.process_time() - start) / done)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    compiled = not (delivering.__file__ or "").endswith(".py")
    rows = []
    for qos in (0, 1):
        for count in (1, 16, 256):
            there = measure(b"there", qos, count, arguments.seconds)
            here = measure(b"here", qos, count, arguments.seconds)
            rows.append({"qos": qos, "messages": count, "there_s": there, "here_s": here})
    if arguments.json:
        about = {"python": platform.python_version(), "machine": platform.platform(), "compiled": compiled}
        json.dump({**about, "results": rows}, sys.stdout, indent=2)
        return
    print(f"forwarding, {'compiled' if compiled else 'plain Python'}, {len(PAYLOAD)} bytes of payload")
    print(f"{'QoS':<5}{'messages in a run':>18}{'runs/s there':>16}{'messages/s there':>18}{'messages/s here':>18}")
    for row in rows:
        there = row["messages"] / row["there_s"]
        here = row["messages"] / row["here_s"]
        print(f"{row['qos']:<5}{row['messages']:>18}{1 / row['there_s']:>16,.0f}{there:>18,.0f}{here:>18,.0f}")


if __name__ == "__main__":
    main()
