"""Whether a session gets a message, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flockmq.admin import cluster_handlers, views
from flockmq.admin.cluster_model import ExplainQuery, SessionVerdict
from flockmq.admin.model import Session, Subscription
from flockmq.admin.moments import Moments
from flockmq.admin.session_verdicts import Facts, judge
from flockmq.durable.sessions.lag import Lag
from flockmq.security.gate import BrokerGate
from flockmq.security.settings import SecuritySettings
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.session_shards import DETACHED_MS


def session(**changes: Any) -> Session:
    harness = BrokerHarness()
    harness.client("c", session_expiry_s=60).drop()
    seen = views.session(harness.broker.sessions["c"], Moments(lambda: 0, lambda: DETACHED_MS), Lag(3, 0))
    away = {"state": "away", "disconnected_at": "2026-03-01T12:00:00.000Z", "node": "n1@host", "subscriptions": 2}
    return replace(seen, **(away | changes))


def subscription(topic_filter: str = "a/+", qos: int = 1, group: str | None = None) -> Subscription:
    return Subscription(
        client_id="c",
        namespace="default",
        filter=topic_filter,
        share_group=group,
        qos=qos,
        no_local=False,
        retain_as_published=False,
        retain_handling=0,
        identifier=None,
    )


def verdict(
    found: Session | None,
    *matching: Subscription,
    log: str = "$capture",
    denied: tuple[Subscription, ...] = (),
    wall_ms: int = DETACHED_MS,
) -> SessionVerdict:
    return judge(Facts("c", found, list(matching), list(denied), log, wall_ms))


CONNECTED = {"state": "connected", "connected": True, "disconnected_at": None}


@pytest.mark.parametrize(
    ("found", "gets", "says"),
    [
        (verdict(None), "no", "It has no session"),
        (verdict(session(), subscription(), wall_ms=DETACHED_MS + 60_000), "no", "Its session is over"),
        (verdict(session()), "no", "None of its 2 subscriptions matches"),
        (verdict(session(), denied=(subscription(),)), "no", "The ACL does not allow its subscription any more"),
        (verdict(session(), subscription("$share/g/a/+", group="g")), "maybe", "one member of the group"),
        (verdict(session(**CONNECTED), subscription()), "now", "come from $capture"),
        (verdict(session(**CONNECTED), subscription(qos=0)), "now", "at most QoS 0"),
        (verdict(session(**CONNECTED), subscription(), log=""), "now", "at most QoS 1"),
        (verdict(session(), subscription(qos=0)), "no", "QoS 0 goes to connected clients only"),
        (verdict(session(), subscription(), subscription(qos=0)), "later", "Up to 3 messages wait already"),
        (verdict(session(lag=1), subscription(), log="plant"), "later", "wait in plant. Up to 1 message wait"),
        (verdict(session(lag=None, gap=None), subscription()), "later", "an unknown number of messages"),
        (verdict(session(gap=7), subscription()), "later", "retention removed 7 offsets"),
        (verdict(session(state="disconnected"), subscription(), log=""), "later", "in the memory of n1@host"),
        (verdict(session(), subscription(), log=""), "maybe", "ask again"),
        (verdict(session(expiry_s=0xFFFF_FFFF), subscription(), wall_ms=1 << 50), "later", "$capture"),
    ],
)
def test_why(found: SessionVerdict, gets: str, says: str) -> None:
    assert found.gets == gets
    assert says in " ".join(found.reasons)


@pytest.mark.parametrize(
    ("client_id", "topic", "gets", "topic_filter"),
    [
        ("here", "a/b", "now", "a/+"),
        ("here", "x", "no", None),
        ("gone", "a/b", "no", None),
        ("left", "a/b", "later", "#"),
    ],
)
async def test_a_node_alone(client_id: str, topic: str, gets: str, topic_filter: str | None) -> None:
    harness = BrokerHarness()
    harness.client("here").subscribe(b"a/+", qos=1)
    left = harness.client("left", session_expiry_s=60)
    left.subscribe(b"#", qos=1)
    left.drop()
    found = await cluster_handlers.explain(make_desk(harness), call(ExplainQuery(client_id=client_id), topic=topic))
    assert found.session is not None
    assert (found.session.gets, found.session.filter) == (gets, topic_filter)
    plain = await cluster_handlers.explain(make_desk(harness), call(ExplainQuery(), topic=topic))
    assert plain.session is None


async def test_rules_that_have_changed_while_a_client_is_away(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rule = '[[rule]]\nallow = true\nwho = "all"\naction = "all"\ntopics = ["{}"]\n'
    rules.write_text('default = "deny"\n' + rule.format("#"), encoding="utf-8")
    settings = SecuritySettings(allow_anonymous=True, acl_file=str(rules))
    gate = BrokerGate(settings, deliver=lambda *_: None, call_soon=lambda _: None, wall_ms=lambda: 0)
    harness = BrokerHarness(gate=gate)
    left = harness.client("left", session_expiry_s=60)
    left.subscribe(b"a/+", qos=1)
    left.drop()
    query = call(ExplainQuery(client_id="left"), topic="a/b")
    before = await cluster_handlers.explain(make_desk(harness), query)
    rules.write_text('default = "deny"\n' + rule.format("b/#"), encoding="utf-8")
    gate.reload()
    after = await cluster_handlers.explain(make_desk(harness), query)
    assert before.session is not None
    assert after.session is not None
    assert (before.session.gets, after.session.gets) == ("later", "no")
    assert "The ACL does not allow" in after.session.reasons[0]
