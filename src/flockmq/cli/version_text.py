"""What ``flockmq version`` says; apart from the command, so that saying it loads nothing else."""

from __future__ import annotations

import json
import platform

from flockmq import __version__
from flockmq.server.build import build_kind


def version_text(*, as_json: bool) -> str:
    """Version, build and Python, for people or programs."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if not as_json:
        return f"flockmq {__version__} ({build_kind()}, {python})"
    found = {"version": __version__, "build": build_kind(), "python": python, "platform": platform.platform()}
    return json.dumps(found, indent=2)
