"""Topic filters as sets of names: which set holds which, and which sets meet.

A subscription asks for a *set* of names, so that matching its filter as if it were a name is not enough: a client that
may read ``plant/+`` must not get ``plant/#``, and one that must not read ``plant/secret`` must not get ``plant/+``.

```
 covers(rule, wanted)     every name that `wanted` matches, `rule` matches, too       what an allowing rule needs
 overlaps(rule, wanted)   some name is matched by both                                what a denying rule needs
```
A level is either the literal bytes or None for ``+``: a literal level that happens to hold ``+`` or ``#`` (out of a
client id) can't turn into a wildcard on the way.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Filter:
    """A topic filter, taken apart. ``rest`` tells that it ends in ``#``, which is not among the levels."""

    levels: tuple[bytes | None, ...]
    rest: bool = False

    @property
    def wild_first(self) -> bool:
        """Whether it begins with a wildcard, and so matches no name that begins with ``$`` [MQTT-4.7.2-1]."""
        return not self.levels or self.levels[0] is None

    @property
    def system(self) -> bool:
        """Whether all its names begin with ``$``."""
        first = self.levels[0] if self.levels else None
        return first is not None and first.startswith(b"$")


def parse_filter(text: bytes) -> Filter:
    """Take a valid filter apart."""
    parts = text.split(b"/")
    rest = parts[-1] == b"#"
    if rest:
        parts.pop()
    return make_filter(tuple(None if part == b"+" else part for part in parts), rest)


def make_filter(levels: tuple[bytes | None, ...], rest: bool) -> Filter:
    """A filter of levels. Of two that match the same names one stands for both: no name has zero levels or is empty."""
    if rest and levels == (None,):  # +/# is #
        return Filter((), True)
    if rest and levels == (b"",):  # /# is /+/#
        return Filter((b"", None), True)
    return Filter(levels, rest)


def parse_name(name: bytes) -> Filter:
    """A topic name as the filter that matches it alone, whatever characters it holds."""
    return Filter(tuple(name.split(b"/")))


def covers(rule: Filter, wanted: Filter) -> bool:
    """Whether every name that ``wanted`` matches is matched by ``rule``."""
    depth = len(rule.levels)
    if rule.rest:
        if len(wanted.levels) < depth:
            return False  # `wanted` has shorter names than `rule`
    elif wanted.rest or len(wanted.levels) != depth:
        return False
    if rule.wild_first and wanted.system:
        return False
    return all(level is None or level == wanted.levels[index] for index, level in enumerate(rule.levels))


def overlaps(rule: Filter, wanted: Filter) -> bool:
    """Whether some name is matched by both."""
    if (rule.wild_first and wanted.system) or (wanted.wild_first and rule.system):
        return False
    if len(rule.levels) < len(wanted.levels):
        if not rule.rest:
            return False
    elif len(rule.levels) > len(wanted.levels) and not wanted.rest:
        return False
    return all(
        first is None or second is None or first == second
        for first, second in zip(rule.levels, wanted.levels, strict=False)
    )
