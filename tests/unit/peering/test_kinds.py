"""The table of the module lists exactly the kinds of calls that there are."""

from __future__ import annotations

import re

from flockmq.peering import kinds


def test_the_table_is_complete() -> None:
    listed = {name: int(number) for number, name in re.findall(r"^\| (\d+) \| (\w+) \|", kinds.__doc__ or "", re.M)}
    defined = {
        name.removesuffix("_CALL"): number
        for name, number in vars(kinds).items()
        if name.isupper() and isinstance(number, int)
    }
    assert listed == defined
