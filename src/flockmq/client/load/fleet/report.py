"""What a fleet tells its observer, once a second and at the end: one line of JSON each."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What a fleet is told."""

    host: str = "127.0.0.1"
    ports: list[int] = msgspec.field(default_factory=lambda: [1883])
    """Of all nodes. The control room stays with the first; devices are spread, and move on when theirs is gone."""
    devices: int = 200
    seconds: float = 30.0
    rate: float = 1_000.0
    """Messages a second of all devices together, about."""
    seed: int = 1
    topic: str = ""
    """Durable topic that keeps what devices measure at QoS 1 and 2; read back in the end. Empty: there is none."""
    api_urls: list[str] = msgspec.field(default_factory=list)
    """Where it is read from, and on if one of them is gone."""
    tokens: dict[str, str] = msgspec.field(default_factory=dict)
    """By URL."""


class Report(msgspec.Struct, kw_only=True):
    """How things stand."""

    seconds: float
    devices: int
    online: int
    published: list[int]
    received: list[int]
    repeated: list[int]
    latency_us_p50: float
    """Of the messages since the last report; in the last report, of all."""
    latency_us_p99: float
    commands: int
    answers: int
    command_us_p50: float
    wills_due: int
    wills_seen: int
    missing: int
    """QoS 1 and 2 under way; in the last report, lost."""
    per_node: list[int] = msgspec.field(default_factory=list)
    """Devices online, by node."""
    nodes_lost: int = 0
    """Times that a device lost its node."""
    excused: int = 0
    """Messages, commands and wills in the hands of a node when it died: there is no promise about those."""
    top: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """The busiest topics since the last report."""
    events: list[str] = msgspec.field(default_factory=list)
    broker: dict[str, str] = msgspec.field(default_factory=dict)
    retained: int = 0
    """Only in the last report: retained statuses that a late subscriber found."""
    stored: int = 0
    """Only in the last report: records that the durable topic has."""
    unstored: int = 0
    """Acknowledged messages that it should have and has not."""
    last: bool = False
    error: str = ""

    @property
    def flawless(self) -> bool:
        """Whether every promise was kept."""
        return (
            not self.error
            and self.missing == 0
            and self.unstored == 0
            and self.repeated[2] == 0
            and self.answers == self.commands
            and self.wills_seen >= self.wills_due
            and self.retained == self.devices
        )
