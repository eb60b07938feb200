"""What the commands on consumer groups share: arguments, ages, payloads for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.usage import UsageError

if TYPE_CHECKING:
    from flockmq.admin.model import UserProperty

GroupArgument = Annotated[str, typer.Argument(metavar="NAME", help="The group's name.")]
CountOption = Annotated[int, typer.Option("-n", "--count", min=1, max=1_000, help="Most records.")]
# `-n` is the count here, as with head and tail; the namespace has only its long name.
LongNamespaceOption = Annotated[str, typer.Option("--namespace", metavar="N", help="The namespace.")]
PAYLOAD_CHARACTERS_MAX: Final = 200


def parse_age(text: str, option: str) -> int:
    """Milliseconds of ``30s`` or ``1m``."""
    from flockmq.config.units import MILLISECONDS, parse_number

    if text.strip().isdigit() and text.strip() != "0":
        raise UsageError(f"{option} can't be {text!r}: name a unit, like {text.strip()}s or {text.strip()}ms.")
    try:
        return parse_number(text, MILLISECONDS)
    except ValueError as error:
        raise UsageError(f"{option} can't be {text!r}: {error}.") from None


def payload_text(payload: str | None, encoded: str | None) -> str:
    """A payload in one line of a table."""
    if payload is None:
        return f"base64:{(encoded or '')[:PAYLOAD_CHARACTERS_MAX]}"
    return payload if len(payload) <= PAYLOAD_CHARACTERS_MAX else f"{payload[:PAYLOAD_CHARACTERS_MAX]}..."


def properties_text(properties: list[UserProperty]) -> str:
    """User properties in one line."""
    return ", ".join(f"{one.name}={one.value}" for one in properties)
