"""A fingerprint of everything the broker does under a random load: one seed, one hash, whatever the build.

``python -m flockmq.testing.trace --seeds 20`` prints a line per seed. The compiled and the plain broker, and the same
seed tomorrow, must print the same lines; where they differ, the seed says where to look.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from typing import Final

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Packet,
    Publish,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)
from flockmq.mqtt.properties import Properties
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, HarnessClient

NAMES: Final = (b"a", b"a/b", b"a/b/c", b"b/b", b"$x/a", b"long/" + b"x" * 200)
FILTERS: Final = (b"#", b"a/#", b"+/b", b"a/b", b"$x/#", b"$share/g/a/#", b"$share/h/#", b"+/+/c")


def random_packet(rng: random.Random, version: int) -> Packet:
    """A packet a client might send, mostly PUBLISH."""
    pick = rng.random()
    if pick < 0.70:
        qos = rng.choice((0, 0, 1, 1, 2))
        properties = Properties() if version == 5 and rng.random() < 0.4 else None
        if properties is not None:
            properties.user = [("k", str(rng.randrange(3)))]
            if rng.random() < 0.3:
                properties.message_expiry_s = rng.randrange(5)
        return Publish(
            rng.choice(NAMES),
            bytes(rng.randrange(40)),
            qos,
            rng.random() < 0.1,
            bool(qos) and rng.random() < 0.1,
            rng.randrange(1, 8) if qos else 0,
            properties,
        )
    if pick < 0.85:
        entry = SubscribeEntry(rng.choice(FILTERS), rng.randrange(3))
        return Subscribe(1, [entry])
    if pick < 0.90:
        return Unsubscribe(1, [rng.choice(FILTERS)])
    return Ack(rng.choice((PUBACK, PUBREC, PUBREL, PUBCOMP)), rng.randrange(1, 30))


def acknowledge(client: HarnessClient, packets: list[Packet], rng: random.Random) -> None:
    """Answer what arrived, as a good client would, most of the time."""
    for packet in packets:
        if rng.random() < 0.2:
            continue
        if isinstance(packet, Publish) and packet.qos:
            client.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind in (PUBREC, PUBREL):
            client.send(Ack(PUBREL if packet.kind == PUBREC else PUBCOMP, packet.packet_id))


def trace(seed: int, steps: int = 300) -> str:
    """Run one random load and hash every packet that came out, in order."""
    rng = random.Random(seed)  # noqa: S311
    limits = Limits(queue_messages_max=50, inflight_max=8, receive_max=100)
    harness = BrokerHarness(seed, BrokerSettings(limits=limits, shared_strategy="random"), feeding="random")
    digest = hashlib.sha256()
    clients: dict[str, HarnessClient] = {}
    for _ in range(steps):
        name = rng.choice("abcd")
        client = clients.get(name)
        if client is None or client.closed:
            version = rng.choice((4, 5))
            client = harness.client(name, version=version, clean_start=rng.random() < 0.3)
            clients[name] = client
        pick = rng.random()
        if pick < 0.02:
            client.drop()
            del clients[name]
            continue
        if pick < 0.10:
            harness.advance(rng.randrange(1, 2_000))
        burst = b"".join(
            encode_packet(random_packet(rng, client.version), client.version) for _ in range(rng.randrange(1, 6))
        )
        client.send(burst)
        for other in list(clients.values()):
            packets = other.received()
            for packet in packets:
                digest.update(repr(packet).encode())
            if not other.closed:
                acknowledge(other, packets, rng)
    return digest.hexdigest()


def main() -> None:
    """Print the fingerprint of each seed asked for."""
    parser = argparse.ArgumentParser(description="Fingerprints of the broker's behaviour, one line a seed.")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds")
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.seeds):
        print(seed, trace(seed))  # noqa: T201


if __name__ == "__main__":
    main()
