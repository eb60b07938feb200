"""Everything a replica of one group remembers. No decisions: those are in the modules beside this one.

```
 election   following   replication   reads   membership   snapshots   transfer   quiet   health
      \\          |            |          |         |            |          |        |      /
       `---------------- roles (leader or not), commits (what is decided) ----------------'
                                          |
                                      RaftState
                                          |
                        persistence (what to write first, what may be said then)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.batch import CONFIG, BatchView
from flockmq.raft.configuration import decode_configuration
from flockmq.raft.log_view import RaftLog

if TYPE_CHECKING:
    import random

    from flockmq.raft.clock import TickClock
    from flockmq.raft.configuration import Configuration
    from flockmq.raft.messages import Checkpoint, Message, SnapshotMeta
    from flockmq.raft.ports import LogReader, SnapshotSink, SnapshotSource
    from flockmq.raft.progress import Progress
    from flockmq.raft.settings import RaftSettings

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3
ROLE_NAMES: Final = ("follower", "pre-candidate", "candidate", "leader")

SOUND: Final = 0
DAMAGED: Final = 1
"""Entries were lost that may have been acknowledged; term and vote are known."""
FORGOTTEN: Final = 2
"""Even the vote may be lost, or this replica is new and was never anything."""
HEALTH_NAMES: Final = ("sound", "damaged", "forgotten")

PRIORITY_MAX: Final = 4
"""Replicas further down the order of preference wait no longer than this one before they campaign."""


class HardState:
    """What must survive a crash besides the entries (Raft paper, figure 2: persistent state)."""

    def __init__(self, term: int = 0, vote: int = 0, health: int = SOUND) -> None:
        self.term = term
        self.vote = vote
        self.health = health


class Stored:
    """What a replica finds in its store when it starts."""

    def __init__(self, log: LogReader, checkpoint: Checkpoint, hard: HardState, commit: int = 0) -> None:
        self.log = log
        self.checkpoint = checkpoint
        """What the applied state stands for; all after it is replayed from the log."""
        self.hard = hard
        self.commit = commit
        """Up to which index entries are known to be committed; 0: up to the checkpoint."""


class PendingRead:
    """A read that waits until this leader is confirmed."""

    def __init__(self, number: int, index: int, lease_round: int) -> None:
        self.number = number
        self.index = index
        self.lease_round = lease_round


class ReadAnswer:
    """A read may be served once ``index`` is applied; -1: not here, ask the leader."""

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        self.index = index


class Round:
    """When a round of heartbeats began, by every measure there is."""

    def __init__(self, number: int, raw: int, ticks: int, jumps: int) -> None:
        self.number = number
        self.raw = raw
        self.ticks = ticks
        self.jumps = jumps


class InFlight:
    """A Ready that is being written: how far the log reaches when it is."""

    def __init__(self, number: int, handed: int, term: int) -> None:
        self.number = number
        self.handed = handed
        self.term = term


class Promise:
    """A message that may be sent once all Readies up to ``number`` are durable."""

    def __init__(self, number: int, message: Message) -> None:
        self.number = number
        self.message = message


class Reach:
    """To which nodes the host can send now. All groups of a host share one; only the host changes it."""

    def __init__(self) -> None:
        self.unreachable: set[int] = set()
        """Nodes that the host has not heard from."""
        self.congested: set[int] = set()
        """Nodes whose link is full: no entries are sent there for now."""


class RaftState:
    """The replica's memory; see the module."""

    # As follower.
    role: int = FOLLOWER
    leader: int = 0
    """Id of the node that leads; 0: not known."""
    preferred: int = 0
    """The node that should lead; 0: any."""
    campaign_wait: int = 0
    campaign_at: int = 0
    matched: int = 0
    """Up to here the log is known to be the leader's, in this term; in memory, durable or not."""
    lease_round_seen: int = 0
    acknowledge: int = -1
    """Tell the leader that all up to here is durable, once it is; -1 when there is nothing to tell."""
    is_answer: bool = True
    """Whether the message at hand was sent after its sender had heard from this life of the node."""
    refill_term: int = 0
    """The term of the leader that refills this impaired replica."""
    refill_to: int = 0
    """An impaired replica is whole again once its log reaches what that leader had when they met."""

    # As leader.
    term_start: int = 0
    """Index of the first entry of this leader's term."""
    heartbeat_at: int = 0
    quorum_check_at: int = 0
    commit_at_check: int = 0
    uncommitted_bytes: int = 0
    transfer_to: int = 0
    transfer_until: int = 0
    lease_is_safe: bool = True
    """False once this leader told a node to campaign at once: the others will vote for it, loyal or not."""
    round: int = 0
    round_confirmed: int = 0
    """The latest round that a quorum has answered."""
    round_was_spared: bool = False
    """Some members were not told of the latest round; see ``reads.begin_round``."""
    round_is_due: bool = False
    """A read waits for a round that has not begun."""

    # What comes out next.
    quiet: bool = False
    held_back: bool = False
    """Entries were not sent because a link was full."""
    hard_is_dirty: bool = False
    dirty: bool = True
    """Something may have to be taken out by ``take_ready``."""
    restores: bool = False
    """The snapshot to install is newer than what was applied here."""
    number: int = 0
    barrier: int = 0
    """The Ready that rewrote entries which an earlier one had given out."""

    def __init__(
        self,
        group: int,
        node: int,
        settings: RaftSettings,
        clock: TickClock,
        rng: random.Random,
        stored: Stored,
        priority: int,
        source: SnapshotSource | None,
        sink: SnapshotSink | None,
        reach: Reach,
    ) -> None:
        self.group = group
        self.node = node
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.source = source
        self.sink = sink
        self.priority = min(max(priority, 0), PRIORITY_MAX)

        # Survives a crash.
        hard = stored.hard
        self.term = hard.term
        self.vote = hard.vote
        self.health = hard.health
        self.durable_term = hard.term
        """The term that a crash would leave this replica with."""
        self.log = RaftLog(stored.log, settings.tail_bytes_max)

        # What is decided.
        self.commit = min(max(stored.commit, stored.checkpoint.index), self.log.last_index)
        self.applied = stored.checkpoint.index
        """Entries given out to be applied."""
        self.configurations = configurations_of(self.log, stored.checkpoint)
        """(index, configuration) of the last committed one and all after it. The last one counts."""

        self.votes: dict[int, bool] = {}
        self.loyal_until = clock.elapsed + settings.election_ms
        """Until then this replica votes for no other leader; see ``election.is_loyal``."""
        self.progress: dict[int, Progress] = {}
        self.uncommitted: list[tuple[int, int]] = []
        """(index, bytes) of own entries that are not committed."""
        self.rounds: list[Round] = []
        """The round that was confirmed last, and all after it."""
        self.early_reads: list[int] = []
        """Reads that came before this leader knew what is committed."""
        self.reads: list[PendingRead] = []
        self.work_at = clock.elapsed
        """When there was something to do last."""
        self.unreachable = reach.unreachable
        self.congested = reach.congested
        self.outbox: list[Message] = []
        self.promises: list[Message] = []
        """Not to be sent before what is remembered now is durable."""
        self.waiting: list[Promise] = []
        self.answers: list[ReadAnswer] = []
        self.install: SnapshotMeta | None = None
        self.in_flight: list[InFlight] = []

    @property
    def configuration(self) -> Configuration:
        """The members of the group: the latest configuration in the log, committed or not (Raft paper, section 6)."""
        return self.configurations[-1][1]

    @property
    def configuration_index(self) -> int:
        """Where in the log that configuration stands."""
        return self.configurations[-1][0]

    def send(self, message: Message) -> None:
        """Send at once."""
        self.outbox.append(message)
        self.dirty = True

    def promise(self, message: Message) -> None:
        """Send when all that is remembered now has become durable."""
        self.promises.append(message)
        self.dirty = True


def configurations_of(log: RaftLog, checkpoint: Checkpoint) -> list[tuple[int, Configuration]]:
    """The configuration of the checkpoint and all that the log has after it."""
    found = [(checkpoint.index, checkpoint.configuration)]
    index = checkpoint.index + 1
    while index <= log.last_index:
        for entry in log.read(index, log.last_index + 1, log.tail_bytes_max):
            if entry.kind == CONFIG:
                found.append((entry.index, decode_configuration(BatchView(entry.data).body())))
            index += 1
    return found
