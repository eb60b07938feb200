"""Tokens: one delivery of one record, as text that any node understands."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

_TOKEN: Final = struct.Struct("<QQQIQ")
CHARACTERS: Final = 48


class Token(NamedTuple):
    """What a token names."""

    partition: int
    group: int
    attempt: int
    generation: int
    offset: int


def token_text(token: Token) -> str:
    """For a client; 48 letters, digits, ``-`` and ``_``."""
    return urlsafe_b64encode(_TOKEN.pack(*token)).decode()


def read_token(text: str) -> Token | None:
    """Read ``token_text``; None: this is no token."""
    if len(text) != CHARACTERS or not text.isascii():
        return None
    try:
        data = urlsafe_b64decode(text)
    except ValueError:
        return None
    if len(data) != _TOKEN.size:
        return None
    token = Token._make(_TOKEN.unpack(data))
    return token if token.offset < 1 << 62 else None
