"""Text of clients in quotation marks, on one line: a basic string of TOML.

Filters and names of rules may hold line breaks and what a terminal takes for commands. Written as they are they would
look like lines of the file itself.
"""

from __future__ import annotations


def quoted(text: str) -> str:
    """The text in quotation marks. What a terminal or an editor would not show as it is, is escaped."""
    return '"' + "".join(_escaped(one) for one in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
