"""Makes any value safe to put on one line of a log or a terminal.

A client chooses its id, its topics and its user name, so they may hold line breaks, terminal commands or characters
that reorder text. None of these get through: what is not printable appears escaped, what is long is cut.
"""

from __future__ import annotations

from typing import Final

VALUE_CHARACTERS_MAX: Final = 512
"""Longest value that is written; a topic may have 65,535 bytes, and a log line is not the place for them."""
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def as_text(value: object) -> str:
    """Text of a value, cut to VALUE_CHARACTERS_MAX; bytes are read as UTF-8 where they are."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if len(text) > VALUE_CHARACTERS_MAX:
        return f"{text[:VALUE_CHARACTERS_MAX]}...({len(text)} characters)"
    return text


def printable(text: str) -> str:
    """The text with every character that is not printable (also invisible and reordering ones) escaped."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
