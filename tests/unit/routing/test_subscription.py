"""[MQTT-3.3.4-2]: where subscriptions overlap, one copy at the highest QoS; [MQTT-3.3.4-4]: with all identifiers."""

from __future__ import annotations

from flockmq.routing.subscription import merge
from routing_cases import session_of, subscription_of


def test_a_subscription_is_its_own_target() -> None:
    session = session_of("a")
    subscription = subscription_of(session, b"a/+", qos=2, retain_as_published=True, identifier=300)
    target = merge([subscription])
    assert target is subscription
    assert (target.session, target.qos, target.retain_as_published) == (session, 2, True)
    assert target.identifiers == (300,)
    assert target.identifier_properties == b"\x0b\xac\x02"
    assert not target.has_no_local


def test_without_identifier_there_is_no_property() -> None:
    subscription = subscription_of(session_of("a"), b"a")
    assert subscription.identifiers == ()
    assert subscription.identifier_properties == b""


def test_own_messages_do_not_come_back_with_no_local() -> None:  # [MQTT-3.8.3-3]
    subscription = subscription_of(session_of("a"), b"a", no_local=True)
    assert subscription.has_no_local
    assert subscription.own is None


def test_several_become_one_copy() -> None:
    session = session_of("a")
    target = merge(
        [
            subscription_of(session, b"a/#", qos=1, identifier=5),
            subscription_of(session, b"a/+", qos=2, retain_as_published=True),
            subscription_of(session, b"a/b", qos=0, identifier=3),
            subscription_of(session, b"+/b", qos=0, identifier=5),
        ]
    )
    assert (target.session, target.qos, target.retain_as_published) == (session, 2, True)
    assert target.identifiers == (5, 3, 5)
    assert target.identifier_properties == b"\x0b\x05\x0b\x03\x0b\x05"
    assert not target.has_no_local
    assert target.own is None


def test_own_messages_come_through_the_subscriptions_without_no_local() -> None:
    session = session_of("a")
    local = subscription_of(session, b"a/+", qos=1, identifier=2)
    target = merge([subscription_of(session, b"a/#", qos=2, no_local=True, identifier=1), local])
    assert (target.qos, target.identifiers, target.has_no_local) == (2, (1, 2), True)
    assert target.own is local


def test_own_messages_are_merged_as_well() -> None:
    session = session_of("a")
    target = merge(
        [
            subscription_of(session, b"a/+", qos=1, identifier=2),
            subscription_of(session, b"a/#", qos=2, no_local=True, identifier=1),
            subscription_of(session, b"#", retain_as_published=True, identifier=4),
        ]
    )
    own = target.own
    assert own is not None
    assert (own.qos, own.identifiers, own.retain_as_published, own.has_no_local) == (1, (2, 4), True, False)


def test_nothing_comes_back_when_all_have_no_local() -> None:
    session = session_of("a")
    target = merge([subscription_of(session, topic_filter, no_local=True) for topic_filter in (b"a/+", b"a/#")])
    assert target.has_no_local
    assert target.own is None
