"""SASLprep (RFC 4013): user names and passwords that look alike become alike, and what can't be typed is refused.

Unassigned code points are refused as in a stored string: a password that a later Unicode version would prepare in
another way must not be set today.
"""

from __future__ import annotations

import stringprep
import unicodedata
from typing import Final

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """The prepared text; ValueError says why it can't be one."""
    if text.isascii():
        if not text.isprintable():
            raise ValueError("it holds a control character")
        return text
    mapped = (" " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c))
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(mapped))
    for character in prepared:
        if any(prohibited(character) for prohibited in _PROHIBITED):
            raise ValueError(f"it holds U+{ord(character):04X}, which is not allowed there")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """Text of both directions would look like another one (RFC 3454, section 6)."""
    if not any(stringprep.in_table_d1(character) for character in text):
        return
    if any(stringprep.in_table_d2(character) for character in text):
        raise ValueError("it mixes right-to-left and left-to-right text")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("right-to-left text must begin and end with a right-to-left character")
