"""Errors as people and peers see them.

``FlockError`` carries one plain sentence: what happened, why, and what to do. ``RemoteProtocolError`` is raised
when the other side broke MQTT; it carries the reason code that goes on the wire and the text that goes into the
reason string and the log.
"""

from __future__ import annotations


class FlockError(Exception):
    """Something a person can act on; ``str(error)`` is the sentence to show."""


class ConfigError(FlockError):
    """The configuration can't be used; the broker refuses to start."""


class RemoteProtocolError(FlockError):
    """The peer sent what MQTT does not allow."""

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code
