"""Consumer groups on three real nodes: every way in for programs and people, on any node."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.admin.durable_groups_model import FetchRequest, GroupChange, GroupMessage, GroupRequest
from flockmq.admin.durable_model import PublishRecords, RecordToPublish, TopicRequest
from flockmq.admin.model import MessageProperties, UserProperty
from flockmq.cli.main import run
from flockmq.client.admin import AdminClient
from flockmq.client.group import GroupConsumer
from flockmq.errors import ApiError, Conflict
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster

pytestmark = [pytest.mark.xdist_group("groups"), pytest.mark.timeout(240)]


class Site:
    """Three nodes; topics and groups get names of their own in each test."""

    def __init__(self, nodes: NodeCluster) -> None:
        self.nodes = nodes
        self.urls = [f"http://{HOST}:{node.api_port}" for node in nodes.nodes]
        file = str(nodes.nodes[0].folder / "credentials.toml")
        self.token = credentials.load(self.urls[0], {"FLOCKMQ_CREDENTIALS": file}) or ""
        self._number = 0

    def admin(self, number: int = 0) -> AdminClient:
        return AdminClient(self.urls[number], self.token)

    def make(self, *bindings: str, shards: int = 3, **fields: object) -> tuple[str, str]:
        """A topic and a group that reads it; ``{}`` in bindings is the topic."""
        self._number += 1
        topic, group = f"t{self._number}", f"g{self._number}"
        self.nodes.create_topic(topic, shards=shards)
        asked = GroupRequest(
            name=group,
            bindings=[one.format(topic) for one in bindings or ("{}",)],
            **fields,  # type: ignore[arg-type]
        )
        self.admin().create_group(asked)
        return topic, group

    def publish(self, topic: str, *payloads: str, names: int = 7, **user: str) -> None:
        properties = None
        if user:
            pairs = [UserProperty(name.replace("_", "-"), value) for name, value in user.items()]
            properties = MessageProperties(user_properties=pairs)
        records = [
            RecordToPublish(topic=f"{topic}/{at % names}", payload=one, properties=properties)
            for at, one in enumerate(payloads)
        ]
        self.admin(1).publish_records(topic, PublishRecords(records=records))

    def fetch(self, group: str, number: int = 0, *, wait_ms: int = 0, most: int = 100) -> list[GroupMessage]:
        return self.admin(number).fetch_records(group, FetchRequest(max=most, wait_ms=wait_ms)).messages

    def drain(self, group: str, count: int, number: int = 0) -> list[GroupMessage]:
        """So many records, or what comes in ten seconds."""
        found: list[GroupMessage] = []
        until = time.monotonic() + 10
        while len(found) < count and time.monotonic() < until:
            found += self.fetch(group, number, wait_ms=1_000)
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with NodeCluster(tmp_path_factory.mktemp("groups"), 3) as nodes:
        nodes.wait_settled()
        made = Site(nodes)
        nodes.wait(lambda: all(_takes_token(made.admin(number)) for number in range(3)), "all nodes to know the token")
        yield made


def _takes_token(admin: AdminClient) -> bool:
    try:
        admin.node()
    except ApiError:
        return False
    return True


def tokens(messages: list[GroupMessage]) -> list[str]:
    return [one.token or "" for one in messages]


def test_records_go_out_once_on_any_node_and_acks_are_final(site: Site) -> None:
    topic, group = site.make()
    payloads = [str(number) for number in range(20)]
    site.publish(topic, *payloads)
    found = site.drain(group, 20, 1)
    assert sorted(one.payload or "" for one in found) == sorted(payloads)
    assert {one.deliveries for one in found} == {1}
    assert site.fetch(group, 2) == []
    assert site.admin(2).ack_records(group, tokens(found)).done == 20
    assert site.admin(0).ack_records(group, tokens(found)[:1]).done == 1, "an ack may be repeated"
    assert site.fetch(group, 1, wait_ms=200) == []
    lag = site.admin().group(group).lag
    assert lag is not None
    assert (lag.messages, lag.in_flight) == (0, 0)


def test_a_fetch_that_waits_is_answered_when_something_comes(site: Site) -> None:
    topic, group = site.make()
    found: list[GroupMessage] = []
    waiting = threading.Thread(target=lambda: found.extend(site.fetch(group, 2, wait_ms=15_000)))
    began = time.monotonic()
    waiting.start()
    site.nodes.wait(lambda: bool(site.admin().group(group).members), "the fetcher to be a member")
    site.publish(topic, "now")
    waiting.join()
    assert [one.payload for one in found] == ["now"]
    assert time.monotonic() - began < 10


def test_a_caller_that_hung_up_keeps_nothing(site: Site) -> None:
    topic, group = site.make(ack_wait_ms=60_000)
    node = site.nodes.nodes[1]
    body = json.dumps({"max": 10, "wait_ms": 15_000, "member": "gone"})
    request = (
        f"POST /api/v1/groups/{group}/fetch HTTP/1.1\r\nHost: {HOST}:{node.api_port}\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {site.token}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    with socket.create_connection((HOST, node.api_port)) as caller:
        caller.sendall(request.encode())
        site.nodes.wait(lambda: bool(site.admin().group(group).members), "the caller to be a member")
    site.publish(topic, "x")
    [found] = site.drain(group, 1)
    assert found.payload == "x"


def test_nacks_expiry_and_more_time(site: Site) -> None:
    topic, group = site.make(ack_wait_ms=1_500, max_deliver=0, backoff_ms=50)
    site.publish(topic, "a", "b", "c", names=1)
    taken = [site.fetch(group, wait_ms=5_000, most=1)[0] for _ in range(3)]
    first = {one.payload: one.token or "" for one in taken}
    site.admin(1).nack_records(group, [first["a"]], delay_ms=0, reason="busy")
    [again] = site.drain(group, 1)
    assert (again.payload, again.deliveries) == ("a", 2)
    site.admin(2).extend_records(group, [first["b"], again.token or ""], 60_000)
    [expired] = site.drain(group, 1)
    assert (expired.payload, expired.deliveries) == ("c", 2)
    with pytest.raises(Conflict):
        site.admin().ack_records(group, [first["c"]])
    assert site.admin().ack_records(group, [first["b"], again.token or "", expired.token or ""]).done == 3


def test_pause_resume_reset(site: Site) -> None:
    topic, group = site.make()
    site.admin(2).pause_group(group)
    site.publish(topic, "1", "2")
    assert site.fetch(group, wait_ms=500) == []
    site.admin(1).resume_group(group)
    held = site.drain(group, 2)
    assert len(held) == 2
    assert site.admin().reset_group(group, "earliest").generation == 2
    with pytest.raises(Conflict):
        site.admin().ack_records(group, tokens(held))
    again = site.drain(group, 2)
    assert sorted(one.payload or "" for one in again) == ["1", "2"]
    site.admin().ack_records(group, tokens(again))
    site.admin().reset_group(group, "latest")
    assert site.fetch(group, wait_ms=300) == []


def test_each_type_of_binding_selects_what_it_says(site: Site) -> None:
    topic, direct = site.make("{}:direct:2", start="earliest")
    for name, binding in {
        "filter": f"{topic}:topic:*.#",
        "vip": f"{topic}:headers:all:kind=vip",
        "any": f"{topic}:headers:any:kind=vip,kind=new",
    }.items():
        site.admin().create_group(GroupRequest(name=f"{direct}{name}", bindings=[binding], start="earliest"))
    site.publish(topic, "0", "1", "2")
    site.publish(topic, "vip", kind="vip")
    site.publish(topic, "new", kind="new")
    site.publish(topic, "keyed", routing_key="2")

    def taken(group: str, count: int) -> list[str]:
        found = site.drain(group, count) + site.fetch(group)
        return sorted(one.payload or "" for one in found)

    assert taken(direct, 2) == ["2", "keyed"]
    assert taken(f"{direct}filter", 6) == ["0", "1", "2", "keyed", "new", "vip"]
    assert taken(f"{direct}vip", 1) == ["vip"]
    assert taken(f"{direct}any", 2) == ["new", "vip"]


def test_a_group_of_a_namespace_keeps_to_it(site: Site) -> None:
    client = site.admin()
    client.create_namespace("acme")
    client.create_topic(TopicRequest(name="orders", namespace="acme"))
    client.create_group(GroupRequest(name="work", namespace="acme", bindings=["orders:direct:eu/1"], max_deliver=1))
    client.publish("orders/eu/1", "mine", qos=1, namespace="acme")
    client.publish("orders/eu/2", "other", qos=1, namespace="acme")
    with pytest.raises(ApiError, match="no consumer group 'work'"):
        site.fetch("work")
    asked = FetchRequest(max=10, wait_ms=5_000)
    [found] = site.admin(1).fetch_records("work", asked, namespace="acme").messages
    assert (found.topic, found.payload) == ("orders/eu/1", "mine")
    site.admin(2).nack_records("work", [found.token or ""], reason="no", namespace="acme")
    site.nodes.wait(lambda: bool(client.dead_letters("work", namespace="acme").items), "the dead letter")
    [letter] = client.dead_letters("work", namespace="acme").items
    assert (letter.topic, letter.reason, letter.payload) == ("orders/eu/1", "no", "mine")
    assert site.admin(1).redrive_dead("work", [letter.id], namespace="acme").done == 1
    [again] = site.admin(1).fetch_records("work", asked, namespace="acme").messages
    assert (again.topic, again.deliveries) == ("orders/eu/1", 1)
    assert client.ack_records("work", [again.token or ""], namespace="acme").done == 1
    assert client.dead_letters("work", namespace="acme").items == []


def test_a_look_lag_and_members(site: Site) -> None:
    topic, group = site.make()
    site.publish(topic, "1", "2", "3", names=3)
    assert sorted(one.payload or "" for one in site.admin(2).peek_records(group)) == ["1", "2", "3"]
    found = site.admin().fetch_records(group, FetchRequest(max=2, wait_ms=2_000, member="m1")).messages
    details = site.admin(1).group(group)
    assert details.lag is not None
    assert details.lag.messages == 3
    assert (details.lag.bytes or 0) > 0
    assert (details.lag.seconds or 0) > 0
    assert [(one.member, one.held) for one in details.members] == [("m1", len(found))]
    assert next(one.lag for one in site.admin().groups(lag=True) if one.name == group) is not None
    metrics = "".join(site.admin(number).metrics() for number in range(3))
    assert f'flockmq_group_lag_messages{{group="{group}",namespace="default"}}' in metrics.replace(", ", ",")


def test_the_commands(site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLOCKMQ_SERVER", site.urls[2])
    monkeypatch.setenv("FLOCKMQ_TOKEN", site.token)

    def say(*arguments: str) -> str:
        assert run(list(arguments)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    topic, _ = site.make()
    say("group", "create", "byhand", "--bind", topic, "--ack-wait", "20s")
    site.publish(topic, "x")
    [found] = json.loads(say("group", "fetch", "byhand", "--wait", "5s", "--json"))
    assert found["payload"] == "x"
    assert say("group", "ack", "byhand", found["token"]) == "1 record was acknowledged.\n"
    assert "consumer_groups" in say("dump")
    assert "consumer group byhand takes it." in say("explain", f"{topic}/1")
    assert run(["group", "ack", "byhand", "nonsense"]) == 1
    assert run(["group", "create", "other", "--bind", f"{topic}:direct"]) == 1
    assert "needs a key" in capsys.readouterr().err
    say("group", "delete", "byhand", "--yes")


def test_bad_input_is_told_in_codes_and_sentences(site: Site) -> None:
    _, group = site.make()
    for token in ("nonsense", "A" * 43):
        with pytest.raises(Conflict):
            site.admin().ack_records(group, [token])
    with pytest.raises(ApiError, match="no consumer group") as missing:
        site.fetch("gone")
    assert missing.value.status == 404
    with pytest.raises(ApiError, match="mode"):
        site.admin().alter_group(group, GroupChange(mode="solo"))  # type: ignore[arg-type]


def test_records_of_a_key_keep_their_order(site: Site) -> None:
    topic, group = site.make(mode="key", max_deliver=0)
    done: dict[str, list[int]] = {}
    busy: dict[str, int] = {}
    together: list[str] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        with GroupConsumer(group, site.urls[number], site.token, member=f"w{number}", idle_s=4.0, batch=10) as consumer:
            for record in consumer:
                with lock:
                    if busy.get(record.topic, number) != number:
                        together.append(record.topic)
                    busy[record.topic] = number
                    done.setdefault(record.topic, []).append(int(record.payload))
                record.ack()
                consumer.flush()
                with lock:
                    busy.pop(record.topic, None)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for one in workers:
        one.start()
    for at in range(0, 140, 35):
        site.publish(topic, *[str(number) for number in range(at, at + 35)], names=7)
    for one in workers:
        one.join()
    assert not together
    assert sum(map(len, done.values())) == 140
    assert all(numbers == sorted(numbers) for numbers in done.values())


def test_workers_share_the_records_while_a_node_dies(site: Site, tmp_path: Path) -> None:
    topic, group = site.make(ack_wait_ms=4_000, max_deliver=0)
    count = 600
    seen: Counter[str] = Counter()
    by_worker: Counter[int] = Counter()
    lock = threading.Lock()
    died = threading.Event()

    def work(number: int) -> None:
        servers = site.urls[number:] + site.urls[:number]
        with GroupConsumer(group, servers, site.token, idle_s=8.0, retry_s=60.0, batch=20) as consumer:
            for record in consumer:
                with lock:
                    seen[record.payload.decode()] += 1
                    by_worker[number] += 1
                    if sum(by_worker.values()) > count // 4:
                        died.set()
                record.ack()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for one in workers:
        one.start()
    for at in range(0, count, 100):
        site.publish(topic, *[str(number) for number in range(at, at + 100)], names=31)
    assert died.wait(60)
    site.nodes.nodes[2].kill()
    try:
        for one in workers:
            one.join()
    finally:
        site.nodes.nodes[2].start()
        site.nodes.nodes[2].wait_ready()
    assert set(seen) == {str(number) for number in range(count)}, "nothing is lost"
    assert len(by_worker) == 3, "all took part"
    again = sum(seen.values()) - count
    assert again <= 3 * 20, "only what was held when the node died comes again"
    site.nodes.wait(lambda: _lag(site, group) == 0, "all to be settled")


def _lag(site: Site, group: str) -> int | None:
    lag = site.admin().group(group).lag
    return None if lag is None else lag.messages
