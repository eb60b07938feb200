"""Workers of a consumer group while one node after the other is killed: nothing is lost, poison ends in one place."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from flockmq.admin.durable_groups_model import GroupRequest
from flockmq.client.admin import AdminClient
from flockmq.client.group import GroupConsumer
from flockmq.client.log_client import LogClient
from flockmq.client.transport import UnreachableError
from flockmq.errors import FlockError, OutcomeUnknown
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("faults"),  # a cluster at a time
    pytest.mark.skipif("FLOCKMQ_FAULTS_S" not in os.environ, reason="a long story of `make faults`"),
]

WORKERS = 3
BATCH = 20
DEATHS = 3
PER_ROUND = 300
POISON = 100
"""One in so many can't be handled."""


class Works:
    """Three workers and what they have seen."""

    def __init__(self, urls: list[str], token: str) -> None:
        self._urls = urls
        self._token = token
        self._lock = threading.Lock()
        self.seen: Counter[int] = Counter()
        self.refused = 0
        self.threads = [threading.Thread(target=self._work, args=(number,)) for number in range(WORKERS)]

    def _work(self, number: int) -> None:
        servers = self._urls[number:] + self._urls[:number]
        with GroupConsumer(
            "work", servers, self._token, member=f"w{number}", batch=BATCH, idle_s=15.0, timeout_s=3.0, retry_s=60.0
        ) as consumer:
            for record in consumer:
                one = int(record.payload)
                with self._lock:
                    self.seen[one] += 1
                if one % POISON:
                    record.ack()
                else:
                    record.reject("poison")
        self.refused += consumer.refused


def publish(client: LogClient, first: int, count: int) -> int:
    """Publish so many numbers; how many of them may be in the log twice, because no node could say."""
    left = [(f"jobs/{one % 29}", b"%d" % one) for one in range(first, first + count)]
    doubtful = 0
    until = time.monotonic() + 60
    while left:
        assert time.monotonic() < until
        try:
            placed = client.publish("jobs", left)
        except (OutcomeUnknown, UnreachableError):
            doubtful += len(left)
            continue
        left = [one for one, at in zip(left, placed, strict=True) if at is None]
    return doubtful


def test_workers_go_on_while_nodes_die(tmp_path: Path) -> None:
    with NodeCluster(tmp_path / "nodes", 3, ["--log-level=warning"]) as cluster:
        cluster.wait_settled()
        cluster.create_topic("jobs", shards=3, replication_factor=3)
        nodes = cluster.nodes
        urls = [f"http://{HOST}:{node.api_port}" for node in nodes]
        file = {"FLOCKMQ_CREDENTIALS": str(nodes[0].folder / "credentials.toml")}
        token = credentials.load(urls[0], file) or ""
        admin = AdminClient(urls[0], token)
        admin.create_group(GroupRequest(name="work", bindings=["jobs"], ack_wait_ms=5_000, max_deliver=0))
        works = Works(urls, token)
        for one in works.threads:
            one.start()
        doubtful = 0
        with LogClient(urls, token, retry_s=60.0) as client:
            for number in range(DEATHS):
                doubtful += publish(client, number * PER_ROUND, PER_ROUND // 2)
                victim = nodes[number % 3]
                victim.kill()
                doubtful += publish(client, number * PER_ROUND + PER_ROUND // 2, PER_ROUND // 2)
                time.sleep(2.0)
                victim.start()
                victim.wait_ready()
                cluster.wait_settled()
        for one in works.threads:
            one.join()
        total = DEATHS * PER_ROUND
        missing = set(range(total)) - set(works.seen)
        assert not missing, "each record went to a worker"
        again = sum(works.seen.values()) - total
        assert again <= DEATHS * WORKERS * BATCH + doubtful, "only what was held at a death comes again"
        cluster.wait(lambda: lag(admin) == 0, "all to be settled")
        poison = set(range(0, total, POISON))
        cluster.wait(lambda: set(dead(admin)) == poison, "each poison to be a dead letter")
        letters = dead(admin)
        assert doubtful or set(letters.values()) == {1}, "once"
        assert admin.redrive_dead("work", every=True).done == letters.total()
        assert dead(admin) == Counter()
        cluster.wait(lambda: lag(admin) == letters.total(), "each to come back once")


def lag(admin: AdminClient) -> int | None:
    try:
        found = admin.group("work").lag
    except FlockError:
        return None
    return None if found is None else found.messages


def dead(admin: AdminClient) -> Counter[int]:
    return Counter([int(one.payload or "-1") for one in admin.dead_letters("work", limit=1_000).items])
