"""Which build runs: the hot modules compiled with mypyc, or the same files as plain Python."""

from __future__ import annotations

from typing import Literal


def build_kind() -> Literal["compiled", "pure"]:
    """Look at where the hottest module was loaded from."""
    from flockmq.mqtt import scan

    return "pure" if (scan.__file__ or "").endswith(".py") else "compiled"
