"""The metrics of consumer groups: name, what it says, and how it is read from a group's figures and the wall time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.admin.group_port import GroupFigures

Figure = Callable[["GroupFigures", int], int | float]


def _age_s(one: GroupFigures, now_ms: int) -> float:
    return max(now_ms - one.oldest_ms, 0) / 1_000 if one.oldest_ms else 0.0


GROUP_METRICS: Final[tuple[tuple[str, str, Figure], ...]] = (
    (
        "flockmq_group_lag_messages",
        "Records of a consumer group that are not settled, in the partitions that this node leads; at most 200 groups",
        lambda one, _now_ms: one.lag,
    ),
    (
        "flockmq_group_lag_bytes",
        "About how many bytes the logs have from the oldest of these records on",
        lambda one, _now_ms: one.lag_bytes,
    ),
    ("flockmq_group_lag_seconds", "Age of the oldest of these records; take the maximum over nodes", _age_s),
    (
        "flockmq_group_in_flight",
        "Records that members hold, or that wait to be delivered again",
        lambda one, _now_ms: one.in_flight,
    ),
    (
        "flockmq_group_dead_letters",
        "Records that the group gave up since it was made, in the partitions that this node leads",
        lambda one, _now_ms: one.dead,
    ),
    (
        "flockmq_group_redelivered",
        "Deliveries that failed since the group was made: nacked, expired or lost",
        lambda one, _now_ms: one.redelivered,
    ),
)
