"""The commands on consumer groups, and workers in Python, against an API whose logs are in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from flockmq.client.group import GroupConsumer
from flockmq.cluster.dead_letters import DeadLetter, dead_name, dead_properties
from flockmq.errors import NotFound
from integration.support.site import Site

WALL_MS = 1_772_366_400_000


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    made = Site(capsys)
    monkeypatch.setenv("FLOCKMQ_SERVER", made.url)
    monkeypatch.setenv("FLOCKMQ_TOKEN", "right")
    made.text("topic", "create", "plant")
    yield made
    made.close()


def publish(site: Site, count: int) -> None:
    group = site.port.state().topic("default", "plant").partitions[0].group
    site.port.log(group).append([(b"plant/%d" % n, b"me", b"%d" % n, []) for n in range(count)], WALL_MS)


def bury(site: Site, count: int) -> None:
    topic = site.port.state().topic("default", "work.dead")
    site.port.log(topic.partitions[0].group).append(
        [
            (
                dead_name("default", "work", b"plant/%d" % n),
                b"me",
                b"poison",
                dead_properties(DeadLetter("work", "plant", 0, n, 5, "It does not parse.", "m1")),
            )
            for n in range(count)
        ],
        WALL_MS,
    )


def test_the_life_of_a_group(site: Site) -> None:
    assert "There are no consumer groups" in site.text("group", "list")
    said = site.text("group", "create", "work", "--bind", "plant:topic:+/state", "-b", "plant:direct:x")
    assert said == (
        "Group 'work' reads plant:topic:+/state, plant:direct:x from latest on; dead letters go to work.dead.\n"
    )
    assert site.json("group", "list")[0]["name"] == "work"
    assert "plant:direct:x" in site.text("group", "list")
    shown = site.text("group", "show", "work")
    for words in ("ack wait         30s", "1s, doubling up to 1m", "after 5 deliveries, to work.dead", "plant/0"):
        assert words in shown
    altered = site.json("group", "alter", "work", "--ack-wait", "5s", "--mode", "key", "--dead-letter", "none")
    assert (altered["ack_wait_ms"], altered["mode"], altered["dead_letter"]) == (5_000, "key", None)
    assert "paused" in site.text("group", "pause", "work")
    assert site.json("group", "show", "work")["paused"] is True
    assert site.json("group", "resume", "work")["paused"] is False
    assert "generation 2" in site.text("group", "reset", "work", "--from", "earliest")
    assert "say --yes" in site.fails("group", "delete", "work", code=2)
    assert "deleted" in site.text("group", "delete", "work", "--yes")
    assert site.json("group", "list") == []


def test_what_can_not_be_is_refused_in_a_sentence(site: Site) -> None:
    assert "Say with --bind" in site.fails("group", "create", "work", code=2)
    assert "--from can't be" in site.fails("group", "create", "work", "-b", "plant", "--from", "soon", code=2)
    assert "name a unit" in site.fails("group", "create", "work", "-b", "plant", "--ack-wait", "30", code=2)
    assert "no topic 'gone'" in site.fails("group", "create", "work", "-b", "gone")
    assert "needs a key" in site.fails("group", "create", "work", "-b", "plant:direct")
    assert "can't be used" in site.fails("group", "create", "work", "-b", "plant:topic:a/#/b")
    site.text("group", "create", "work", "-b", "plant")
    assert "exists" in site.fails("group", "create", "work", "-b", "plant")
    assert "Nothing is said" in site.fails("group", "alter", "work", code=2)
    assert "consumer group work" in site.fails("topic", "delete", "plant", "--yes")
    assert "flockmq group list" in site.fails("group", "show", "nothing")
    assert "stale" in site.fails("group", "ack", "work", "1:2:3")
    assert "There is no consumer group" in site.fails("group", "fetch", "nothing")


def test_a_member_by_hand(site: Site) -> None:
    site.text("group", "create", "work", "-b", "plant", "--from", "earliest")
    assert site.text("group", "fetch", "work") == "There are no records for group 'work' now.\n"
    assert "All records" in site.text("group", "peek", "work")
    publish(site, 3)
    assert len(site.json("group", "peek", "work", "-n", "2")) == 2
    assert "plant/0" in site.text("group", "peek", "work")
    first, second = site.json("group", "fetch", "work", "-n", "2", "--wait", "1s")
    assert (first["payload"], first["deliveries"]) == ("0", 1)
    assert site.json("group", "members", "work")[0]["held"] == 2
    assert "cli" in site.text("group", "members", "work")
    assert site.text("group", "ack", "work", first["token"]) == "1 record was acknowledged.\n"
    assert site.text("group", "extend", "work", second["token"], "--by", "1m") == "1 record was held 1m longer.\n"
    site.text("group", "nack", "work", second["token"], "--delay", "2s", "--reason", "busy")
    assert site.port.groups.nacks == [(second["token"], 2_000, "busy")]
    assert site.json("group", "lag", "work")["lag"]["messages"] == 2
    assert site.text("group", "lag", "work").splitlines()[1].split()[:5] == ["plant/0", "n1@host", "1", "3", "2"]
    [again, _] = site.json("group", "fetch", "work")
    assert again["deliveries"] == 2
    assert "made dead letters" in site.text("group", "nack", "work", again["token"], "--dead")


def test_dead_letters(site: Site) -> None:
    site.text("group", "create", "work", "-b", "plant", "--from", "earliest")
    assert "no dead letters" in site.text("group", "dead", "work")
    bury(site, 4)
    listed = site.text("group", "dead", "work", "list", "-n", "2").splitlines()
    assert len(listed) == 3
    assert "It does not parse." in listed[1]
    shown = site.text("group", "dead", "work", "show", "0:1")
    assert "plant/0 at offset 1" in shown
    assert "last member  m1" in shown
    assert "there is none '0:9'" in site.fails("group", "dead", "work", "show", "0:9")
    assert site.text("group", "dead", "work", "redrive", "0:1") == "1 dead letter was published again.\n"
    assert site.json("group", "dead", "work", "redrive", "--all") == {"done": 3, "refused": []}
    assert site.json("group", "dead", "work") == []
    assert [one["topic"] for one in site.json("group", "fetch", "work")] == ["plant/1", "plant/0", "plant/2", "plant/3"]
    bury(site, 2)
    assert "or say --all" in site.fails("group", "dead", "work", "redrive", code=2)
    assert "or say --all" in site.fails("group", "dead", "work", "drop", "0:4", "--all", code=2)
    assert "Drop all dead letters of group 'work'?" in site.fails("group", "dead", "work", "drop", code=2)
    assert site.text("group", "dead", "work", "drop", "--yes") == "2 dead letters were dropped.\n"
    assert site.json("group", "dead", "work") == []


def test_a_worker_in_python(site: Site) -> None:
    site.text("group", "create", "work", "-b", "plant", "--from", "earliest")
    publish(site, 40)
    seen = []
    with GroupConsumer("work", site.url, "right", member="w1", idle_s=0.0) as consumer:
        for record in consumer:
            seen.append((record.topic, record.payload, record.deliveries))
            if record.payload == b"3":
                record.extend(60)
                record.nack(0.5, "busy")
            elif record.payload == b"4" and record.deliveries == 1:
                record.reject("poison")
            else:
                record.ack()
            if len(seen) == 60:
                break
    payloads = [payload for _, payload, _ in seen]
    assert sorted(set(payloads), key=int) == [b"%d" % n for n in range(40)]
    assert max(deliveries for _, payload, deliveries in seen if payload == b"3") > 1
    assert list(site.port.groups.buried.values()) == ["poison"]
    assert consumer.refused == 0
    assert len(site.port.groups.settled) >= 39
    assert not site.port.groups.held, "what it did not see went back"


def test_a_worker_that_leaves_gives_records_back(site: Site) -> None:
    site.text("group", "create", "work", "-b", "plant", "--from", "earliest")
    publish(site, 5)
    with GroupConsumer("work", site.url, "right", idle_s=0.0) as consumer:
        for record in consumer:
            record.ack()
            break
    assert len(site.port.groups.settled) == 1
    assert not site.port.groups.held
    with GroupConsumer("work", site.url, "right", idle_s=0.0) as consumer:
        again = list(consumer)
        assert [record.deliveries for record in again] == [2, 2, 2, 2]
        assert "plant/0 offset 1, delivery 2" in repr(again[0])
    with GroupConsumer("gone", site.url, "right") as consumer, pytest.raises(NotFound, match="no consumer group"):
        next(iter(consumer))


def test_acks_whose_leader_is_silent_are_sent_again(site: Site) -> None:
    site.text("group", "create", "work", "-b", "plant", "--from", "earliest")
    publish(site, 3)
    with GroupConsumer("work", site.url, "right", idle_s=0.0) as consumer:
        for record in consumer:
            if record.offset == 0:
                site.port.groups.leaderless = {record.token}
                threading.Timer(0.4, site.port.groups.leaderless.clear).start()
            record.ack()
    assert len(site.port.groups.settled) == 3
    assert consumer.refused == 0
