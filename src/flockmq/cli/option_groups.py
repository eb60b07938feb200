"""Options that several commands share, as one parameter: a dataclass whose fields are the options.

```
 @grouped
 def pub(*, broker: BrokerOptions, qos: Qos = 0)   -->   typer sees: --host --port ... --qos
                                                         pub gets:   broker=BrokerOptions(host=..., port=...), qos=...
```
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: each field of a parameter that is a dataclass is an option of its own."""
    hints = get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            parameters.update(_options(kind))
        else:
            parameters[name] = parameter.replace(annotation=kind)

    @wraps(command)
    def run(**values: object) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return run


def _options(kind: type[Any]) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        found[field.name] = inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )
    return found
