"""What members of a group say to each other. Values; ``codec.py`` puts them on the wire."""

from __future__ import annotations

from flockmq.raft.configuration import Configuration
from flockmq.raft.entry import Entry


class Message:
    """Any message of a group. ``term`` is the sender's, or the one a pre-vote asks about."""

    def __init__(self, group: int, sender: int, receiver: int, term: int) -> None:
        self.group = group
        self.sender = sender
        self.receiver = receiver
        self.term = term


class VoteRequest(Message):
    """May I lead? With ``pre``: would you let me, if I asked. ``transfer``: the leader itself wants it."""

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        last_index: int,
        last_term: int,
        pre: bool,
        transfer: bool,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.last_index = last_index
        self.last_term = last_term
        self.pre = pre
        self.transfer = transfer


class VoteReply(Message):
    """The answer; to a granted pre-vote ``term`` is the one that was asked about."""

    def __init__(self, group: int, sender: int, receiver: int, term: int, pre: bool, granted: bool) -> None:
        super().__init__(group, sender, receiver, term)
        self.pre = pre
        self.granted = granted


class Append(Message):
    """Entries that follow ``prev_index``; none of them is a question whether the logs agree there."""

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        prev_index: int,
        prev_term: int,
        entries: list[Entry],
        commit: int,
        last_index: int,
        lease_round: int,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.prev_index = prev_index
        self.prev_term = prev_term
        self.entries = entries
        self.commit = commit
        self.last_index = last_index
        """The leader's last entry: what a damaged or empty replica must reach before it may vote."""
        self.lease_round = lease_round


class AppendReply(Message):
    """``ok``: all up to ``index`` is durable here. Else ``index`` was refused and the logs may agree at the hint.

    ``impaired``: this replica lost entries, maybe such that it acknowledged before.
    """

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        ok: bool,
        index: int,
        hint_index: int,
        hint_term: int,
        lease_round: int,
        impaired: bool,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.ok = ok
        self.index = index
        self.hint_index = hint_index
        self.hint_term = hint_term
        self.lease_round = lease_round
        self.impaired = impaired


class Heartbeat(Message):
    """The leader lives. ``quiet``: it will say no more until there is work.

    ``is_news``: it is said between two rounds, because more is committed, and needs no answer.
    """

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        commit: int,
        last_index: int,
        lease_round: int,
        quiet: bool,
        is_news: bool = False,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.commit = commit
        self.last_index = last_index
        self.lease_round = lease_round
        self.quiet = quiet
        self.is_news = is_news


class HeartbeatReply(Message):
    """Heard. What is here of the leader's log: ``matched`` in memory, ``durable`` safe, ``commit`` decided."""

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        lease_round: int,
        matched: int,
        durable: int,
        commit: int,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.lease_round = lease_round
        self.matched = matched
        self.durable = durable
        self.commit = commit


class SnapshotMeta:
    """What a snapshot stands for: state with all entries up to ``applied``, for a log that begins behind ``index``.

    Entries between the two are retained messages. They are sent as appends like any others, only not applied again; so
    a snapshot holds state alone, however long the log is.
    """

    def __init__(
        self,
        index: int,
        term: int,
        next_offset: int,
        configuration: Configuration,
        applied: int,
        applied_term: int,
        size: int = 0,
        checksum: int = 0,
    ) -> None:
        self.index = index
        self.term = term
        self.next_offset = next_offset
        self.configuration = configuration
        """As of ``applied``."""
        self.applied = applied
        self.applied_term = applied_term
        self.size = size
        self.checksum = checksum

    def is_same(self, other: SnapshotMeta) -> bool:
        """Whether a transfer of one can go on with the bytes of the other."""
        return (
            self.applied == other.applied
            and self.applied_term == other.applied_term
            and self.size == other.size
            and self.checksum == other.checksum
        )


class Checkpoint:
    """State of the machine behind a group after entry ``index``: what a restart or a late follower begins with."""

    def __init__(self, index: int, term: int, configuration: Configuration, size: int = 0, checksum: int = 0) -> None:
        self.index = index
        self.term = term
        self.configuration = configuration
        self.size = size
        self.checksum = checksum


class SnapshotChunk(Message):
    """A piece of a snapshot; the last one when ``position + len(data) == meta.size``."""

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        meta: SnapshotMeta,
        position: int,
        data: bytes,
        last_index: int,
        lease_round: int,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.meta = meta
        self.position = position
        self.data = data
        self.last_index = last_index
        self.lease_round = lease_round


class SnapshotReply(Message):
    """``position`` bytes of the snapshot up to ``index`` are here, go on from there; or all of it is durable."""

    def __init__(
        self, group: int, sender: int, receiver: int, term: int, index: int, position: int, is_durable: bool
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.index = index
        self.position = position
        self.is_durable = is_durable


class TimeoutNow(Message):
    """Campaign at once: I want you to lead."""


class Forward(Message):
    """A run of messages for the leader of one term only; ``senders.py`` has the rules.

    The batch itself says which node sent it, since which start, and as which run. ``previous`` is the run before it
    that is, or may be, in the log. ``term`` 0: its sender only asks which node leads.
    """

    def __init__(
        self, group: int, sender: int, receiver: int, term: int, previous: int, attempt: int, batch: bytes
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.previous = previous
        self.attempt = attempt
        self.batch = batch


class ForwardReply(Message):
    """What became of an attempt to forward a run. ``term`` is that of the replica which answers."""

    def __init__(
        self,
        group: int,
        sender: int,
        receiver: int,
        term: int,
        boot: int,
        sequence: int,
        attempt: int,
        outcome: int,
        value: int,
    ) -> None:
        super().__init__(group, sender, receiver, term)
        self.boot = boot
        self.sequence = sequence
        self.attempt = attempt
        self.outcome = outcome
        self.value = value
