"""Why a socket or a TLS handshake failed, in words: some errors of the operating system and of asyncio have no text."""

from __future__ import annotations

from typing import Final

_WORDS: Final[tuple[tuple[type[OSError], str], ...]] = (
    (ConnectionResetError, "the other side ended the connection in the middle of the handshake"),
    (ConnectionAbortedError, "the connection was ended in the middle of the handshake"),
    (BrokenPipeError, "the other side ended the connection in the middle of the handshake"),
    (TimeoutError, "the other side took too long"),
)


def cause(error: OSError) -> str:
    """The text of an error without its full stop; words for one that has none."""
    text = str(error).strip().rstrip(".")
    if text and text != "None":
        return text
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words
    return f"the system says only {type(error).__name__}"
