from __future__ import annotations

import pytest

from flockmq.security.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        # RFC 4013, section 3
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("", ""),
    ],
)
def test_what_becomes_of_text(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize(
    "text", ["\u0007", "\u0627\u0031", "a\u0627", "\ud800", "\ue000", "é\u200e", "\u0221", "a\x7f"]
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it |right-to-left"):
        saslprep(text)
