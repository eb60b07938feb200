from __future__ import annotations

import json

from flockmq.cluster.commands import (
    CreateCursor,
    CreateHidden,
    CreateNamespace,
    CreateTopic,
    PutAcl,
    PutClient,
    SetClusterId,
    SetSetting,
    SetTarget,
)
from flockmq.cluster.commands_groups import CreateGroup
from flockmq.cluster.dump import SegmentReport, dump, dump_state, dump_text
from flockmq.cluster.groups import Binding
from flockmq.cluster.model import BY_PROPERTY, SESSIONS_TOPIC, AclRule, Limits
from flockmq.cluster.state import ClusterState
from state_cases import Machine

SECRET = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"


def test_the_text_of_a_small_cluster() -> None:
    machine = Machine()
    machine.done(SetClusterId(0xABC))
    machine.node(2)
    machine.node(1)
    machine.done(CreateTopic("my-topic", replication_factor=2))
    text = dump_text(dump(machine.state, [SegmentReport(2, 1, 0, 10, 512), SegmentReport(1, 1, 0, 10, 512)]))
    assert (
        text
        == f"""=== Cluster state ===
index: 4
cluster_id: "0000000000000abc"
namespaces: <
  name: "default"
  topics: <
    name: "my-topic"
    shards: 1
    replication_factor: 2
    retention: <
      milliseconds: 604800000
      bytes: 0
    >
    default_exchange_type: "fanout"
    filters: "my-topic/#"
    ack: "quorum"
    key: "topic"
    created_ms: {machine.wall_ms}
    partitions: <
      shard: 0
      group: 1
      replicas: "0000000000000001"
      replicas: "0000000000000002"
      preferred_leader: "0000000000000001"
    >
  >
>
nodes: <
  id: "0000000000000001"
  name: "n1@host"
  address: "host:16001"
  role: "core"
  state: ALIVE
>
nodes: <
  id: "0000000000000002"
  name: "n2@host"
  address: "host:16002"
  role: "core"
  state: ALIVE
>

=== Segments ===
segments: <
  namespace: "default"
  topic: "my-topic"
  shard: 0
  group: 1
  base_offset: 0
  end_offset: 10
  size_bytes: 512
  replicas: "0000000000000001"
  replicas: "0000000000000002"
>
"""
    )


def test_consumer_groups_are_shown_with_their_bindings() -> None:
    machine = Machine(1)
    machine.topic("orders")
    bindings = (Binding("orders", "topic", "a.*"), Binding("orders", "headers", "any:x=1"))
    machine.done(CreateGroup("work", bindings, ack_wait_ms=5_000))
    dumped = dump_state(machine.state)
    group = dumped["namespaces"][0]["consumer_groups"][0]  # type: ignore[index, call-overload]
    assert (group["name"], group["mode"], group["dead_letter"]) == ("work", "share", "work.dead")  # type: ignore[index, call-overload]
    text = dump_text(dumped)
    assert (
        """  consumer_groups: <
    name: "work"
    id: 3
    bindings: <
      topic_name: "orders"
      exchange_type: "topic"
      key: "a.*"
    >
    bindings: <
      topic_name: "orders"
      exchange_type: "headers"
      key: "any:x=1"
    >
    mode: "share"
    ack_wait_ms: 5000
"""
        in text
    )


def full() -> Machine:
    machine = Machine(3)
    machine.done(CreateNamespace("acme", Limits(topics_max=5)))
    machine.done(CreateTopic("orders", "acme", ("a/+",), key=BY_PROPERTY, key_property="order"))
    machine.done(SetTarget(1, (1, 2)))
    machine.done(CreateCursor("spark", "orders", "acme", hold=True))
    machine.done(PutClient("acme", "bob", SECRET))
    machine.done(PutAcl("acme", False, (AclRule(True, ("user:bob",), "all", ("a/#",)),)))
    machine.done(SetSetting("admin_token_hash", "5ec4e7"))
    machine.done(SetSetting("motto", 'say "hi"'))
    return machine


def test_secrets_stay_secret() -> None:
    dumped = dump_state(full().state)
    for text in (json.dumps(dumped), dump_text(dumped)):
        assert "argon2" not in text
        assert "5ec4e7" not in text
        assert "redacted" in text


def test_all_is_there_in_the_form_people_know() -> None:
    text = dump_text(dump_state(full().state))
    for line in (
        'name: "acme"',
        'filters: "a/+"',
        'key: "order"',
        "topics_max: 5",
        "hold: true",
        'default: "deny"',
        'who: "user:bob"',
        'target: "0000000000000001"',
        r'value: "say \"hi\""',
    ):
        assert f" {line}\n" in text, line


def test_nobody_forges_a_line() -> None:
    machine = full()
    machine.done(CreateTopic("forged", "acme", ("x\nsuperuser: true\x1b[2J/+",)))
    text = dump_text(dump_state(machine.state))
    assert "superuser: true" not in [line.strip() for line in text.splitlines()]
    assert r'filters: "x\U0000000Asuperuser: true\U0000001B[2J/+"' in text


def test_a_copy_dumps_the_same() -> None:
    state = full().state
    assert dump_state(ClusterState.decode(state.encode())) == dump_state(state)


def test_segments_that_are_the_same_are_shown_once_and_unknown_groups_not_at_all() -> None:
    state = full().state
    reports = [
        SegmentReport(3, 1, 10, 20, 5),
        SegmentReport(1, 1, 10, 21, 6),
        SegmentReport(1, 1, 0, 10, 9),
        SegmentReport(2, 1, 0, 10, 9),
        SegmentReport(2, 1, 0, 10, 9),
        SegmentReport(2, 99, 0, 10, 9),
    ]
    segments = dump(state, reports)["segments"]
    assert segments == dump(state, reports[::-1])["segments"]
    assert isinstance(segments, list)
    shown = [(each["base_offset"], each["end_offset"], each["replicas"]) for each in segments if isinstance(each, dict)]
    assert shown == [
        (0, 10, ["0000000000000001", "0000000000000002"]),
        (10, 20, ["0000000000000003"]),
        (10, 21, ["0000000000000001"]),
    ]


def test_hidden_topics_are_marked_and_shown_to_people_who_ask() -> None:
    machine = Machine(1)
    machine.topic("plant")
    machine.done(CreateHidden(SESSIONS_TOPIC))
    dumped = dump(machine.state, [SegmentReport(1, 1, 0, 10, 512), SegmentReport(1, 2, 0, 20, 256)])
    topics = dumped["namespaces"][0]["topics"]  # type: ignore[index, call-overload]
    assert [(one["name"], one.get("hidden")) for one in topics] == [("$sessions", True), ("plant", None)]  # type: ignore[union-attr, index, call-overload]
    segments = dumped["segments"]
    assert [(one["topic"], one.get("hidden")) for one in segments] == [("plant", None), ("$sessions", True)]  # type: ignore[union-attr, index, call-overload]
    text = dump_text(dumped)
    assert "plant" in text
    assert "$sessions" not in text
    shown = dump_text(dumped, with_hidden=True)
    assert shown.count("$sessions") == 2
    assert shown.count("hidden: true") == 2
