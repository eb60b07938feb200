"""How a node comes to belong to a cluster, and why a second cluster does not come about by accident.

```
 has a cluster id? --yes--> it stays there for good: JOIN nodes with the same id, else WAIT (and serve)
   | no
 has data, though? --yes--> WAIT: the id was lost, a person must look
   | no
 a peer has a cluster id? --one id--> JOIN it        --several--> WAIT: a person must choose
   | no
 plugin lists peers? --no--> an edge node: WAIT for a core node to found the cluster, and promise it to the first
   | yes                     no contact points: BOOTSTRAP alone; contact points: WAIT for one of them, unless all of
   |                         them are fresh edge nodes: with the promises of all of them BOOTSTRAP
 enough fresh nodes in sight, and not too many listed ones silent? --no--> WAIT
   | yes
 am I the smallest core node of them? --no--> promise the smallest to mint nothing without it, WAIT
   | yes
 promises of all in sight, and a listing since `bootstrap_expect` of them were in (mine is one)? --no--> WAIT
   | yes
 BOOTSTRAP
```

Why that is safe. A promise names a node and its *attempt*; it is on disk before it is spoken, and it is given back only
when that node itself says that it is fresh and at a later attempt, i.e. will never count the promise. So of two groups
that share a node only one can mint: `bootstrap_expect` of more than half of the nodes makes two of them impossible,
whatever the network does. Where the plugin lists all nodes, smaller values are safe too: the listing is taken once more
after the promises are in, so of two groups that form at the same time the later one finds the other listed; if all of
those are silent they hold minting up, and if one is in sight its promise, which is needed, is given away already.

An *edge node* holds no cluster state, so it never mints. Where no plugin lists peers, a core node that was told to join
edge nodes alone asks them for their promises, by promising itself first; of several such core nodes an edge node serves
the smallest that asks. An edge node with contact points promises once all of them answer and none of them is a fresh
edge node, which may have promised to another core node already.

Links carry a *word* of each node: its cluster id, its attempt and its promise. It is said when a link comes up and
whenever it changes. `forming.Formation` keeps the words and asks `decide`, which has no state.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.errors import FlockError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATION: Final = 9
"""Channel of a node's word about the cluster it belongs to."""

BOOTSTRAP: Final = "BOOTSTRAP"
"""Mint a cluster id, keep it on disk, tell others."""
JOIN: Final = "JOIN"
"""Take the cluster id of that peer, keep it on disk, become a member there."""
WAIT: Final = "WAIT"
"""Neither; the reason is a sentence to show."""

EXPECT_MAX: Final = 1_000
WHY_EDGE_WAITS: Final = (
    "An edge node founds no cluster, and no core node of one answers; start this node with --join to a core node, or a "
    "core node with --join to this one (from another machine that needs --advertise-host here)."
)
_VERSION: Final = 1
_WORD: Final = struct.Struct("<BQHQQQ")
_EDGE: Final = 1
"""A flag of the byte behind the word; a word without that byte is a core node's."""


class Ballot(NamedTuple):
    """The promise and the attempt that a node without a cluster keeps across restarts."""

    attempt: int = 1
    """Grows whenever this node stops trying to be the one that mints."""
    promised_to: int = 0
    """The node without whose attempt this node mints nothing; 0: none."""
    promised_attempt: int = 0
    """The attempt of the promised node for which the promise holds."""


class Word(NamedTuple):
    """The cluster id, attempt and promise of a node, as it tells them to each peer."""

    cluster_id: int
    expect: int
    ballot: Ballot
    is_edge: bool = False


class Rules(NamedTuple):
    """The settings for forming a cluster."""

    lists_peers: bool
    """Whether the discovery plugin lists nodes by itself; ``manual`` does not."""
    expect: int = 0
    """``cluster.bootstrap_expect``; 0 never bootstraps where peers are listed."""
    contact_points: int = 0
    """How many contact points a person gave (``--join``, ``cluster.contact_points``, known peers)."""
    called: str = ""
    """The first contact points, as people write them."""
    is_edge: bool = False
    """Whether this is an edge node, which never mints."""


class Standing(NamedTuple):
    """This node itself."""

    node_id: int
    cluster_id: int
    has_data: bool
    ballot: Ballot


class Listing(NamedTuple):
    """The result of the latest listing of the discovery plugin."""

    taken: bool = False
    """Whether the plugin has listed nodes at least once."""
    silent: int = 0
    """Listed contacts that are neither this node nor a peer that has spoken."""
    covers: int = 0
    """Promises to this node that were in when this listing was begun, its own among them."""
    behind: tuple[int, ...] = ()
    """Peers that have spoken and stand behind a listed contact; this node is none of them."""


class Decision(NamedTuple):
    """The next step of a node. ``ballot`` must be on disk before any peer hears of it."""

    kind: str
    ballot: Ballot
    reason: str = ""
    peer: int = 0
    cluster_id: int = 0


def encode_word(word: Word) -> bytes:
    """A word as it goes over a link."""
    ballot = word.ballot
    return _WORD.pack(
        _VERSION,
        word.cluster_id,
        min(word.expect, EXPECT_MAX),
        ballot.attempt,
        ballot.promised_to,
        ballot.promised_attempt,
    ) + bytes((_EDGE if word.is_edge else 0,))


def decode_word(body: bytes) -> Word:
    """Read a word; FlockError when it is none. A longer one comes from a newer node, which says more."""
    if len(body) < _WORD.size or body[0] < _VERSION:
        raise FlockError(f"A peer's word about its cluster is malformed ({len(body)} bytes).")
    _, cluster_id, expect, attempt, promised_to, promised_attempt = _WORD.unpack_from(body)
    is_edge = len(body) > _WORD.size and bool(body[_WORD.size] & _EDGE)
    return Word(cluster_id, expect, Ballot(attempt, promised_to, promised_attempt), is_edge)


def decide(me: Standing, peers: Mapping[int, Word], listing: Listing, rules: Rules) -> Decision:
    """Decide the next step of a node from the present facts alone; see the drawing above."""
    if me.cluster_id:
        return _return(me, peers)
    if me.has_data:
        return _wait(
            me.ballot,
            "The data folder holds data and no cluster id, so this node neither forms nor joins a cluster; put the "
            "file with the cluster id back, or start with an empty data folder.",
        )
    clusters = sorted({word.cluster_id for word in peers.values() if word.cluster_id})
    if len(clusters) > 1:
        names = " and ".join(f"{cluster:016x}" for cluster in clusters)
        return _wait(
            me.ballot,
            f"Nodes of different clusters answer ({names}); leave contact points of one of them only, so that it is "
            "clear which one this node belongs to.",
        )
    if clusters:
        return _join(me.ballot, peers, clusters[0])
    if not rules.lists_peers:
        return _without_listing(me, peers, listing, rules)
    return _with_listing(me, peers, listing, rules)


def _wait(ballot: Ballot, reason: str) -> Decision:
    return Decision(WAIT, ballot, reason)


def _join(ballot: Ballot, peers: Mapping[int, Word], cluster_id: int) -> Decision:
    peer = min(peer for peer, word in peers.items() if word.cluster_id == cluster_id)
    return Decision(JOIN, ballot, peer=peer, cluster_id=cluster_id)


def _return(me: Standing, peers: Mapping[int, Word]) -> Decision:
    if any(word.cluster_id == me.cluster_id for word in peers.values()):
        return _join(me.ballot, peers, me.cluster_id)
    return _wait(me.ballot, f"No other node of cluster {me.cluster_id:016x} answers yet; this node serves alone.")


def _without_listing(me: Standing, peers: Mapping[int, Word], listing: Listing, rules: Rules) -> Decision:
    if rules.is_edge:
        return _beside_cores(me, peers, listing, rules)
    if not rules.contact_points:
        return Decision(BOOTSTRAP, me.ballot)
    if listing.behind and not listing.silent and all(peers[peer].is_edge for peer in listing.behind):
        return _beside_edges(me, peers, listing)
    ballot = me.ballot
    if ballot.promised_to == me.node_id:
        ballot = Ballot(ballot.attempt + 1)  # edge nodes that promised are free to serve another core node
    if not peers:
        return _wait(ballot, f"No contact point answers yet{_unanswered(rules)}.")
    return _wait(
        ballot,
        "The nodes that answer belong to no cluster themselves; start one node without --join, or give all of them the "
        "same static contact points and cluster.bootstrap_expect.",
    )


def _unanswered(rules: Rules) -> str:
    called = f" ({rules.called})" if rules.called else ""
    return f"{called}; check --join, the cookie and that the port there is open for TCP and UDP"


def _beside_edges(me: Standing, peers: Mapping[int, Word], listing: Listing) -> Decision:
    """All that this core node was told to join are edge nodes of no cluster: it founds one, if they all wait for it."""
    ballot = me.ballot
    if not _bound(me.node_id, ballot, peers):
        ballot = Ballot(ballot.attempt, me.node_id, ballot.attempt)
    if ballot.promised_to != me.node_id:
        return _wait(ballot, _why_bound(ballot))
    missing = [peer for peer in listing.behind if not promises(peers[peer], me.node_id, ballot.attempt)]
    if missing:
        return _wait(
            ballot,
            f"Edge nodes alone answer. This core node founds the cluster once they wait for it; {missing[0]:016x} "
            "still waits for another node, which its log names.",
        )
    return Decision(BOOTSTRAP, ballot)


def _beside_cores(me: Standing, peers: Mapping[int, Word], listing: Listing, rules: Rules) -> Decision:
    """An edge node waits for the core node that founds the cluster, and promises to wait for no other."""
    if rules.contact_points and not peers:
        return _wait(
            me.ballot,
            f"An edge node founds no cluster, and no contact point answers yet{_unanswered(rules)}.",
        )
    asking = [peer for peer, word in peers.items() if not word.is_edge and promises(word, peer, word.ballot.attempt)]
    if rules.contact_points and (listing.silent or any(peers[peer].is_edge for peer in listing.behind)):
        asking = []
    ballot = me.ballot
    if asking and not _bound(me.node_id, ballot, peers):
        ballot = Ballot(ballot.attempt, min(asking), peers[min(asking)].ballot.attempt)
    if ballot.promised_to not in (0, me.node_id):
        return _wait(ballot, _why_bound(ballot))
    if any(peers[peer].is_edge for peer in listing.behind):
        return _wait(
            ballot,
            "The node that this edge node was told to join is an edge node of no cluster, too; start a core node with "
            "--join to that one.",
        )
    return _wait(ballot, WHY_EDGE_WAITS)


def _why_bound(ballot: Ballot) -> str:
    return (
        f"This node gave its word to node {ballot.promised_to:016x}, which may have formed a cluster, and waits for "
        "it; if that node is gone for good without having formed one, empty this node's data folder."
    )


def _with_listing(me: Standing, peers: Mapping[int, Word], listing: Listing, rules: Rules) -> Decision:
    if not rules.expect:
        return _wait(
            me.ballot,
            "No cluster is in sight and cluster.bootstrap_expect is not set, so this node forms none; set it to the "
            "number of nodes that you start.",
        )
    if not listing.taken:
        return _wait(me.ballot, "The discovery plugin has not listed any nodes yet.")
    needed = max(rules.expect, max((word.expect for word in peers.values()), default=0))
    if len(peers) + 1 < needed:
        return _wait(me.ballot, f"{len(peers) + 1} of {needed} nodes see each other (cluster.bootstrap_expect).")
    if listing.silent >= needed:
        return _wait(
            me.ballot,
            f"{listing.silent} listed nodes do not answer and could be a cluster by themselves; start or unlist them, "
            "check the network and the cookie, or set cluster.bootstrap_expect to more than half of all nodes.",
        )
    return _elect(me, peers, listing, needed, is_edge=rules.is_edge)


def _elect(me: Standing, peers: Mapping[int, Word], listing: Listing, needed: int, *, is_edge: bool) -> Decision:
    cores = [peer for peer, word in peers.items() if not word.is_edge]
    if not is_edge:
        cores.append(me.node_id)
    if not cores:
        return _wait(me.ballot, WHY_EDGE_WAITS)
    smallest = min(cores)
    ballot = me.ballot
    if smallest != me.node_id:
        ballot = _stand_down(me.node_id, ballot, peers)
    if not _bound(me.node_id, ballot, peers):
        attempt = ballot.attempt if smallest == me.node_id else peers[smallest].ballot.attempt
        ballot = Ballot(ballot.attempt, smallest, attempt)
    if ballot.promised_to != smallest:
        return _wait(ballot, _why_bound(ballot))
    if smallest != me.node_id:
        return _wait(ballot, f"{len(peers) + 1} nodes see each other; node {smallest:016x} forms the cluster.")
    missing = sorted(peer for peer, word in peers.items() if not promises(word, me.node_id, ballot.attempt))
    if missing:
        names = ", ".join(f"{peer:016x}" for peer in missing[:5])
        return _wait(
            ballot,
            f"{len(missing)} of {len(peers) + 1} nodes have not given their word to form a cluster with this one "
            f"(among them {names}); what they wait for stands in their logs.",
        )
    if listing.covers < needed:
        return _wait(
            ballot, f"{needed} nodes gave their word; nodes are listed once more before the cluster is formed."
        )
    return Decision(BOOTSTRAP, ballot)


def promises(word: Word, node_id: int, attempt: int) -> bool:
    """Whether the speaker of this word mints nothing without that node's attempt."""
    return word.ballot.promised_to == node_id and word.ballot.promised_attempt == attempt


def _stand_down(node_id: int, ballot: Ballot, peers: Mapping[int, Word]) -> Ballot:
    """Begin a later attempt, which frees nodes that promised to the present one. Without promises: no change."""
    own = ballot.promised_to == node_id
    if not own and not any(promises(word, node_id, ballot.attempt) for word in peers.values()):
        return ballot
    return Ballot(ballot.attempt + 1) if own else ballot._replace(attempt=ballot.attempt + 1)


def _bound(node_id: int, ballot: Ballot, peers: Mapping[int, Word]) -> bool:
    """Whether a promise still holds: only its receiver, fresh and past that attempt, sets this node free."""
    promised_to = ballot.promised_to
    if promised_to == 0:
        return False
    if promised_to == node_id:
        return ballot.promised_attempt == ballot.attempt
    word = peers.get(promised_to)
    return word is None or word.ballot.attempt <= ballot.promised_attempt
