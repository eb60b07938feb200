"""Counters since start. Plain numbers that the hot path adds to once per run; metrics and ``$SYS`` read them."""

from __future__ import annotations


class Stats:
    """Every counter only grows."""

    def __init__(self) -> None:
        self.connections_opened = 0
        self.connections_closed = 0
        self.connects_accepted = 0
        self.connects_refused = 0
        self.authentication_failures = 0
        self.takeovers = 0
        self.protocol_errors = 0
        self.keep_alive_timeouts = 0
        self.packet_timeouts = 0
        self.connect_timeouts = 0
        self.strangers_closed = 0
        """Connections closed because too many were not let in yet, or held too many bytes."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.publishes_in_qos0 = 0
        self.publishes_in_qos1 = 0
        self.publishes_in_qos2 = 0
        self.publishes_out_qos0 = 0
        self.publishes_out_qos1 = 0
        self.publishes_out_qos2 = 0
        self.publishes_unmatched = 0
        """Messages that no subscription wanted."""
        self.durable_in = 0
        """Messages for durable topics, on their way into a log."""
        self.durable_stored = 0
        """Messages for durable topics that are stored, as far as their topics' acknowledgements promise."""
        self.durable_refused = 0
        """Messages for durable topics that are certainly not in a log, and whose publishers were told so."""
        self.durable_unknown = 0
        """Messages whose outcome was not known in time."""
        self.captured = 0
        """Messages that were copied into the log of persistent sessions, or are on their way there."""
        self.capture_refused = 0
        """Messages beyond the bytes a second that their namespace may have captured."""
        self.publishes_denied = 0
        """Messages refused by the ACL."""
        self.dropped_slow = 0
        """QoS 0 messages to clients that read too slowly, or larger than they accept."""
        self.dropped_queue = 0
        """QoS 1 and 2 messages for sessions whose queue is full, or that expired there."""
        self.retained_refused = 0
        self.wills_published = 0
        self.delayed_accepted = 0
        self.delayed_published = 0
        self.sessions_expired = 0
        self.subscribes = 0
        self.unsubscribes = 0
