"""The ACL file: what it may hold, how mistakes are told, and rules that are written back as they were read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flockmq.cluster.model import AclRule
from flockmq.errors import ConfigError
from flockmq.security.acl_file import AclText, format_rules, load_acl, read_rules

GOOD = '[[rule]]\nallow = true\nwho = "all"\naction = "all"\ntopics = ["a"]\n'


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


STRANGE = ("tab\there/\x7f\x9b\u2028/\U000e0001", "\u00e9/%%/%u/#")
ODD = AclRule(False, ('user:a\\b "c"', "client:d"), "publish", STRANGE)


def test_rules_are_written_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    rules = (ODD, AclRule(True, ("ip:192.0.2.0/24",), "all", ("$SYS/#", "+/b")))
    text = format_rules(False, rules)
    path.write_text(text)
    assert read_rules(path) == AclText(False, rules)
    assert format_rules(False, rules) == text
    assert all(one.isprintable() for one in text.replace("\n", "")), "it can be shown on a terminal"
    path.write_text(format_rules(True, rules))
    assert read_rules(path).default_allow


def test_a_file_as_people_write_it(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    path.write_text('default = "deny"  # for all else\n' + GOOD + GOOD.replace('"all"\na', '["user:a", "user:a"]\na'))
    text = read_rules(path)
    assert text.rules == (AclRule(True, ("all",), "all", ("a",)), AclRule(True, ("user:a",), "all", ("a",)))
    assert format_rules(text.default_allow, text.rules[:1]) == 'default = "deny"\n\n' + GOOD


@pytest.mark.parametrize("page", ["reference/acl.md", "how-to/secure-a-broker.md"])
def test_the_examples_of_the_documentation_can_be_used(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    examples = [block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "[[rule]]" in block]
    assert examples
    for example in examples:
        (tmp_path / "acl.toml").write_text(example)
        load_acl(tmp_path / "acl.toml")
