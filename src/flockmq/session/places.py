"""Where a session stands in the logs of durable topics, when it moves to another node."""

from __future__ import annotations

from typing import Final

POSITION: Final = 0
"""The next offset of a partition that it is to be read from."""
FLOOR: Final = 1
"""The first offset of a partition that subscriptions without a start of their own get."""
START: Final = 2
"""The first offset of a partition that one subscription gets."""

LISTED: Final = 3
"""An offset of a partition that the record of the session lists as under way, or done: not to be read as a new one."""


class LogPlace:
    """One of these; ``topic_filter`` is empty but for START."""

    def __init__(self, kind: int, topic_filter: bytes, group: int, offset: int) -> None:
        self.kind = kind
        self.topic_filter = topic_filter
        self.group = group
        self.offset = offset
