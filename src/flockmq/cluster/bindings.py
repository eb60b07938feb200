"""Bindings of consumer groups as people write them, and what may stand in them.

```
 TOPIC   or   TOPIC::KEY      the topic's default exchange type, with a key if that type needs one
 TOPIC:fanout                 all records
 TOPIC:direct:KEY             the routing key is KEY
 TOPIC:topic:FILTER           the routing key matches FILTER: plant/+/state, or plant.*.state as AMQP writes it
 TOPIC:headers:all:k=v,k2=v2  user properties: all of these, or `any` of them; a name without = may have any value
```
Names of topics may hold colons: the first colon with a type after it ends the name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.cluster.checks import FILTER_BYTES_MAX, FILTER_LEVELS_MAX, check_filter, check_text
from flockmq.cluster.commands import INVALID, RefusedError
from flockmq.cluster.groups import DIRECT, FANOUT, HEADERS, TOPIC, Binding
from flockmq.cluster.model import EXCHANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

BINDINGS_MAX: Final = 64
"""Of one group."""
PAIRS_MAX: Final = 32
"""Of one binding by headers."""
USAGE: Final = "TOPIC, TOPIC:fanout, TOPIC:direct:KEY, TOPIC:topic:FILTER or TOPIC:headers:all:NAME=VALUE,..."

_WRITTEN: Final = re.compile(
    r"(?P<topic>.+?)(?:::(?P<bare>.+)|:(?P<type>fanout|direct|topic|headers)(?::(?P<key>.*))?)?", re.DOTALL
)


class HeaderTest(NamedTuple):
    """What a binding by headers asks of user properties."""

    is_all: bool
    pairs: tuple[tuple[bytes, bytes | None], ...]
    """Name and value; None: any value."""


def parse_binding(text: str) -> Binding:
    """Read a binding. Whether topic, type and key go together is checked later, where the topic is known."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise RefusedError(INVALID, f"{text[:80]!r} is no binding; write {USAGE}.")
    return Binding(found["topic"], found["type"] or "", found["key"] or found["bare"] or "")


def binding_text(binding: Binding) -> str:
    """A binding as ``parse_binding`` reads it."""
    if binding.key:
        return f"{binding.topic}:{binding.type}:{binding.key}"
    return f"{binding.topic}:{binding.type}" if binding.type else binding.topic


def check_binding(binding: Binding, exchange: str) -> None:
    """Refuse a binding whose key does not go with its type, ``exchange`` for a binding that names none."""
    shown = f"{binding.topic}:{exchange}"[:80]
    if exchange not in EXCHANGES:
        raise RefusedError(
            INVALID, f"The type of a binding must be one of {', '.join(EXCHANGES)}, not {exchange[:40]!r}."
        )
    check_text("key of a binding", binding.key, FILTER_BYTES_MAX)
    if exchange == FANOUT:
        if binding.key:
            raise RefusedError(INVALID, f"The binding {shown} takes all records and has no key; leave the key out.")
        return
    if not binding.key:
        example = {DIRECT: "KEY", TOPIC: "plant/+/state", HEADERS: "all:NAME=VALUE"}[exchange]
        raise RefusedError(INVALID, f"The binding {shown} needs a key; write {shown}:{example}.")
    if exchange == TOPIC:
        check_routing_filter(binding.key)
    elif exchange == HEADERS:
        parse_headers(binding.key)


def is_amqp(key: str) -> bool:
    """Whether a filter of a binding is in AMQP spelling: words with dots between, without ``/`` and ``+``."""
    return "/" not in key and "+" not in key


def check_routing_filter(key: str) -> None:
    """Refuse what is a filter of neither MQTT nor AMQP."""
    if not is_amqp(key):
        check_filter(key)
        return
    words = key.split(".")
    if len(key.encode()) > FILTER_BYTES_MAX or len(words) > FILTER_LEVELS_MAX:
        raise RefusedError(
            INVALID, f"The filter {key[:80]!r} has more than {FILTER_LEVELS_MAX} words or {FILTER_BYTES_MAX} bytes."
        )
    for word in words:
        if len(word) > 1 and ("*" in word or "#" in word):
            raise RefusedError(
                INVALID, f"The filter {key[:80]!r} can't be used: * and # stand for whole words, as in plant.*.state."
            )
    # Each # may stand for any number of words; next to each other they say no more than one.
    if words.count("#") > 4:
        raise RefusedError(INVALID, f"The filter {key[:80]!r} has more than 4 times #; use fewer.")


def parse_headers(key: str) -> HeaderTest:
    """Read the key of a binding by headers."""
    how, _, rest = key.partition(":")
    if how not in ("all", "any") or not rest:
        raise RefusedError(
            INVALID, f"{key[:80]!r} says nothing of headers; write all:NAME=VALUE,... or any:NAME=VALUE."
        )
    parts = rest.split(",")
    if len(parts) > PAIRS_MAX:
        raise RefusedError(INVALID, f"A binding has at most {PAIRS_MAX} headers, not {len(parts)}; use fewer.")
    pairs: list[tuple[bytes, bytes | None]] = []
    for part in parts:
        name, equals, value = part.partition("=")
        if not name:
            raise RefusedError(INVALID, f"{part[:80]!r} is no header; write NAME=VALUE, or NAME for any value.")
        pairs.append((name.encode(), value.encode() if equals else None))
    return HeaderTest(how == "all", tuple(pairs))


def check_count(bindings: Sequence[Binding]) -> None:
    """Refuse no bindings at all, too many, or one twice."""
    if not bindings:
        raise RefusedError(INVALID, f"A consumer group needs at least one binding; write {USAGE}.")
    if len(bindings) > BINDINGS_MAX:
        raise RefusedError(
            INVALID, f"A consumer group has at most {BINDINGS_MAX} bindings, not {len(bindings)}; use filters."
        )
    for index, binding in enumerate(bindings):
        if binding in bindings[:index]:
            raise RefusedError(INVALID, f"The binding {binding_text(binding)[:80]} stands there twice; name it once.")
