"""Everything the broker remembers, in one place. No decisions: those are in the modules beside this one.

```
 connecting   subscribing   publishing   acknowledging   congestion   delaying   sys_topics
      \\            |             |              |             |            |           /
       `--------- lifecycle (detach, end, wills) -------------------------------------'
                                       |
                                   NodeState
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.node.bans import BanList
from flockmq.node.events import EventList
from flockmq.node.ports import Alone, OpenGate
from flockmq.node.resuming import Resumes
from flockmq.node.strangers import Strangers
from flockmq.node.turns import Turns
from flockmq.routing.retained import RetainedStore
from flockmq.routing.table import SubscriptionTable
from flockmq.session.space import Spaces
from flockmq.session.stats import Stats
from flockmq.session.timers import TimerWheel

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.node.delaying import Delayed
    from flockmq.node.ports import BrokerPorts, Gate, Identify
    from flockmq.node.settings import BrokerSettings, Limits
    from flockmq.session.bounds import Bounds
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session

# Kinds of timers.
CONNECTION_TIMER: Final = 1
"""Connect timeout, then keep alive."""
AUTHORITY_TIMER: Final = 2
"""The client's credentials (a token) expire."""
SESSION_TIMER: Final = 3
WILL_TIMER: Final = 4
DELAYED_TIMER: Final = 5
SYS_TIMER: Final = 6
SWEEP_TIMER: Final = 7
CONGESTION_TIMER: Final = 8
PACKET_TIMER: Final = 9
"""The rest of a packet that has begun."""
RESUME_TIMER: Final = 10
"""Clients wait to resume their sessions."""


class Reviews:
    """Sessions whose subscriptions are still to be judged by new rules."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.identify: Identify | None = None
        self.pending: object = None
        """The changes that are not reviewed yet (a Review)."""
        self.due_at = 0


class NodeState:
    """The node's memory; see the module."""

    def __init__(
        self,
        settings: BrokerSettings,
        gate: Gate,
        rng: random.Random,
        now: int,
        wall_ms: int,
        finish: Callable[[Connection, int], None],
        node_id: int,
        ports: BrokerPorts | None,
    ) -> None:
        """``ports``: the parts around the broker; None: this node is alone.

        ``finish`` processes a connection's bytes that wait for a turn."""
        self.settings = settings
        self.topic_levels_max = settings.limits.topic_levels_max
        """Names in the table of plans were checked against this limit."""
        self.finish = finish
        self.gate = gate
        self.gate_is_open = type(gate) is OpenGate  # a subclass may well say no
        self.ports: BrokerPorts = ports if ports is not None else Alone()
        self.rng = rng
        self.started_at = now
        self.now = now
        """The latest time that a driver passed in."""
        self.wall_offset_ms = wall_ms - now
        self.stopping = False
        self.moving = False
        """This node moves to another cluster: it lets no client in."""
        self.log_connections = True
        self.connections: dict[int, Connection] = {}
        self.bounds: dict[Limits, Bounds] = {}
        """Those of strangers, for each set of limits that a listener has."""
        self.turns = Turns()
        self.strangers = Strangers(settings.strangers_max, settings.strangers_bytes_max, settings.connections_max)
        self.resumes = Resumes(settings.resumes_per_s_max, now)
        self.next_connection = 0
        self.dirty: list[Connection] = []
        self.sessions: dict[str, Session] = {}
        self.sessions_max = settings.sessions_max or 1 << 62
        self.table = SubscriptionTable(
            settings.plan_cache_max, settings.shared_strategy, rng, node_id if ports is not None else 0
        )
        self.retained = RetainedStore(
            settings.retained_messages_max,
            settings.retained_bytes_max,
            self.wall_offset_ms,
            settings.retained_tombstone_s * 1000,
            node_id,
        )
        self.timers = TimerWheel(now)
        self.bans = BanList()
        self.events = EventList()
        self.stats = Stats()
        self.delayed: dict[int, Delayed] = {}
        self.delayed_bytes = 0
        self.spaces = Spaces()
        self.reviews = Reviews()
        self.online = 0
        """Sessions with a connection."""
        self.dirty_peers: list[Connection] = []
        """Links to other nodes that have bytes to send in this loop turn."""
