"""The commands on durable topics against an API whose logs are in memory."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flockmq.admin.api import AdminApi
from flockmq.admin.desk import NodeInfo
from flockmq.cli.main import run
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness
from unit.admin.durable_desks import MemoryDurable


class Site:
    """An API in a thread of its own, and commands for it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.port = MemoryDurable()
        self.capsys = capsys
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        harness = BrokerHarness()
        api = AdminApi(
            harness.broker,
            NodeInfo(name="n1@host", version="1", build="pure"),
            lambda token: token == "right",
            lambda: harness.now,
            flush=harness.flush,
            wall_clock=lambda: WALL_MS + harness.now - START_MS,
            durable=self.port,
        )
        await api.start("127.0.0.1", 0)
        api.mark_ready()
        self.url = f"http://127.0.0.1:{api.port}"
        self._ready.set()
        await self._stop.wait()
        await api.stop()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def text(self, *arguments: str) -> str:
        """What a command prints."""
        assert run(list(arguments)) == 0, self.capsys.readouterr().err
        return self.capsys.readouterr().out

    def json(self, *arguments: str) -> Any:
        """What a command prints for programs."""
        return json.loads(self.text(*arguments, "--json"))

    def fails(self, *arguments: str) -> str:
        """The sentence that a command fails with."""
        assert run(list(arguments)) == 1
        printed = self.capsys.readouterr()
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1
        return printed.err


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    made = Site(capsys)
    monkeypatch.setenv("FLOCKMQ_SERVER", made.url)
    monkeypatch.setenv("FLOCKMQ_TOKEN", "right")
    yield made
    made.close()


def test_the_life_of_a_topic(site: Site) -> None:
    assert "There are no durable topics" in site.text("topic", "list")
    said = site.text("topic", "create", "plant", "--shards", "2", "--retention", "7d,10GB", "--key", "machine")
    assert said == "Topic 'plant' keeps plant/# in 2 shards.\n"
    assert site.json("topic", "list")[0]["retention_bytes"] == 10**10
    listed = site.text("topic", "list").splitlines()
    assert listed[0].split()[:3] == ["NAMESPACE", "TOPIC", "FILTERS"]
    assert "7d, 10 GB" in listed[1]
    shown = site.text("topic", "show", "plant")
    assert "machine" in shown
    assert shown.count("healthy") == 2
    assert len(site.json("topic", "show", "plant")["partitions"]) == 2
    assert "changed" in site.text("topic", "alter", "plant", "--shards", "3", "--retention", "none", "--ack", "leader")
    after = site.json("topic", "show", "plant")
    assert (after["shards"], after["retention_ms"], after["retention_bytes"], after["ack"]) == (3, None, None, "leader")
    assert "deleted" in site.text("topic", "delete", "plant", "--yes")
    assert site.json("topic", "list") == []


def test_topics_that_can_not_be_are_refused_in_a_sentence(site: Site) -> None:
    site.text("topic", "create", "plant", "--filter", "a/+", "--filter", "b")
    assert "exists" in site.fails("topic", "create", "plant")
    assert "plant" in site.fails("topic", "create", "other", "--filter", "a/#")
    assert "flockmq topic list" in site.fails("topic", "show", "nothing")
    assert "namespace" in site.fails("topic", "create", "x", "--namespace", "nowhere")


def test_partitions(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    listed = site.text("partition", "list")
    assert listed.count("default/plant") == 2
    [first, _] = site.json("partition", "list", "--topic", "plant")
    assert "leader" in site.text("partition", "show", str(first["group"]))
    assert site.json("partition", "show", str(first["group"]))["shard"] == 0
    assert site.text("partition", "list", "--unhealthy") == "All partitions are healthy.\n"
    assert "no partition" in site.fails("partition", "show", "99")


def test_records_are_read_and_cursors_follow(site: Site) -> None:
    site.text("topic", "create", "plant")
    site.port.log(1).append([(b"plant/1", b"me", b"%d" % n, [(b"unit", b"K")]) for n in range(250)], 1_772_366_400_000)
    lines = site.text("log", "read", "plant").splitlines()
    assert len(lines) == 100
    assert lines[0] == "0:0  2026-03-01T12:00:00.000Z  plant/1  me  0"
    everything = site.text("log", "read", "plant", "--limit", "0", "--json").splitlines()
    assert [json.loads(line)["offset"] for line in everything] == list(range(250))
    assert len(site.text("log", "read", "plant", "--from", "offset:240").splitlines()) == 10
    assert (
        len(site.text("log", "read", "plant", "--from", "time:2026-03-01T11:00:00Z", "--limit", "3").splitlines()) == 3
    )
    assert site.text("log", "read", "plant", "--from", "latest") == ""
    assert "--from can't be" in site.fails("log", "read", "plant", "--from", "soon")
    assert "no shard 3" in site.fails("log", "read", "plant", "--shard", "3")
    assert site.text("cursor", "list") == "There are no cursors.\n"
    assert "250" in site.text("cursor", "create", "reader", "plant", "--hold")
    assert site.json("cursor", "reset", "reader", "offset:200")["lag"] == 50
    assert "50" in site.text("cursor", "list")
    assert "yes" in site.text("cursor", "show", "reader")
    assert "can't be put" in site.fails("cursor", "reset", "reader", "soon")
    assert "deleted" in site.text("cursor", "delete", "reader", "--yes")
    assert "cursor list" in site.fails("cursor", "show", "reader")


def test_namespaces_under_both_names(site: Site) -> None:
    assert site.json("vpn", "create", "acme", "--max", "topics=1")["limits"] == {"topics_max": 1}
    assert "topics 1" in site.text("namespace", "list")
    site.text("topic", "create", "plant", "-n", "acme")
    assert "topics" in site.fails("topic", "create", "more", "-n", "acme")
    assert site.json("namespace", "alter", "acme", "--max", "topics=none")["limits"] == {}
    assert "most" not in site.text("vpn", "show", "acme")
    assert "topic" in site.fails("vpn", "delete", "acme", "--yes")
    site.text("topic", "delete", "plant", "-n", "acme", "--yes")
    assert "deleted" in site.text("vpn", "delete", "acme", "--yes")


def test_registered_clients(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.text("namespace", "create", "acme")
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert site.text("client", "create", "alice", "-n", "acme", "--publish", "a/#") == (
        "Client 'acme/alice' is registered.\n"
    )
    assert "acme/alice" in site.text("client", "list", "--registered", "-n", "acme")
    assert site.json("client", "list", "--registered") == []
    found = site.json("client", "show", "alice", "--registered", "-n", "acme")
    assert (found["has_password"], found["publish"], found["subscribe"]) == (True, ["a/#"], ["#"])
    site.text("client", "alter", "alice", "-n", "acme", "--no-password", "--superuser", "--subscribe-deny", "x")
    shown = site.text("client", "show", "alice", "--registered", "-n", "acme")
    assert "has a password    no" in shown
    assert "superuser         yes" in shown
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "No password" in site.fails("client", "create", "bob")
    assert "registered" in site.text("client", "create", "bob", "--no-password")
    assert "deleted" in site.text("client", "delete", "bob", "--yes")
    assert site.text("client", "list") == "No client is connected.\n"


def test_the_dump_reads_like_the_state(site: Site) -> None:
    site.text("topic", "create", "my-topic")
    text = site.text("dump")
    assert text.startswith("=== Cluster state ===\nindex: ")
    assert '  name: "default"\n  topics: <\n    name: "my-topic"\n    shards: 1\n    replication_factor: 3\n' in text
    assert 'default_exchange_type: "fanout"' in text
    assert text.count("state: ALIVE") == 3
    assert "=== Segments ===" in text
    dumped = site.json("dump")
    assert dumped["index"] == site.port.state().index
    assert dumped["namespaces"][0]["topics"][0]["name"] == "my-topic"


def test_a_rebalance_that_has_nothing_to_do(site: Site) -> None:
    site.text("topic", "create", "plant", "--shards", "3")
    assert site.text("cluster", "rebalance") == "0 partitions moving, 0 leaders not in place.\n"
    assert site.text("cluster", "rebalance", "--watch").splitlines()[-1] == (
        "Copies and leaders are where they should be."
    )
    assert site.json("cluster", "rebalance", "--watch")["settled"] is True


def test_advice_is_shown_and_followed(site: Site, tmp_path: Path) -> None:
    site.text("topic", "create", "plant", "--shards", "2")
    partition = site.port.state().topic("default", "plant").partitions[0]
    other = site.port.state().nodes[next(node for node in partition.target if node != partition.preferred)].name
    file = tmp_path / "advice.json"
    entry = {"namespace": "default", "topic": "plant", "shard": 0, "to_node": other, "why": "it is hot"}
    file.write_text(json.dumps({"format": 1, "leaders": [entry, {**entry, "shard": 7}]}))
    seen = site.text("cluster", "rebalance", "--advice", str(file), "--dry-run")
    assert "would move" in seen
    assert "it is hot" in seen
    assert seen.endswith("Of 2 pieces of advice 1 would be moved, 1 refused.\n")
    assert site.port.state().partition(partition.group) == partition
    moved = site.text("cluster", "rebalance", "--advice", str(file), "--watch")
    assert "moves" in moved
    assert moved.endswith("0 partitions moving, 0 leaders not in place.\n")
    assert site.port.state().partition(partition.group).is_advised
    assert site.json("cluster", "rebalance", "--advice", str(file))["moves"] == 0
    file.write_text('{"leader": []}')
    assert "is no advice" in site.fails("cluster", "rebalance", "--advice", str(file))
    assert "can't be read" in site.fails("cluster", "rebalance", "--advice", str(tmp_path / "none"))
    assert "--dry-run goes with" in site.fails("cluster", "rebalance", "--dry-run")
