from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flockmq.admin.metrics import METRICS, Exposition, flat
from flockmq.admin.model import Listener
from flockmq.cluster.commands import CreateHidden, CreateNamespace, CreateTopic
from flockmq.cluster.commands_groups import CreateGroup
from flockmq.cluster.groups import Binding
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.session.stats import Stats
from flockmq.testing.harness import WALL_MS, BrokerHarness
from unit.admin.desks import make_desk
from unit.admin.durable_desks import MemoryDurable

COUNTERS = [name for name in dir(Stats()) if not name.startswith("_") and isinstance(getattr(Stats(), name), int)]


def scrape(harness: BrokerHarness, listeners: tuple[Listener, ...] = ()) -> dict[str, float]:
    """Samples by name and labels, through Prometheus' own parser."""
    text, _ = Exposition(make_desk(harness, listeners=listeners)).text("")
    return {
        sample.name + "".join(f"|{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("name", COUNTERS)
def test_every_counter_of_the_broker_is_scraped_once(name: str) -> None:
    harness = BrokerHarness()
    before = scrape(harness)
    setattr(harness.broker.stats, name, 1_234_567)
    after = scrape(harness)
    volatile = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    changed = {key: value for key, value in after.items() if before[key] != value and key not in volatile}
    assert list(changed.values()) == [1_234_567]


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"(flockmq|process)_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.text


def test_gauges_show_what_is_there() -> None:
    harness = BrokerHarness()
    one = harness.client("one", session_expiry_s=100)
    harness.client("two")
    one.subscribe(b"a/+")
    one.subscribe(b"$share/g/b")
    one.publish(b"kept", b"x", retain=True)
    harness.raw()
    one.drop()
    harness.advance(2_000)
    found = scrape(harness)
    assert found["flockmq_connections"] == 2
    assert found["flockmq_clients"] == 1
    assert found["flockmq_sessions"] == 2
    assert found["flockmq_subscriptions"] == 2
    assert found["flockmq_shared_subscriptions"] == 1
    assert found["flockmq_retained_messages"] == 1
    assert found["flockmq_uptime_seconds"] == 2
    assert found["flockmq_ready"] == 0
    assert found["flockmq_build_info|pure|n1@host|1.2.3"] == 1


def test_messages_are_counted_by_qos() -> None:
    harness = BrokerHarness()
    client = harness.client("one")
    client.subscribe(b"a", qos=2)
    for qos in (0, 1, 1, 2, 2, 2):
        client.publish(b"a", b"x", qos=qos)
        client.consume()
    found = scrape(harness)
    assert [found[f"flockmq_messages_received_total|{qos}"] for qos in (0, 1, 2)] == [1, 2, 3]
    assert [found[f"flockmq_messages_sent_total|{qos}"] for qos in (0, 1, 2)] == [1, 2, 3]


def test_listeners_with_several_addresses_are_added_up() -> None:
    listeners = (
        Listener(name="tcp:default", protocol="tcp", host="127.0.0.1", port=1, connections=3),
        Listener(name="tcp:default", protocol="tcp", host="::1", port=1, connections=4),
        Listener(name="ws:default", protocol="ws", host="::1", port=2, connections=None),
    )
    found = scrape(BrokerHarness(), listeners)
    assert found["flockmq_listener_connections|tcp:default|tcp"] == 7
    assert not any("ws:default" in key for key in found)


def test_a_label_that_a_user_chose_cannot_break_the_format() -> None:
    listeners = (Listener(name='a"b\\c\nd', protocol="tcp", host="h", port=1, connections=1),)
    assert scrape(BrokerHarness(), listeners)['flockmq_listener_connections|a"b\\c\nd|tcp'] == 1


def test_a_scraper_that_prefers_openmetrics_gets_it() -> None:
    exposition = Exposition(make_desk(BrokerHarness()))
    text, content_type = exposition.text("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_the_flat_numbers_are_the_same() -> None:
    harness = BrokerHarness()
    harness.client("one").publish(b"a", b"x", qos=1)
    desk = make_desk(harness)
    counters = flat(desk, "counter")
    assert counters["messages_received_qos1"] == 1
    assert counters["connects_accepted"] == 1
    assert flat(desk, "gauge")["clients"] == 1
    assert not set(counters) & set(flat(desk, "gauge"))


async def test_durable_topics_are_measured_where_there_are_any() -> None:
    assert "flockmq_topics" not in scrape(BrokerHarness())
    port = MemoryDurable()
    port.apply(CreateTopic("plant", shards=2))
    port.log(1).append([(b"plant/1", b"", b"x", [])] * 3, 0)
    port.log(2).append([(b"plant/2", b"", b"x", [])] * 4, 0)
    port.log(99).append([(b"gone", b"", b"x", [])], 0)
    port.apply(CreateHidden(CAPTURE_TOPIC))
    port.log(3).append([(b"captured", b"", b"x", [])], 0)
    text, _ = Exposition(make_desk(BrokerHarness(), durable=port)).text("", with_names=True)
    assert b"flockmq_topics 1.0" in text
    assert b"flockmq_partitions_led 1.0" in text
    assert b"flockmq_committed_records 7.0" in text
    assert b'flockmq_topic_committed_offset{namespace="default",topic="plant"} 7.0' in text
    assert CAPTURE_TOPIC.encode() not in text


async def test_without_a_token_there_are_sums_and_no_names() -> None:
    port = MemoryDurable()
    port.apply(CreateNamespace("secret-tenant"))
    port.apply(CreateTopic("secret-topic", "secret-tenant"))
    port.log(1).append([(b"secret-topic/1", b"", b"x", [])] * 3, 0)
    text, _ = Exposition(make_desk(BrokerHarness(), durable=port)).text("")
    assert b"secret" not in text
    assert b"flockmq_topic_committed_offset" not in text
    assert b"flockmq_committed_records 3.0" in text


def test_persistent_sessions_are_counted_where_their_shards_are_led() -> None:
    class Figures(MemoryDurable):
        def figures(self) -> dict[str, int | float]:
            return {
                **super().figures(),
                "sessions_logged_connected": 3,
                "sessions_logged_away": 4,
                "capture_filters": 5,
                "capture_lease": 1,
                "capture_leases": 4,
                "capture_bytes": 700,
                "session_gap_records": 8,
                "session_claims": 6,
                "session_claim_seconds_le_0.001": 2,
                "session_claim_seconds_le_+Inf": 3,
                "session_claim_seconds_sum": 1.5,
            }

    text, _ = Exposition(make_desk(BrokerHarness(), durable=Figures())).text("")
    lines = text.decode().splitlines()
    for line in (
        'flockmq_sessions_logged{state="connected"} 3.0',
        'flockmq_sessions_logged{state="away"} 4.0',
        "flockmq_capture_filters 5.0",
        "flockmq_capture_lease 1.0",
        "flockmq_session_claims_total 6.0",
        "flockmq_capture_leases 4.0",
        "flockmq_capture_bytes 700.0",
        "flockmq_session_gap_records_total 8.0",
        'flockmq_session_claim_seconds_bucket{le="0.001"} 2.0',
        'flockmq_session_claim_seconds_bucket{le="+Inf"} 3.0',
        "flockmq_session_claim_seconds_count 3.0",
        "flockmq_session_claim_seconds_sum 1.5",
    ):
        assert line in lines
    counters = flat(make_desk(BrokerHarness(), durable=Figures()), "counter")
    assert (counters["session_claim_seconds_count"], counters["session_claim_seconds_sum"]) == (3, 1.5)
    assert "flockmq_sessions_logged{" not in Exposition(make_desk(BrokerHarness())).text("")[0].decode()


async def test_consumer_groups_have_their_lag_in_messages_bytes_and_seconds() -> None:
    durable = MemoryDurable()
    durable.apply(CreateTopic("plant"))
    durable.apply(CreateGroup("work", (Binding("plant"),)))
    durable.now_ms = WALL_MS - 2_500
    text, _ = Exposition(make_desk(BrokerHarness(), durable=durable)).text("", with_names=True)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.labels.get("group") == "work" and sample.labels["namespace"] == "default"
    }
    assert found == {
        "flockmq_group_lag_messages": 0,
        "flockmq_group_lag_bytes": 100,
        "flockmq_group_lag_seconds": 2.5,
        "flockmq_group_in_flight": 1,
        "flockmq_group_dead_letters": 2,
        "flockmq_group_redelivered": 3,
    }
