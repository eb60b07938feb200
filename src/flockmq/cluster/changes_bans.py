"""Commands about bans. One that has run out is removed by the wall time of the next ban, the same on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flockmq.cluster.checks import BAN_REASON_CHARACTERS_MAX, BAN_VALUE_CHARACTERS_MAX, BANS_MAX, check_number
from flockmq.cluster.commands import INVALID, LIMIT, NOT_FOUND, RefusedError
from flockmq.cluster.model import BAN_KINDS, BanRecord

if TYPE_CHECKING:
    from flockmq.cluster.commands import Ban, Unban
    from flockmq.cluster.tables import Tables


def ban(tables: Tables, command: Ban, wall_ms: int) -> BanRecord:
    """Keep a client id, user name or address out; bans that have run out make room."""
    if command.kind not in BAN_KINDS:
        raise RefusedError(INVALID, f"There are no bans of kind {command.kind[:40]!r}; kinds are {_KINDS_TEXT}.")
    _check(f"value of a ban of a {command.kind}", command.value, BAN_VALUE_CHARACTERS_MAX)
    _check("reason of a ban", command.reason, BAN_REASON_CHARACTERS_MAX)
    check_number("end of a ban", command.until_ms, 0)
    if not command.value:
        raise RefusedError(INVALID, f"A ban of a {command.kind} needs a value; name the {command.kind}.")
    if command.until_ms and command.until_ms <= wall_ms:
        raise RefusedError(INVALID, "The end of the ban is in the past; name a later one, or none.")
    key = (command.kind, command.value)
    kept = {each: known for each, known in tables.bans.items() if not 0 < known.until_ms <= wall_ms}
    if key not in kept and len(kept) >= BANS_MAX:
        raise RefusedError(
            LIMIT, f"There are {BANS_MAX} bans, which is the most; remove some, or block addresses in a firewall."
        )
    record = BanRecord(command.kind, command.value, command.reason, wall_ms, command.until_ms)
    kept[key] = record
    tables.bans = kept
    tables.versions = replace(tables.versions, bans=tables.index)
    return record


def unban(tables: Tables, command: Unban) -> BanRecord:
    """Lift a ban."""
    known = tables.bans.pop((command.kind, command.value), None)
    if known is None:
        raise RefusedError(
            NOT_FOUND,
            f"There is no ban of {command.kind[:40]} {command.value[:128]!r}; list the bans to see those there are.",
        )
    tables.versions = replace(tables.versions, bans=tables.index)
    return known


def _check(what: str, text: str, characters_max: int) -> None:
    """Client ids and user names may hold any character, so only the length and the encoding are checked."""
    if len(text) > characters_max:
        raise RefusedError(INVALID, f"The {what} has at most {characters_max} characters; shorten it.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(INVALID, f"The {what} holds half a character; write it as proper Unicode.") from None


_KINDS_TEXT = ", ".join(BAN_KINDS)
