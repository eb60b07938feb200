"""Rules about which clients may publish and subscribe to what; the first rule that decides wins.

```
 ACL file, cluster state --parse_rules--> Acl --select(principal)--> Selection --decide(action, filter)--> True | False
                             strict         all rules            the rules that fit one connection,
                                                                 %c and %u filled in, made once
```
An allowing rule decides when one of its topics *covers* what is asked for, a denying rule when one *overlaps* it.
``%c`` and ``%u`` are filled in level by level as literals. A client chooses its own id, so a value that holds ``+``,
``#`` or ``/`` or begins with ``$`` fits no allowing rule; in a denying rule it counts as any level, so that a
strange id is no way around the rule. ``$SYS/#`` is never opened by a default, only by a rule that names it.

*Capture* is the right to have messages stored for a persistent session. All clients have it for what they may subscribe
to, unless a rule for ``capture`` denies it: neither ``all`` nor the default is about capture.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, Final, Literal

from flockmq.errors import FlockError
from flockmq.mqtt.topics import check_topic_filter
from flockmq.security.filters import Filter, covers, make_filter, overlaps

if TYPE_CHECKING:
    from collections.abc import Iterable

Action = Literal["publish", "subscribe", "capture"]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SYS: Final = b"$SYS"
_RULE_KEYS: Final = ("allow", "who", "action", "topics")
_ACTIONS: Final = ("publish", "subscribe", "capture", "all")
_PLACEHOLDER: Final = re.compile(r"(%.?)", re.DOTALL)
_NAMES: Final = frozenset({"%c", "%u"})
_UNUSABLE: Final = frozenset("+#/")
ALIKE_MAX: Final = 256
"""How many sets of rules connections share."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A connection as rules see it. ``username`` is None unless it was proved."""

    client_id: str
    username: str | None = None
    peer: str = ""
    own_name: str | None = None
    """What ``%u`` is, where that is not the whole name: the name within a namespace."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A topic of a rule. A level is None (``+``) or pieces to join: text, or the placeholders ``%c`` and ``%u``."""

    levels: tuple[tuple[str, ...] | None, ...]
    rest: bool

    @property
    def is_fixed(self) -> bool:
        """Whether it is the same for all clients."""
        return all(pieces is None or _NAMES.isdisjoint(pieces) for pieces in self.levels)

    def bind(self, principal: Principal, *, allow: bool) -> Filter | None:
        """The filter that this is for a principal; None when it matches nothing of theirs."""
        bound: list[bytes | None] = []
        for pieces in self.levels:
            level = None if pieces is None else _fill(pieces, principal)
            if pieces is not None and (level is None or (allow and not bound and _opens_system(pieces, level))):
                if allow:
                    return None
                level = None
            bound.append(None if level is None else level.encode("utf-8", "surrogatepass"))
        return make_filter(tuple(bound), self.rest)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the file, in the order of ``number``."""

    number: int
    allow: bool
    who: str
    network: Network | None
    actions: tuple[Action, ...]
    topics: tuple[Pattern, ...]
    fixed: tuple[tuple[bool, Filter] | None, ...]
    """The topics as filters, made once for all connections; None where a name has to be filled in."""

    def bind(self, principal: Principal) -> list[tuple[bool, Filter]]:
        """The filters of the rule for a principal."""
        found: list[tuple[bool, Filter]] = []
        for pattern, pair in zip(self.topics, self.fixed, strict=True):
            if pair is not None:
                found.append(pair)
                continue
            bound = pattern.bind(principal, allow=self.allow)
            if bound is not None:
                found.append((self.allow, bound))
        return found


@dataclass(frozen=True, slots=True)
class Selection:
    """What one connection may do: filters in the order they are asked, each allowing or denying."""

    publish: tuple[tuple[bool, Filter], ...]
    subscribe: tuple[tuple[bool, Filter], ...]
    default: bool
    capture: tuple[tuple[bool, Filter], ...] = ()
    default_capture: bool = True

    def decide(self, action: Action, wanted: Filter) -> bool:
        """Whether all names of ``wanted`` are allowed."""
        if action == "capture":
            decided = _first(self.capture, wanted)
            return self.default_capture if decided is None else decided
        decided = _first(self.publish if action == "publish" else self.subscribe, wanted)
        return self.default and not is_sys(wanted) if decided is None else decided


def _first(rules: tuple[tuple[bool, Filter], ...], wanted: Filter) -> bool | None:
    """What the first rule that decides says; None: none decides."""
    for allow, topic in rules:
        if covers(topic, wanted) if allow else overlaps(topic, wanted):
            return allow
    return None


class Acl:
    """All rules, found by the principal they are about, so that a file with a rule for each user stays quick."""

    def __init__(self, rules: Iterable[Rule], *, default: bool) -> None:
        self.default = default
        self._named: dict[str, list[Rule]] = {}  # by "user:..." and "client:..."
        self._other: list[Rule] = []  # for all, and by network
        self._alike: dict[tuple[int, ...], Selection] = {}  # by the rules for networks that fit
        for rule in rules:
            if rule.who == "all" or rule.network is not None:
                self._other.append(rule)
            else:
                self._named.setdefault(rule.who, []).append(rule)
        self._other_is_fixed = all(None not in rule.fixed for rule in self._other)

    def select(self, principal: Principal) -> Selection:
        """The rules that fit, with their placeholders filled in."""
        others = self._fitting_others(principal.peer)
        named = self._named.get(f"client:{principal.client_id}", [])
        users = self._named.get(f"user:{principal.username}", []) if principal.username is not None else []
        if named or users or not self._other_is_fixed:
            return self._bind(merge(others, named, users, key=_number), principal)
        # Of many connections that are all the same to the rules each would have a copy of them.
        networks = tuple(rule.number for rule in others if rule.network is not None)
        found = self._alike.get(networks)
        if found is None:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            found = self._alike[networks] = self._bind(others, principal)
        return found

    def _bind(self, rules: Iterable[Rule], principal: Principal) -> Selection:
        chosen: dict[Action, list[tuple[bool, Filter]]] = {"publish": [], "subscribe": [], "capture": []}
        for rule in rules:
            bound = rule.bind(principal)
            for action in rule.actions:
                chosen[action] += bound
        return Selection(tuple(chosen["publish"]), tuple(chosen["subscribe"]), self.default, tuple(chosen["capture"]))

    def _fitting_others(self, peer: str) -> list[Rule]:
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:  # not an address, as of a Unix socket: it is in no network
            return [rule for rule in self._other if rule.network is None]
        mapped = getattr(address, "ipv4_mapped", None)
        return [rule for rule in self._other if rule.network is None or (mapped or address) in rule.network]


def is_sys(wanted: Filter) -> bool:
    """Whether it is about ``$SYS`` topics. Wildcards don't reach them [MQTT-4.7.2-1], so the first level tells."""
    return bool(wanted.levels) and wanted.levels[0] == _SYS


def grant(
    publish: Iterable[Pattern],
    subscribe: Iterable[Pattern],
    principal: Principal,
    capture: Iterable[Pattern] | None = None,
) -> Selection:
    """What a list of allowed topics gives; all else is denied. ``capture`` None: whatever may be subscribed to."""
    bound = [[topic.bind(principal, allow=True) for topic in topics] for topics in (publish, subscribe, capture or ())]
    first, second, third = (tuple((True, topic) for topic in topics if topic is not None) for topics in bound)
    return Selection(first, second, default=False, capture=third, default_capture=capture is None)


class RuleError(FlockError):
    """One of several rules can't be used; ``index`` counts from 0."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def parse_rules(tables: Iterable[object]) -> list[Rule]:
    """Rules in their order; RuleError says what is wrong with which."""
    rules: list[Rule] = []
    for index, table in enumerate(tables):
        try:
            rules += _rules(len(rules), table)
        except FlockError as error:
            raise RuleError(index, str(error)) from None
    return rules


def parse_pattern(text: str) -> Pattern:
    """A topic of a rule; FlockError says what is wrong with it."""
    check_topic_filter(text.encode("utf-8", "surrogatepass"))
    if text.startswith("$share/"):
        raise FlockError(f"topic {text!r} is a shared subscription; write the filter alone, it holds for those, too.")
    if text.startswith("$delayed/"):
        raise FlockError(f"topic {text!r}: delayed messages are judged by the topic they go to; write that one.")
    parts = text.split("/")
    rest = parts[-1] == "#"
    levels = parts[:-1] if rest else parts
    return Pattern(tuple(None if level == "+" else _pieces(level, text) for level in levels), rest)


def _pieces(part: str, text: str) -> tuple[str, ...]:
    pieces = _PLACEHOLDER.split(part)
    for piece in pieces[1::2]:
        if piece not in ("%c", "%u", "%%"):
            raise FlockError(
                f"topic {text!r} holds {piece!r}; known are %c (client id), %u (user name) and %% (a percent)."
            )
    return tuple(piece for piece in pieces if piece) or ("",)


def _fill(pieces: tuple[str, ...], principal: Principal) -> str | None:
    """The literal level; None when a value is missing or could be mistaken for more than one level."""
    filled = []
    for piece in pieces:
        if piece in _NAMES:
            value = principal.client_id if piece == "%c" else principal.own_name or principal.username
            if not value or not _UNUSABLE.isdisjoint(value):
                return None
            filled.append(value)
        else:
            filled.append("%" if piece == "%%" else piece)
    return "".join(filled)


def _opens_system(pieces: tuple[str, ...], level: str) -> bool:
    """Whether a client's own word made the first level one of the broker's ``$`` topics."""
    return level.startswith("$") and (pieces[0] in _NAMES or (level == "$SYS" and not _NAMES.isdisjoint(pieces)))


def _number(rule: Rule) -> int:
    return rule.number


def _rules(number: int, table: object) -> list[Rule]:
    """One table of the file, as one rule for each of those it is about."""
    if not isinstance(table, dict):
        raise FlockError("write it as a [[rule]] table.")
    for key in table:
        if key not in _RULE_KEYS:
            raise FlockError(f"unknown key {key!r}; known are {', '.join(_RULE_KEYS)}.")
    for key in _RULE_KEYS:
        if key not in table:
            raise FlockError(f"{key} is missing; a rule has {', '.join(_RULE_KEYS)}.")
    allow = table["allow"]
    if not isinstance(allow, bool):
        raise FlockError("allow must be true or false.")
    if table["action"] not in _ACTIONS:
        raise FlockError(f"action is {table['action']!r}; it must be one of {', '.join(_ACTIONS)}.")
    actions: tuple[Action, ...] = ("publish", "subscribe") if table["action"] == "all" else (table["action"],)
    topics = tuple(_topic(text) for text in _texts(table["topics"], "topics"))
    people = _texts([table["who"]] if isinstance(table["who"], str) else table["who"], "who")
    fixed = tuple(_fixed(topic, allow) for topic in topics)
    return [
        Rule(number + index, allow, who, _network(who), actions, topics, fixed)
        for index, who in enumerate(dict.fromkeys(people))
    ]


def _fixed(topic: Pattern, allow: bool) -> tuple[bool, Filter] | None:
    bound = topic.bind(Principal(""), allow=allow) if topic.is_fixed else None
    return None if bound is None else (allow, bound)


def _texts(value: object, key: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise FlockError(f"{key} must be a list of texts, with at least one.")
    return value


def _topic(text: str) -> Pattern:
    try:
        return parse_pattern(text)
    except FlockError as error:
        sentence = str(error) if text in str(error) else f"topic {text!r}: {error}."
        raise FlockError(sentence) from None


def _network(who: str) -> Network | None:
    """The network of ``ip:...``; None for the other kinds, which are checked here, too."""
    kind, _, name = who.partition(":")
    if who == "all" or (kind in ("user", "client") and name):
        return None
    if kind != "ip" or not name:
        raise FlockError(f'who is {who!r}; write "all", "user:NAME", "client:ID" or "ip:10.0.0.0/8".')
    try:
        return ipaddress.ip_network(name)
    except ValueError as error:
        raise FlockError(f"who is {who!r}, which is no address or network ({error}).") from None
