"""The ACL file: rules as text, in TOML. Read strictly, and written so that it reads back as the same rules.

```
 acl.toml --load_acl----> Acl                          a node's own rules
         --read_rules--> AclText --format_rules--> acl.toml      rules on their way into cluster state, and out of it
```
One mistake spoils the whole file: a rule that was skipped would let clients do what they should not.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import AclRule
from flockmq.cluster.quoting import quoted
from flockmq.errors import ConfigError
from flockmq.security.acl import Acl, Rule, RuleError, parse_rules
from flockmq.security.files import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_RULE_LINE: Final = re.compile(r"^\s*\[\[\s*rule\s*\]\]")


@dataclass(frozen=True, slots=True)
class AclText:
    """What a file says, every topic and name as it is written there."""

    default_allow: bool
    rules: tuple[AclRule, ...]


def load_acl(path: Path) -> Acl:
    """Read an ACL file; ConfigError tells the place of the first mistake."""
    default_allow, rules, _ = _read(path)
    return Acl(rules, default=default_allow)


def read_rules(path: Path) -> AclText:
    """Read an ACL file, checked as ``load_acl`` does, to be kept elsewhere."""
    default_allow, _, tables = _read(path)
    return AclText(default_allow, tuple(_rule(table) for table in tables))


def format_rules(default_allow: bool, rules: Iterable[AclRule]) -> str:
    """Rules as an ACL file has them."""
    blocks = [f'default = "{"allow" if default_allow else "deny"}"\n']
    blocks += [
        "[[rule]]\n"
        f"allow = {'true' if rule.allow else 'false'}\n"
        f"who = {quoted(rule.who[0]) if len(rule.who) == 1 else _list(rule.who)}\n"
        f"action = {quoted(rule.action)}\n"
        f"topics = {_list(rule.topics)}\n"
        for rule in rules
    ]
    return "\n".join(blocks)


def _read(path: Path) -> tuple[bool, list[Rule], list[dict[str, object]]]:
    text = read_text(path, "ACL file")
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The ACL file {path} is not valid TOML: {error}.") from None
    if not tree:
        raise ConfigError(f'The ACL file {path} is empty; write default = "deny" and at least one [[rule]].')
    unknown = sorted(tree.keys() - {"default", "rule"})
    if unknown:
        raise ConfigError(f"The ACL file {path} has the unknown key {unknown[0]!r}; known are default and rule.")
    if tree.get("default") not in ("allow", "deny"):
        raise ConfigError(
            f'The ACL file {path} must say what holds when no rule decides; write default = "deny" at the top.'
        )
    tables = tree.get("rule")
    if not isinstance(tables, list) or not tables:
        raise ConfigError(f"The ACL file {path} has no rules; add at least one [[rule]].")
    try:
        return tree["default"] == "allow", parse_rules(tables), tables
    except RuleError as error:
        lines = [number for number, line in enumerate(text.splitlines(), 1) if _RULE_LINE.match(line)]
        line = f" (line {lines[error.index]})" if len(lines) == len(tables) else ""
        raise ConfigError(f"The ACL file {path}, rule {error.index + 1}{line}: {error}") from None


def _rule(table: dict[str, object]) -> AclRule:
    """A table that was found to be right."""
    who, topics, action = table["who"], table["topics"], table["action"]
    people = [who] if isinstance(who, str) else who
    assert isinstance(people, list)
    assert isinstance(topics, list)
    return AclRule(table["allow"] is True, tuple(dict.fromkeys(people)), str(action), tuple(topics))


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(quoted(text) for text in texts)}]"
