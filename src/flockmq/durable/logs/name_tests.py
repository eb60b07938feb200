"""Filters of sessions as tests that an index of names understands (``log/names.py``)."""

from __future__ import annotations

from functools import partial

from flockmq.log.names import NameTest
from flockmq.mqtt.topics import has_wildcard, matches


def name_test(topic_filter: bytes) -> NameTest:
    """The names that a filter matches."""
    if not has_wildcard(topic_filter):
        return NameTest(topic_filter, topic_filter, None)
    prefix: list[bytes] = []
    for level in topic_filter.split(b"/"):
        if level == b"#":  # matches its parent level, too, which ends without a slash
            return NameTest(topic_filter, b"/".join(prefix), partial(matches, topic_filter))
        if level == b"+":
            break
        prefix.append(level)
    return NameTest(topic_filter, b"/".join([*prefix, b""]), partial(matches, topic_filter))
