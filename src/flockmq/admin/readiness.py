"""What a node can do, and whether that is enough to send clients to it.

```
 facts --assess--> clients    listeners take clients
                   cluster    in a cluster, its state is current, a majority decides
                   durable    durable topics: the same, and this node's store works
                   sessions   sessions of all live nodes can be found and moved here
                      |
 ?require=... ------> all of those that are required: 200; else 503 and the sentences of the others
```
Required unless the caller says otherwise: ``clients``, ``cluster`` and ``durable``; of a node that is meant to be alone
``clients``. ``sessions`` is left out by default: one broken link of many must not take nodes out of service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from flockmq.admin.model import Ability, Readiness

NAMES: Final = ("clients", "cluster", "durable", "sessions")
DEFAULT: Final = ("clients", "cluster", "durable")
ALONE: Final = ("clients",)
NAMES_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What a node of a cluster knows about itself and the others."""

    waits_for: str = ""
    """Why it belongs to no cluster yet; empty when it does."""
    refusal: str = ""
    """What the other nodes said when they refused this one; empty when none did lately."""
    is_current: bool = True
    """A majority has confirmed cluster state since the start."""
    has_leader: bool = True
    """There is a leader of group 0, as of a moment ago: a leader without a majority steps down."""
    away: tuple[str, ...] = ()
    """Core nodes that are dead, by name."""
    store_problem: str = ""
    """Why this node's store takes no records; empty when it does."""
    unlinked: tuple[str, ...] = ()
    """Live nodes without a link, or whose routes are not known here yet, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node knows about itself; ``cluster`` None: it is in none, for the reason in ``why_alone``."""

    state: Literal["starting", "ready", "stopping"]
    keeps_out: str = ""
    """Why clients are not let in though listeners are there."""
    cluster: ClusterFacts | None = None
    why_alone: str = ""
    is_meant_alone: bool = False
    """Whether the configuration wants it without a cluster."""
    problems: tuple[str, ...] = ()


def assess(facts: NodeFacts) -> Readiness:
    """Say what the node can do."""
    cluster = _cluster(facts)
    clients = _clients(facts)
    return Readiness(
        status="ready" if facts.state == "ready" else facts.state,
        clients=clients,
        cluster=cluster,
        durable=_durable(facts, cluster),
        sessions=_sessions(facts, clients),
        required=list(ALONE if facts.is_meant_alone else DEFAULT),
        problems=list(facts.problems),
    )


def missing(found: Readiness, required: tuple[str, ...]) -> list[str]:
    """The sentences about what is required and not there, each once."""
    abilities: list[Ability] = [getattr(found, name) for name in required]
    reasons = [*dict.fromkeys(one.reason for one in abilities if not one.ok)]
    return [one for one in reasons if not any(one != other and one in other for other in reasons)]


def _clients(facts: NodeFacts) -> Ability:
    if facts.state == "stopping":
        return Ability(ok=False, reason="The broker is stopping and takes no clients; use another node.")
    if facts.keeps_out:
        return Ability(ok=False, reason=facts.keeps_out)
    if facts.state == "starting":
        return Ability(ok=False, reason="The broker is starting and takes no clients yet.")
    return Ability(ok=True, reason="Listeners take clients.")


def _cluster(facts: NodeFacts) -> Ability:
    cluster = facts.cluster
    if cluster is None:
        return Ability(ok=facts.is_meant_alone, reason=facts.why_alone)
    if cluster.waits_for:
        said = f" {cluster.refusal}" if cluster.refusal else ""
        return Ability(ok=False, reason=f"This node belongs to no cluster yet. {cluster.waits_for}{said}")
    if cluster.is_current and cluster.has_leader:
        return Ability(ok=True, reason="A majority of the core nodes decides, and this node follows it.")
    away = f" Away: {_named(cluster.away)}." if cluster.away else ""
    if cluster.refusal:
        away += f" {cluster.refusal}"
    if not cluster.is_current:
        return Ability(ok=False, reason=f"No majority has confirmed cluster state since this node started.{away}")
    return Ability(ok=False, reason=f"No majority of the core nodes can be reached.{away}")


def _durable(facts: NodeFacts, cluster: Ability) -> Ability:
    if facts.cluster is None:
        return Ability(ok=False, reason=f"There are no durable topics without a cluster. {facts.why_alone}")
    if facts.cluster.store_problem:
        return Ability(ok=False, reason=facts.cluster.store_problem)
    if not cluster.ok:
        return Ability(ok=False, reason=f"Durable topics need the cluster. {cluster.reason}")
    return Ability(ok=True, reason="Durable topics take records where their own replicas are.")


def _sessions(facts: NodeFacts, clients: Ability) -> Ability:
    if not clients.ok:
        return Ability(ok=False, reason=clients.reason)
    cluster = facts.cluster
    if cluster is None:
        return Ability(ok=facts.is_meant_alone, reason=f"Sessions of this node alone. {facts.why_alone}")
    if cluster.waits_for:
        return Ability(ok=False, reason="Sessions of this node alone: it belongs to no cluster yet.")
    if cluster.unlinked:
        return Ability(ok=False, reason=f"Sessions can't be moved here from {_named(cluster.unlinked)}: no link there.")
    return Ability(ok=True, reason="Sessions of all live nodes can be found and moved here.")


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more
