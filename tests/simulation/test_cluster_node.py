"""Whole clustered brokers in simulation: ten minutes apart, twice, and one again."""

from __future__ import annotations

import os
from functools import partial

import pytest

from flockmq.testing.cluster_harness import ClusterHarness
from flockmq.testing.harness import BrokerHarness, HarnessClient

SPLIT_MS = int(os.environ.get("FLOCKMQ_SIMULATED_SPLIT_MS", "600_000"))


def have_routes(cluster: ClusterHarness, wanted: dict[bytes, list[str]]) -> bool:
    return all(node.routes() == wanted for node in cluster.processes())


def have_the_same_retained(cluster: ClusterHarness) -> bool:
    return all(node.retained() == cluster[1].retained() for node in cluster.processes())


@pytest.mark.parametrize("parts", [[{1, 2}, {3}], [{1}, {2}, {3}]], ids=["two and one", "one and one and one"])
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_minutes_apart_twice(parts: list[set[int]], seed: int) -> None:
    cluster = ClusterHarness(3, seed, loss=0.02)
    cluster.wait(cluster.is_one)
    clients = [cluster.client(number + 1, f"client{number}") for number in range(3)]
    for number, client in enumerate(clients):
        assert cluster.subscribe(client, b"to/%d" % number) == 0
    for turn in range(2):
        cluster.split(parts)
        cluster.wait(lambda: not cluster.is_one())
        cluster.run_for(SPLIT_MS // 2)
        for number, client in enumerate(clients):
            cluster.subscribe(client, b"turn%d/%d" % (turn, number))
            client.publish(b"kept/%d" % number, b"%d" % turn, qos=0, retain=True)
            client.publish(b"kept/all", b"%d %d" % (turn, number), qos=0, retain=True)
            client.publish(b"kept/gone", b"" if number == 2 else b"x", qos=0, retain=True)
            cluster.run_for(50)
        cluster.run_for(SPLIT_MS // 2)
        assert not cluster.is_one()
        cluster.split([])
        took = cluster.wait(cluster.is_one, 10_000)
        print(f"one view {took} ms after the heal")
        wanted = {b"to/%d" % n: [cluster[n + 1].name] for n in range(3)}
        wanted |= {b"turn%d/%d" % (t, n): [cluster[n + 1].name] for t in range(turn + 1) for n in range(3)}
        cluster.wait(partial(have_routes, cluster, wanted), 10_000)
        cluster.wait(partial(have_the_same_retained, cluster), 20_000)
        assert cluster[1].retained() == {
            **{b"kept/%d" % number: b"%d" % turn for number in range(3)},
            b"kept/all": b"%d 2" % turn,
        }
        for number in range(3):
            clients[(number + 1) % 3].publish(b"to/%d" % number, b"%d" % turn, qos=0)
        cluster.run_for(500)
        assert [[m.payload for m in client.messages() if m.topic.startswith(b"to/")] for client in clients] == [
            [b"%d" % turn]
        ] * 3


def test_the_same_seed_is_the_same_story() -> None:
    def story() -> list[tuple[int, int]]:
        cluster = ClusterHarness(4, 7, loss=0.1)
        first = cluster.wait(cluster.is_one)
        cluster.kill(4)
        second = cluster.wait(cluster.is_one)
        cluster.start(4)
        third = cluster.wait(cluster.is_one)
        return [(first, cluster.now_ms()), (second, third)]

    assert story() == story()


def test_clients_that_were_there_before_the_cluster_are_part_of_it() -> None:
    early: list[HarnessClient] = []

    def connect(number: int, harness: BrokerHarness) -> None:
        if number == 1:
            early.append(harness.client("device", session_expiry_s=60))
            early[0].subscribe(b"early/#", qos=1)

    cluster = ClusterHarness(3, 5, before=connect)
    cluster.wait(cluster.is_one)
    cluster.wait(partial(have_routes, cluster, {b"early/#": [cluster[1].name]}))
    cluster.run_for(3_000)
    publisher = cluster.client(3, "publisher")
    publisher.publish(b"early/1", b"x", qos=0)
    cluster.run_for(300)
    assert [message.payload for message in early[0].messages()] == [b"x"]
