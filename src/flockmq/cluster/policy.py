"""What the leader of group 0 decides about the cluster's nodes. Asked every second or so; says what to do next.

```
 gossip: nodes alive, dead, left         --+
 cluster state: nodes known, since when  --+-> decide --> commands       nodes seen, dead, left, replaced, forgotten
 group 0: voters, learners caught up     --+          `-> configuration  the next step for the voters of group 0
                                                      `-> gone           nodes whose replicas go elsewhere
```
Voters of group 0: 1, 2, 3, 3, then 5 of the core nodes. A newcomer first follows as a learner and votes when it has
caught up. A voter that died keeps its seat for a while, in case it only restarts; then a spare core node takes it, and
after ``autoclean`` it loses it even without a successor. No step is taken that the voters alive could not
decide in the old *and* in the new configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import Command, ForgetNode, NodeSeen, NodeStateChanged, ReplaceNode
from flockmq.cluster.model import ALIVE, CORE, DEAD, LEFT, NodeRecord
from flockmq.raft.configuration import Configuration

if TYPE_CHECKING:
    from flockmq.cluster.tables import Tables

AUTOCLEAN_MS: Final = 300_000
"""How long a node may be dead, unless an operator sets it otherwise, before its replicas are rebuilt elsewhere."""
VOTERS_MAX: Final = 5
SEATS: Final = (0, 1, 2, 3, 3, 5)
"""How many of so many core nodes vote in group 0; of more than five, five."""
_COMMANDS_MAX: Final = 32
"""Of one decision; the rest waits for the next."""


class PolicySettings:
    """How patient the leader is."""

    def __init__(
        self,
        autoclean_ms: int = AUTOCLEAN_MS,
        seat_kept_ms: int = 30_000,
        unseen_ms: int = 30_000,
        *,
        autoclean: bool = True,
    ) -> None:
        self.autoclean_ms = autoclean_ms
        """After this long, a dead node is taken for lost: its replicas are rebuilt elsewhere."""
        self.seat_kept_ms = seat_kept_ms
        """A dead voter of group 0 keeps its seat so long, even if a spare node could take it: longer than a restart."""
        self.unseen_ms = unseen_ms
        """A new leader waits so long for news of nodes that it never heard of itself."""
        self.autoclean = autoclean
        """Off: dead nodes are kept for ever, until an operator removes them."""


@dataclass(slots=True)
class SeenMember:
    """A node as gossip and its own announcements show it."""

    node_id: int
    name: str
    host: str
    port: int
    state: int = ALIVE
    """ALIVE (a suspect is alive still), DEAD or LEFT: the words of cluster state, not those of gossip."""
    role: int = CORE
    api: str = ""
    zone: str = ""
    version: str = ""
    is_leaving: bool = False
    """The node runs, and votes, until nothing depends on it any more; ``state`` is LEFT meanwhile."""
    store: int = 0
    """The id of its store; 0: the node has not told it yet."""


class View:
    """All that the leader of group 0 sees when it decides."""

    def __init__(
        self,
        me: int,
        members: list[SeenMember],
        state: Tables,
        current: Configuration,
        caught_up: frozenset[int],
        now_wall_ms: int,
        leading_ms: int,
        settings: PolicySettings,
    ) -> None:
        self.me = me
        self.seen = {member.node_id: member for member in sorted(members, key=_id_of)}
        self.state = state
        self.current = current
        """The members of group 0."""
        self.caught_up = caught_up
        """Learners of group 0 that could vote now."""
        self.now_wall_ms = now_wall_ms
        self.leading_ms = leading_ms
        """For how long this node has led."""
        self.settings = settings
        self.alive = {me, *[member.node_id for member in members if member.state == ALIVE or member.is_leaving]}
        self.leaving = {member.node_id for member in members if member.is_leaving}

    def is_lost(self, node: NodeRecord) -> bool:
        """Whether a node has been away for so long that it is taken for lost."""
        return self.settings.autoclean and self.now_wall_ms - node.since_ms >= self.settings.autoclean_ms


class Decision:
    """What to do next."""

    def __init__(
        self, commands: list[Command], configuration: Configuration | None, gone: tuple[int, ...], warning: str
    ) -> None:
        self.commands = commands
        """To be applied in this order."""
        self.configuration = configuration
        """Members that group 0 should change to; None when it is fine as it is."""
        self.gone = gone
        """Nodes that will not come back, as far as this node can tell; see ``placement.next_moves``."""
        self.warning = warning
        """What an operator should know, empty for nothing."""


def decide(
    me: int,
    members: list[SeenMember],
    state: Tables,
    current: Configuration,
    caught_up: frozenset[int],
    now_wall_ms: int,
    leading_ms: int,
    settings: PolicySettings,
) -> Decision:
    """The next steps, from the view of the leader ``me`` that has led for ``leading_ms``."""
    view = View(me, members, state, current, caught_up, now_wall_ms, leading_ms, settings)
    gone = _gone(view)
    wanted = wanted_voters(view, gone)
    commands = [*_deaths(view), *_births(view), *_replacements(view.state), *_forgotten(view, gone)]
    return Decision(commands[:_COMMANDS_MAX], next_configuration(view, wanted), gone, voters_warning(len(wanted)))


def voters_warning(voters: int) -> str:
    """What an operator should know about so many voters, empty for nothing."""
    if voters != 2:
        return ""
    return (
        "Two nodes decide, and both must be there: while either is away the cluster state can't change and topics with "
        "two copies take no records; start a third core node."
    )


def wanted_voters(view: View, gone: tuple[int, ...]) -> tuple[int, ...]:
    """The voters that group 0 should end with; empty when cluster state knows no node yet."""
    nodes = view.state.nodes
    staying = view.alive - view.leaving
    cores = [node for node in nodes.values() if node.role == CORE and node.id in staying]
    if not cores:
        return ()
    ids = [node.id for node in cores]
    away = [
        voter for voter in view.current.voters if voter not in ids and voter not in gone and _may_return(view, voter)
    ]
    seats = SEATS[min(len(ids) + len(away), VOTERS_MAX)]
    # A dead voter keeps its seat only if all voters that are alive have one, and no other node could take it for good.
    room = seats - sum(1 for voter in view.current.voters if voter in ids)
    spare = len(ids) - (seats - len(away))
    kept: list[int] = []
    for voter in sorted(away, key=lambda each: -_since(view, each)):
        if len(kept) >= room:
            break
        if spare <= 0 or view.now_wall_ms - _since(view, voter) < view.settings.seat_kept_ms:
            kept.append(voter)
        else:
            spare -= 1
    return tuple(sorted([*_seated(view, cores, seats - len(kept)), *kept]))


def next_configuration(view: View, wanted: tuple[int, ...]) -> Configuration | None:
    """The next step from the current members to the wanted voters; None when there is none to take now."""
    current = view.current
    if current.is_joint or not wanted:
        return None
    new = [node for node in wanted if node not in current.voters]
    ready = [node for node in new if node in view.caught_up and node in current.learners]
    voters = current.voters
    if len(ready) == len(new):
        voters = wanted
    else:
        partly = tuple(sorted([*[node for node in wanted if node in current.voters], *ready]))
        if len(partly) > len(current.voters) and len(partly) in SEATS:
            voters = partly
    step = Configuration(voters, (), tuple([node for node in new if node not in voters]))
    if step == current or not (current.has_quorum(view.alive) and step.has_quorum(view.alive)):
        return None
    return step


def _gone(view: View) -> tuple[int, ...]:
    """Nodes that left, were replaced, or have been dead for too long."""
    return tuple(
        [
            node.id
            for node in view.state.nodes.values()
            if node.state != ALIVE
            and (node.id not in view.alive or node.id in view.leaving)
            and (node.state == LEFT or view.is_lost(node) or _successor(view.state, node) is not None)
        ]
    )


def _may_return(view: View, voter: int) -> bool:
    """Whether a voter that is away keeps a claim to its seat; one that cluster state forgot does not, after a while."""
    return voter in view.state.nodes or voter in view.alive or view.leading_ms < view.settings.unseen_ms


def _since(view: View, voter: int) -> int:
    """Since when a voter is away, as far as cluster state knows."""
    node = view.state.nodes.get(voter)
    if node is None or node.state == ALIVE:
        return view.now_wall_ms
    return node.since_ms


def _seated(view: View, cores: list[NodeRecord], count: int) -> list[int]:
    """Which core nodes alive vote: the leader and those that vote already first, in as many zones as possible."""
    chosen: list[int] = []
    zones: dict[str, int] = {}
    while len(chosen) < count:
        best: NodeRecord | None = None
        best_rank = (False, False, 0, 0)
        for node in cores:
            if node.id in chosen:
                continue
            rank = (node.id != view.me, node.id not in view.current.voters, zones.get(node.zone, 0), node.id)
            if best is None or rank < best_rank:
                best = node
                best_rank = rank
        if best is None:
            break
        chosen.append(best.id)
        zones[best.zone] = zones.get(best.zone, 0) + 1
    return chosen


def _deaths(view: View) -> list[Command]:
    """Nodes that are not alive any more. They come first: a node that is new may have the name of one of them."""
    commands: list[Command] = []
    for known in view.state.nodes.values():
        state = _news(view, known)
        if state != ALIVE and known.state not in (state, LEFT):
            commands.append(NodeStateChanged(known.id, state))
    return commands


def _births(view: View) -> list[Command]:
    """Nodes that cluster state does not know, or not as they are. Of two alive with one name, the later one waits."""
    taken: dict[str, int] = {}
    for known in view.state.nodes.values():
        if known.state == ALIVE and _news(view, known) == ALIVE:
            taken[known.name] = known.id
    commands: list[Command] = []
    for member in view.seen.values():
        record = view.state.nodes.get(member.node_id)
        if member.state != ALIVE or (record is not None and _same(record, member)):
            continue
        if taken.setdefault(member.name, member.node_id) == member.node_id:
            commands.append(_seen(member))
    return commands


def _news(view: View, known: NodeRecord) -> int:
    """The state of a node as gossip tells; a leader that has just begun waits for news of those it has not heard of."""
    member = view.seen.get(known.id)
    if member is not None:
        return member.state
    return DEAD if known.id != view.me and view.leading_ms >= view.settings.unseen_ms else known.state


def _replacements(state: Tables) -> list[Command]:
    """A new node with the name of a dead one takes what that one had."""
    commands: list[Command] = []
    for known in state.nodes.values():
        successor = _successor(state, known)
        if successor is not None and state.loads.replicas.get(known.id, 0):
            commands.append(ReplaceNode(known.id, successor.id))
    return commands


def _forgotten(view: View, gone: tuple[int, ...]) -> list[Command]:
    """Lost nodes that nothing depends on any more."""
    group_0 = view.current.members()
    ready = [
        node
        for node in gone
        if node not in group_0
        and not view.state.loads.replicas.get(node, 0)
        and _will_not_return(view, view.state.nodes[node])
    ]
    if not ready:
        return []
    held = {node for partition in view.state.moving() for node in partition.replicas}
    return [ForgetNode(node) for node in ready if node not in held]


def _will_not_return(view: View, node: NodeRecord) -> bool:
    """Whether a node is lost, has a successor, takes its leave, or was taken out."""
    is_out = node.state == LEFT and (node.id in view.leaving or node.id not in view.alive)
    return view.is_lost(node) or _successor(view.state, node) is not None or is_out


def _id_of(member: SeenMember) -> int:
    return member.node_id


def _successor(state: Tables, known: NodeRecord) -> NodeRecord | None:
    """The core node alive that came with a dead node's name: the same machine with a new disk."""
    if known.state == ALIVE or known.role != CORE:
        return None
    for other in state.nodes.values():
        if other.name == known.name and other.id != known.id and other.state == ALIVE and other.role == CORE:
            return other
    return None


def _same(known: NodeRecord, member: SeenMember) -> bool:
    return (
        known.state == ALIVE
        and known.name == member.name
        and known.host == member.host
        and known.port == member.port
        and known.api == member.api
        and known.role == member.role
        and known.zone == member.zone
        and known.version == member.version
        and member.store in (0, known.store, *known.retired)
    )


def _seen(member: SeenMember) -> NodeSeen:
    return NodeSeen(
        member.node_id,
        member.name,
        member.host,
        member.port,
        member.api,
        member.role,
        member.zone,
        member.version,
        member.store,
    )
