from __future__ import annotations

import re
from pathlib import Path

import pytest

from flockmq.errors import ConfigError, FlockError
from flockmq.security.acl import Acl, Action, Who, grant, load_acl, parse_pattern
from flockmq.security.filters import parse_filter, parse_name

ALICE = Who("c1", "alice", "10.1.2.3")
NOBODY = Who("c1")


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


def may(acl: Acl, who: Who, action: Action, topic: str) -> bool:
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
    assert may(acl, Who("c", None, "::ffff:10.9.9.9"), "publish", "v4")
    assert may(acl, Who("c", None, "fe80::1%eth0"), "publish", "v6")
    assert not may(acl, Who("c", None, "/run/mqtt.sock"), "publish", "v4")


@pytest.mark.parametrize("hostile", ["+", "#", "a/b", "+/+", "a+", "x/#", ""])
def test_an_id_that_could_widen_a_pattern_fits_none(acl_of: Make, hostile: str) -> None:
    acl = acl_of(rule("all", "all", "dev/%c/#", "user/%u", "pre-%c/x"))
    who = Who(hostile, hostile)
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
    assert not may(acl, Who("%u", "alice"), "publish", "dev/alice/x"), "values are not filled in twice"
    assert may(acl, Who("%u", "alice"), "publish", "dev/%u/x")


def test_an_id_can_not_open_the_brokers_own_topics(acl_of: Make) -> None:
    acl = acl_of(rule("all", "all", "%c/#", "$%u/#"))
    assert not may(acl, Who("$SYS", "SYS"), "subscribe", "$SYS/#")
    assert not may(acl, Who("$other"), "subscribe", "$other/#")
    assert may(acl, Who("plain", "mine"), "subscribe", "$mine/#")


def test_a_strange_id_is_no_way_around_a_denying_rule(acl_of: Make) -> None:
    acl = acl_of(rule("all", "publish", "quarantine/%c/#", allow=False), rule("all", "publish", "quarantine/#"))
    assert not may(acl, Who("c1"), "publish", "quarantine/c1/x")
    assert may(acl, Who("c1"), "publish", "quarantine/c2/x")
    assert not may(acl, Who("c1/x"), "publish", "quarantine/c1/x")


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


GOOD = rule("all", "all", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ('default = "deny"\n', "no rules"),
        ('default = "deny"\nrule = []\n', "no rules"),
        (GOOD, "what holds when no rule decides"),
        ('default = "maybe"\n' + GOOD, "what holds when no rule decides"),
        ("default = deny\n" + GOOD, "not valid TOML.*line 1"),
        ('default = "deny"\nrules = 1\n' + GOOD, "unknown key 'rules'"),
        ('default = "deny"\n' + GOOD + GOOD.replace("who", "whom"), r"rule 2 \(line 7\): unknown key 'whom'"),
        ('default = "deny"\n' + GOOD.replace('who = "all"\n', ""), r"rule 1 \(line 2\): who is missing"),
        ('default = "deny"\n' + GOOD.replace("true", '"yes"'), "allow must be true or false"),
        ('default = "deny"\n' + GOOD.replace('action = "all"', 'action = "read"'), "action is 'read'"),
        ('default = "deny"\n' + GOOD.replace('action = "all"', "action = []"), "action is"),
        ('default = "deny"\n' + GOOD.replace('"all"\na', '"everybody"\na'), "who is 'everybody'"),
        ('default = "deny"\n' + GOOD.replace('"all"\na', '"user:"\na'), "who is 'user:'"),
        ('default = "deny"\n' + GOOD.replace('"all"\na', '"ip:10.0.0.1/8"\na'), "no address or network"),
        ('default = "deny"\n' + GOOD.replace('"all"\na', "[]\na"), "who must be a list"),
        ('default = "deny"\n' + GOOD.replace('["a"]', "[]"), "topics must be a list"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '"a"'), "topics must be a list"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '[""]'), "topics must be a list"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '["a/#/b"]'), "topic 'a/#/b'.*last level"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '["a+"]'), "alone in its level"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '["a/%d"]'), "holds '%d'"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '["a/100%"]'), "holds '%'"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '["$share/g/a"]'), "shared"),
        ('default = "deny"\n' + GOOD.replace('["a"]', '["$delayed/5/a"]'), "delayed"),
        ('default = "deny"\nrule = [1]\n', r"rule 1: write it as a \[\[rule\]\] table"),
    ],
)
def test_files_that_are_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "acl.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_acl(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_acl(tmp_path / "acl.toml")


def test_a_bad_pattern_of_a_token_is_refused() -> None:
    with pytest.raises(FlockError):
        parse_pattern("a/#/b")


def test_rules_of_many_users_are_not_walked_through(acl_of: Make) -> None:
    acl = acl_of(
        *(rule(f"user:u{number}", "all", f"t/{number}") for number in range(300)), rule("all", "all", "shared")
    )
    selection = acl.select(Who("c", "u7"))
    assert len(selection.publish) == 2
    assert selection.decide("publish", parse_name(b"t/7"))
    assert not selection.decide("publish", parse_name(b"t/8"))
    assert selection.decide("publish", parse_name(b"shared"))


@pytest.mark.parametrize("page", ["reference/acl.md", "how-to/secure-a-broker.md"])
def test_the_examples_of_the_documentation_can_be_used(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    examples = [block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "[[rule]]" in block]
    assert examples
    for example in examples:
        (tmp_path / "acl.toml").write_text(example)
        load_acl(tmp_path / "acl.toml")
