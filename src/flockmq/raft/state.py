"""Everything a replica of one group remembers. No decisions: those are in the modules beside this one.

```
 election   following   replication   reads   membership   snapshots   transfer   quiet   health
      \\          |            |          |         |            |          |        |      /
       `---------------- roles (who am I), commits (what is decided) ---------------------'
                                          |
                                      RaftState
                                          |
                        persistence (what to write first, what may be said then)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from flockmq.raft.clock import TickClock
    from flockmq.raft.configuration import Configuration
    from flockmq.raft.log_view import RaftLog
    from flockmq.raft.messages import Message, SnapshotMeta
    from flockmq.raft.ports import SnapshotSink, SnapshotSource
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


class RaftState:
    """The replica's memory; see the module."""

    def __init__(
        self,
        group: int,
        node: int,
        settings: RaftSettings,
        clock: TickClock,
        rng: random.Random,
        log: RaftLog,
        hard: HardState,
        configurations: list[tuple[int, Configuration]],
        commit: int,
        applied: int,
        priority: int,
        source: SnapshotSource | None,
        sink: SnapshotSink | None,
    ) -> None:
        self.group = group
        self.node = node
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.source = source
        self.sink = sink

        # Survives a crash.
        self.term = hard.term
        self.vote = hard.vote
        self.health = hard.health
        self.hard_is_dirty = False
        self.durable_term = hard.term
        """The term a crash would leave us with."""
        self.log = log

        # What is decided.
        self.commit = commit
        self.applied = applied
        """Entries given out to be applied."""
        self.configurations = configurations
        """(index, configuration) of the last committed one and all after it. The last one counts."""

        # Who leads.
        self.role = FOLLOWER
        self.leader = 0
        self.priority = min(max(priority, 0), PRIORITY_MAX)
        self.preferred = 0
        """The node that should lead; 0: any."""
        self.votes: dict[int, bool] = {}
        self.loyal_until = clock.elapsed + settings.election_ms
        """Until then nobody else may be elected with our help; see ``election.is_loyal``."""
        self.campaign_wait = 0
        self.campaign_at = 0

        # As follower.
        self.matched = 0
        """Up to here our log is known to be the leader's, in this term; in memory, durable or not."""
        self.lease_round_seen = 0
        self.acknowledge = -1
        """Tell the leader that all up to here is durable, once it is; -1 when there is nothing to tell."""
        self.is_answer = True
        """Whether the message at hand was said after its sender had heard from this life of the node."""
        self.refill_term = 0
        self.refill_to = 0
        """An impaired replica is whole again when it has what the leader of this term had when they met."""

        # As leader.
        self.progress: dict[int, Progress] = {}
        self.term_start = 0
        """Index of the first entry of this leader's term."""
        self.heartbeat_at = 0
        self.quorum_check_at = 0
        self.commit_at_check = 0
        self.uncommitted: list[tuple[int, int]] = []
        """(index, bytes) of own entries that are not committed."""
        self.uncommitted_bytes = 0
        self.transfer_to = 0
        self.transfer_until = 0
        self.lease_is_safe = True
        """False once somebody was told to campaign at once: the others will vote for it, loyal or not."""
        self.round = 0
        self.round_confirmed = 0
        """The latest that a quorum has answered."""
        self.rounds: list[Round] = []
        """That one, and all after it."""
        self.round_was_spared = False
        """Some members were not told of the latest round; see ``reads.begin_round``."""
        self.round_is_due = False
        """A read waits for a round that has not begun."""
        self.early_reads: list[int] = []
        """Came before this leader knew what is committed."""
        self.reads: list[PendingRead] = []

        # Quiet.
        self.quiet = False
        self.work_at = clock.elapsed
        """When there was something to do last."""
        self.unreachable: set[int] = set()
        """Nodes that the host has not heard from. Shared by all groups of a host, changed by it alone."""
        self.congested: set[int] = set()
        """Nodes whose link is full: no entries are sent there for now. Shared likewise."""
        self.held_back = False
        """Something was not sent because of that."""

        # What comes out next.
        self.dirty = True
        """Something may have to be taken out by ``take_ready``."""
        self.outbox: list[Message] = []
        self.promises: list[Message] = []
        """Not to be sent before what is remembered now is durable."""
        self.waiting: list[Promise] = []
        self.answers: list[ReadAnswer] = []
        self.install: SnapshotMeta | None = None
        self.restores = False
        """Its state is newer than what was applied here."""
        self.number = 0
        self.barrier = 0
        """The Ready that rewrote entries which an earlier one had given out."""
        self.in_flight: list[InFlight] = []

    @property
    def configuration(self) -> Configuration:
        """Who is in the group: the latest configuration in the log, committed or not (Raft paper, section 6)."""
        return self.configurations[-1][1]

    @property
    def configuration_index(self) -> int:
        """Where in the log it stands."""
        return self.configurations[-1][0]

    def send(self, message: Message) -> None:
        """Send at once."""
        self.outbox.append(message)
        self.dirty = True

    def promise(self, message: Message) -> None:
        """Send when all that is remembered now has become durable."""
        self.promises.append(message)
        self.dirty = True
