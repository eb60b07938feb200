from __future__ import annotations

import ssl

import pytest

from flockmq.drivers.causes import cause


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionResetError(), "the other side ended the connection in the middle of the handshake"),
        (ConnectionResetError(104, "Connection reset by peer"), "[Errno 104] Connection reset by peer"),
        (TimeoutError(), "the other side took too long"),
        (OSError(), "the system says only OSError"),
        (ssl.SSLError(1, "certificate verify failed."), "certificate verify failed"),
    ],
)
def test_every_error_has_words(error: OSError, text: str) -> None:
    assert cause(error) == text
