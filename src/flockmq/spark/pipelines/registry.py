"""Which pipelines there are. Each is a module here with a ``PIPELINE``; its description needs no Spark.

```
 MODULES --> find("archive") --> archive.PIPELINE: name, summary, parameters     (flockmq pipeline list, --help)
                                              `--> run(job) -> Summary           (flockmq pipeline run)
```
A module imports pyspark inside the functions that use it, never at its top: a test holds it to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.spark.pipelines.parameters import Parameter
    from flockmq.spark.pipelines.run import Job
    from flockmq.spark.pipelines.summary import Summary

MODULES: Final = ("archive", "rollup", "traffic", "anomalies", "replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A PySpark program with parameters."""

    name: str
    summary: str
    """What the pipeline does, in one sentence."""
    parameters: tuple[Parameter, ...]
    run: Callable[[Job], Summary]
    example: str = ""
    """A command line that makes sense."""
    is_prompt: bool = False
    """How soon it answers counts for more than how much it carries."""


def pipelines() -> list[Pipeline]:
    """All of them, in the order of the list above."""
    return [_load(name) for name in MODULES if find_spec(f"{__package__}.{name}") is not None]


def find(name: str) -> Pipeline:
    """The pipeline of this name."""
    if name in MODULES and find_spec(f"{__package__}.{name}") is not None:
        return _load(name)
    near = get_close_matches(name, MODULES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(MODULES)}."
    raise FlockError(f"There is no pipeline {name!r}; {hint}")


def _load(name: str) -> Pipeline:
    pipeline = import_module(f"{__package__}.{name}").PIPELINE
    assert isinstance(pipeline, Pipeline)
    return pipeline
