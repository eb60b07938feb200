"""Which topic names a reader wants: filters as its namespace writes them, names as batches have them.

```
 filters of a reader --> one expression --> name without the namespace's prefix --> yes or no, kept for the next batch
```
A name is decided once, however many batches have it. What ``mqtt.topics.matches`` says is what this says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

NAMES_MAX: Final = 65_536
"""Names whose answer is kept; then all are forgotten."""


class WantedNames:
    """Valid filters of one namespace. ``prefix`` is what its names begin with inside the broker."""

    def __init__(self, filters: Sequence[bytes], prefix: bytes = b"") -> None:
        self._prefix = prefix
        self._pattern = re.compile(b"|".join([_expression(one) for one in filters]), re.DOTALL)
        self._known: dict[bytes, bool] = {}

    def wants(self, name: bytes) -> bool:
        """Whether a name (in internal form) is matched by one of the filters."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= NAMES_MAX:
                self._known.clear()
            is_ours = name.startswith(self._prefix)
            found = is_ours and self._pattern.fullmatch(name, len(self._prefix)) is not None
            self._known[name] = found
        return found

    def wants_any(self, names: list[bytes]) -> bool:
        """Whether one of them is wanted."""
        known = self._known
        for name in names:
            found = known.get(name)
            if found or (found is None and self.wants(name)):
                return True
        return False


def _expression(topic_filter: bytes) -> bytes:
    """A filter as a regular expression; levels are separated, so nothing in it is tried twice."""
    levels = topic_filter.split(b"/")
    # Wildcards at the front don't match what begins with $ [MQTT-4.7.2-1].
    start = rb"(?!\$)" if levels[0] in (b"+", b"#") else b""
    if levels == [b"#"]:
        return start + b".*"
    is_open = levels[-1] == b"#"
    if is_open:
        levels.pop()
    parts = [b"[^/]*" if level == b"+" else re.escape(level) for level in levels]
    return start + b"/".join(parts) + (b"(?:/.*)?" if is_open else b"")
