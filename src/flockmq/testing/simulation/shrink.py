"""Makes a failing schedule small: removes faults as long as the run still breaks the same rule.

Delta debugging: try without the first half, the second, then quarters, and so on; what remains is a schedule of which
no single fault can be left out. Each try is a whole run, so there is a most number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.testing.simulation.plan import Fault

TRIES_MAX: Final = 400


def shrink(faults: list[Fault], still_fails: Callable[[list[Fault]], bool], tries_max: int = TRIES_MAX) -> list[Fault]:
    """The smallest list of faults found that ``still_fails``."""
    tries = 0
    pieces = 2
    while faults and tries < tries_max:
        size = -(-len(faults) // pieces)
        for start in range(0, len(faults), size):
            fewer = faults[:start] + faults[start + size :]
            tries += 1
            if still_fails(fewer):
                faults = fewer
                pieces = max(pieces - 1, 2)
                break
            if tries >= tries_max:
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(faults))
    return faults
