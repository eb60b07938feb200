"""What owned maps cost: changes from ``set`` at the owner to ``take_changes`` at its peers.

    python benchmarks/micro/maps.py [--keys 100000] [--peers 1 10] [--json]

``set``      one key of the own map, in a turn that sets all of them
``flush``    the same turn's end: encoded once, handed to every peer
``receive``  decoded, compared and applied by one peer, with ``take_changes``
``turn``     one change per turn, with flush, receive, acknowledgement: the way of a single subscription
``join``     a peer that comes up gets the whole map in pieces: per key, both sides
``rejoin``   the same for a peer that has it already, in milliseconds: a link that broke and came back
``die``      the map of a dead owner is dropped: per key
``bytes``    on the wire for each key

Keys are as routes are: ``r/fleet/<region>/<device>/+/state`` -> a count. Times are processor time, the best of
some rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import sys
import time

from flockmq.gossip import maps as maps_module
from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_settings import MapsSettings

ROUNDS = 5
TURNS = 2_000


class Box:
    """Keeps what was said until it is delivered."""

    def __init__(self) -> None:
        self.said: list[tuple[int, bytes]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel
        self.said.append((peer, body))


class Cluster:
    """An owner and its peers; only the owner's map has anything in it."""

    def __init__(self, peers: int) -> None:
        self.boxes = {number: Box() for number in range(1, peers + 2)}
        self.nodes = {number: self.start(number) for number in self.boxes}
        self.owner = self.nodes[1]
        for number in range(2, peers + 2):
            self.link(number)
        self.settle()

    def start(self, number: int) -> OwnedMaps:
        return OwnedMaps(number, 1, self.boxes[number], MapsSettings(), random.Random(number), 0)

    def link(self, number: int) -> None:
        self.owner.peer_up(number, 0)
        self.nodes[number].peer_up(1, 0)

    def deliver(self, sender: int) -> None:
        box = self.boxes[sender]
        said, box.said = box.said, []
        for peer, body in said:
            self.nodes[peer].receive(sender, body, 0)

    def settle(self) -> None:
        """Until nobody has anything to say."""
        while True:
            for node in self.nodes.values():
                node.take_changes()
                node.flush(0)
            if not any(box.said for box in self.boxes.values()):
                return
            for number in self.boxes:
                self.deliver(number)


def measure(keys: list[bytes], peers: int) -> dict[str, float]:
    """All rows for so many peers; seconds, except for bytes."""
    rows: dict[str, list[float]] = {}
    clock = time.process_time
    for _ in range(ROUNDS):
        gc.collect()
        cluster = Cluster(peers)
        owner = cluster.owner
        start = clock()
        for key in keys:
            owner.set(key, b"1")
        rows.setdefault("set", []).append((clock() - start) / len(keys))
        start = clock()
        owner.flush(0)
        rows.setdefault("flush", []).append((clock() - start) / len(keys))
        said = [body for peer, body in cluster.boxes[1].said if peer == 2]
        rows.setdefault("bytes", []).append(sum(map(len, said)) / sum(int.from_bytes(b[33:37], "little") for b in said))
        taken = 0
        start = clock()
        for body in said:
            cluster.nodes[2].receive(1, body, 0)
        taken += len(cluster.nodes[2].take_changes())
        rows.setdefault("receive", []).append((clock() - start) / taken)
        cluster.boxes[1].said = [(peer, body) for peer, body in cluster.boxes[1].said if peer != 2]
        cluster.settle()
        assert all(owner.acknowledged(number) == owner.version for number in range(2, peers + 2))

        start = clock()
        for number in range(TURNS):
            owner.set(keys[number % len(keys)], b"%d" % (number + 2))
            cluster.settle()
        rows.setdefault("turn", []).append((clock() - start) / TURNS)

        owner.peer_down(2, 0)
        cluster.nodes[2] = cluster.start(2)
        start = clock()
        cluster.link(2)
        cluster.settle()
        rows.setdefault("join", []).append((clock() - start) / len(keys))
        assert sum(1 for _ in cluster.nodes[2].items(1)) == len(keys)

        owner.peer_down(2, 0)
        cluster.nodes[2].peer_down(1, 0)
        start = clock()
        cluster.link(2)
        cluster.settle()
        rows.setdefault("rejoin", []).append(clock() - start)

        start = clock()
        cluster.nodes[2].peer_dead(1, 0)
        assert len(cluster.nodes[2].take_changes()) == len(keys)
        rows.setdefault("die", []).append((clock() - start) / len(keys))
    return {row: min(times) for row, times in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--peers", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    keys = [b"r/fleet/%d/%d/+/state" % (number % 64, number) for number in range(arguments.keys)]
    gc.freeze()  # as the broker does after its start
    results = {peers: measure(keys, peers) for peers in arguments.peers}
    compiled = not (maps_module.__file__ or "").endswith(".py")
    if arguments.json:
        about = {"python": platform.python_version(), "machine": platform.platform(), "compiled": compiled}
        json.dump({**about, "keys": arguments.keys, "results": results}, sys.stdout, indent=2)
        return
    print(f"owned maps, {'compiled' if compiled else 'plain Python'}, {arguments.keys:,} keys; ns each")
    print(f"{'':<12}" + "".join(f"{f'{peers:,} peers':>16}" for peers in arguments.peers))
    for row in next(iter(results.values())):
        factor, unit = {"bytes": (1.0, ""), "rejoin": (1e3, " ms")}.get(row, (1e9, ""))
        cells = [f"{results[peers][row] * factor:,.1f}{unit}" for peers in arguments.peers]
        print(f"{row:<12}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
