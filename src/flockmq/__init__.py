"""FlockMQ: a clustered MQTT broker whose durable topics are replicated logs that Spark reads directly.

The hot packages may be installed compiled. ``FLOCKMQ_PURE=1`` in the environment makes this process run their
Python source instead, so that both ways can be tested from one installation.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__version__ = "0.1.0"


class _SourceOnlyFinder:
    """Finds the Python source of ``flockmq.*`` where a compiled module of the same name lies beside it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Look for ``name`` among source files only."""
        if not name.startswith("flockmq.") or path is None:
            return None
        for entry in path:
            spec = FileFinder(entry, (SourceFileLoader, [".py"])).find_spec(name, target)
            if spec is not None:
                return spec
        return None


if os.environ.get("FLOCKMQ_PURE") == "1":
    sys.meta_path.insert(0, _SourceOnlyFinder)
