from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.security.acl import Acl, Action, Principal, grant, parse_pattern
from flockmq.security.acl_file import load_acl
from flockmq.security.filters import parse_filter, parse_name

ALICE = Principal("c1", "alice", "10.1.2.3")
NOBODY = Principal("c1")


def rule(who: str, action: str, *topics: str, allow: bool = True) -> str:
    listed = ", ".join(f'"{topic}"' for topic in topics)
    people = who if who.startswith("[") else f'"{who}"'
    return f'[[rule]]\nallow = {str(allow).lower()}\nwho = {people}\naction = "{action}"\ntopics = [{listed}]\n'


@pytest.fixture
def acl_of(tmp_path: Path) -> object:
    def make(*rules: str, default: str = "deny") -> Acl:
        path = tmp_path / "acl.toml"
        path.write_text(f'default = "{default}"\n' + "".join(rules))
        return load_acl(path)

    return make


def may(acl: Acl, who: Principal, action: Action, topic: str) -> bool:
    wanted = parse_name(topic.encode()) if action == "publish" else parse_filter(topic.encode())
    return acl.select(who).decide(action, wanted)


class Make:
    """Type of the fixture ``acl_of``."""

    def __call__(self, *rules: str, default: str = "deny") -> Acl:
        raise NotImplementedError


def test_the_first_rule_that_decides_wins(acl_of: Make) -> None:
    acl = acl_of(
        rule("user:alice", "all", "plant/secret/own"),
        rule("all", "all", "plant/secret/#", allow=False),
        rule("all", "all", "plant/#"),
    )
    assert may(acl, ALICE, "publish", "plant/secret/own")
    assert not may(acl, NOBODY, "publish", "plant/secret/own")
    assert not may(acl, ALICE, "publish", "plant/secret/other")
    assert may(acl, ALICE, "publish", "plant/1")
    assert not may(acl, ALICE, "publish", "other")


def test_a_subscription_must_be_covered_and_not_only_matched(acl_of: Make) -> None:
    acl = acl_of(rule("all", "subscribe", "plant/+/temp"))
    assert may(acl, NOBODY, "subscribe", "plant/+/temp")
    assert may(acl, NOBODY, "subscribe", "plant/7/temp")
    for wide in ("plant/+/+", "plant/#", "#", "+/+/temp", "plant/+/temp/#"):
        assert not may(acl, NOBODY, "subscribe", wide)
    assert not may(acl, NOBODY, "publish", "plant/7/temp"), "the rule is about subscribing"


def test_a_denied_topic_can_not_be_reached_through_a_wildcard(acl_of: Make) -> None:
    acl = acl_of(rule("all", "subscribe", "plant/secret", allow=False), rule("all", "subscribe", "plant/#"))
    for wide in ("plant/#", "plant/+", "+/secret", "#", "plant/secret"):
        assert not may(acl, NOBODY, "subscribe", wide)
    assert may(acl, NOBODY, "subscribe", "plant/1/#")


@pytest.mark.parametrize(
    ("who", "fits"),
    [
        ("all", True),
        ("user:alice", True),
        ("user:bob", False),
        ("client:c1", True),
        ("client:c", False),
        ("client:*", False),  # no patterns: a client chooses its id
        ("ip:10.0.0.0/8", True),
        ("ip:10.1.2.3", True),
        ("ip:192.0.2.0/24", False),
        ("ip:::/0", False),
        ('["user:bob", "ip:10.0.0.0/8"]', True),
        ('["user:bob", "user:carol"]', False),
    ],
)
def test_whom_a_rule_is_about(acl_of: Make, who: str, fits: bool) -> None:
    assert may(acl_of(rule(who, "all", "t")), ALICE, "publish", "t") is fits


def test_networks_see_through_mapped_and_scoped_addresses(acl_of: Make) -> None:
    acl = acl_of(rule("ip:10.0.0.0/8", "all", "v4"), rule("ip:fe80::/10", "all", "v6"))
    assert may(acl, Principal("c", None, "::ffff:10.9.9.9"), "publish", "v4")
    assert may(acl, Principal("c", None, "fe80::1%eth0"), "publish", "v6")
    assert not may(acl, Principal("c", None, "/run/mqtt.sock"), "publish", "v4")


@pytest.mark.parametrize("hostile", ["+", "#", "a/b", "+/+", "a+", "x/#", ""])
def test_an_id_that_could_widen_a_pattern_fits_none(acl_of: Make, hostile: str) -> None:
    acl = acl_of(rule("all", "all", "dev/%c/#", "user/%u", "pre-%c/x"))
    who = Principal(hostile, hostile)
    for topic in ("dev/other/x", "dev", f"dev/{hostile}", "user/alice", "user/+", "dev/+/#", "dev/#", "pre-a/b/x"):
        assert not may(acl, who, "subscribe", topic)
        assert not may(acl, who, "publish", topic)


def test_placeholders_are_the_clients_own_level(acl_of: Make) -> None:
    acl = acl_of(rule("all", "all", "dev/%c/#", "user/%u/x", "pre-%c-%u/%%c"))
    assert may(acl, ALICE, "subscribe", "dev/c1/#")
    assert may(acl, ALICE, "publish", "dev/c1/a/b")
    assert not may(acl, ALICE, "publish", "dev/c2/a")
    assert may(acl, ALICE, "publish", "user/alice/x")
    assert not may(acl, NOBODY, "publish", "user/alice/x")
    assert not may(acl, NOBODY, "publish", "user/None/x")
    assert may(acl, ALICE, "publish", "pre-c1-alice/%c")
    assert not may(acl, Principal("%u", "alice"), "publish", "dev/alice/x"), "values are not filled in twice"
    assert may(acl, Principal("%u", "alice"), "publish", "dev/%u/x")


def test_an_id_can_not_open_the_brokers_own_topics(acl_of: Make) -> None:
    acl = acl_of(rule("all", "all", "%c/#", "$%u/#"))
    assert not may(acl, Principal("$SYS", "SYS"), "subscribe", "$SYS/#")
    assert not may(acl, Principal("$other"), "subscribe", "$other/#")
    assert may(acl, Principal("plain", "mine"), "subscribe", "$mine/#")


def test_a_strange_id_is_no_way_around_a_denying_rule(acl_of: Make) -> None:
    acl = acl_of(rule("all", "publish", "quarantine/%c/#", allow=False), rule("all", "publish", "quarantine/#"))
    assert not may(acl, Principal("c1"), "publish", "quarantine/c1/x")
    assert may(acl, Principal("c1"), "publish", "quarantine/c2/x")
    assert not may(acl, Principal("c1/x"), "publish", "quarantine/c1/x")


def test_sys_topics_need_a_rule_that_names_them(acl_of: Make) -> None:
    acl = acl_of(rule("all", "all", "#"), default="allow")
    assert may(acl, ALICE, "subscribe", "anything")
    for topic in ("$SYS/#", "$SYS/broker/uptime", "$SYS/+", "$SYS"):
        assert not may(acl, ALICE, "subscribe", topic)
    named = acl_of(rule("user:alice", "subscribe", "$SYS/broker/#"))
    assert may(named, ALICE, "subscribe", "$SYS/broker/uptime")
    assert not may(named, ALICE, "subscribe", "$SYS/#")
    assert not may(named, NOBODY, "subscribe", "$SYS/broker/uptime")


def test_the_default_holds_where_no_rule_decides(acl_of: Make) -> None:
    denied = rule("all", "all", "secret/#", allow=False)
    open_acl = acl_of(denied, default="allow")
    assert may(open_acl, NOBODY, "subscribe", "a/#")
    assert not may(open_acl, NOBODY, "subscribe", "#")
    assert not may(acl_of(denied), NOBODY, "publish", "a")


def test_rights_of_a_list_deny_all_else() -> None:
    rights = grant([parse_pattern("out/%c")], [parse_pattern("in/%u/#")], ALICE)
    assert rights.decide("publish", parse_name(b"out/c1"))
    assert not rights.decide("publish", parse_name(b"in/alice/x"))
    assert rights.decide("subscribe", parse_filter(b"in/alice/#"))
    assert not rights.decide("subscribe", parse_filter(b"in/#"))


def test_a_bad_pattern_of_a_token_is_refused() -> None:
    with pytest.raises(FlockError):
        parse_pattern("a/#/b")


def test_who_is_the_same_to_the_rules_shares_them(acl_of: Make) -> None:
    acl = acl_of(
        rule("ip:10.0.0.0/8", "all", "secret/#", allow=False),
        rule("user:alice", "all", "own/%u", "secret/1"),
        rule("all", "all", "public/#", "secret/#"),
    )
    inside = acl.select(Principal("1", peer="10.0.0.1"))
    assert acl.select(Principal("2", "bob", "10.0.0.2")) is inside
    outside = acl.select(Principal("3", peer="192.0.2.1"))
    assert not inside.decide("publish", parse_name(b"secret/1"))
    assert outside.decide("publish", parse_name(b"secret/1"))
    alice = acl.select(Principal("4", "alice", "192.0.2.1"))
    assert alice.decide("publish", parse_name(b"own/alice"))
    assert alice.publish[-1] is outside.publish[-1], "one filter for all"


def test_rules_with_names_in_them_are_each_clients_own(acl_of: Make) -> None:
    acl = acl_of(rule("all", "all", "dev/%c"))
    assert may(acl, Principal("1"), "publish", "dev/1")
    assert not may(acl, Principal("2"), "publish", "dev/1")


def test_rules_of_many_users_are_not_walked_through(acl_of: Make) -> None:
    acl = acl_of(
        *(rule(f"user:u{number}", "all", f"t/{number}") for number in range(300)), rule("all", "all", "shared")
    )
    selection = acl.select(Principal("c", "u7"))
    assert len(selection.publish) == 2
    assert selection.decide("publish", parse_name(b"t/7"))
    assert not selection.decide("publish", parse_name(b"t/8"))
    assert selection.decide("publish", parse_name(b"shared"))


def test_capture_is_allowed_unless_a_rule_for_it_denies(acl_of: Make) -> None:
    plain = acl_of(rule("all", "all", "#", allow=False), default="deny")
    assert may(plain, ALICE, "capture", "#"), "other rules are not about it"
    acl = acl_of(rule("user:alice", "capture", "plant/#"), rule("all", "capture", "#", allow=False), default="allow")
    assert may(acl, ALICE, "capture", "plant/1/+")
    assert not may(acl, ALICE, "capture", "#")
    assert not may(acl, NOBODY, "capture", "plant/1")
    assert may(acl, NOBODY, "subscribe", "#")


def test_a_list_of_captured_topics_denies_all_others() -> None:
    everything = parse_pattern("#")
    free = grant([], [everything], ALICE)
    bound = grant([], [everything], ALICE, [parse_pattern("own/%u/#")])
    assert free.decide("capture", parse_filter(b"#"))
    assert bound.decide("capture", parse_filter(b"own/alice/+"))
    assert not bound.decide("capture", parse_filter(b"own/#"))
