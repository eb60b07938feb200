from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.peering.formation import (
    BOOTSTRAP,
    JOIN,
    WAIT,
    Ballot,
    Decision,
    Listing,
    Rules,
    Standing,
    Word,
    decide,
    decode_word,
    encode_word,
)

ME = 5
FRESH = Ballot()
MANUAL = Rules(lists_peers=False)
LISTED = Rules(lists_peers=True, expect=2)
EDGE = Rules(lists_peers=False, is_edge=True)
SEEN = Listing(taken=True)


def fresh(ballot: Ballot = FRESH, expect: int = 2) -> Word:
    return Word(0, expect, ballot)


def edge(ballot: Ballot = FRESH) -> Word:
    return Word(0, 0, ballot, is_edge=True)


def member(cluster_id: int) -> Word:
    return Word(cluster_id, 2, FRESH)


def me(cluster_id: int = 0, *, has_data: bool = False, ballot: Ballot = FRESH) -> Standing:
    return Standing(ME, cluster_id, has_data, ballot)


@pytest.mark.parametrize(
    ("standing", "peers", "listing", "rules", "kind", "peer"),
    [
        # manual: alone without contacts, never beside contacts
        (me(), {}, Listing(), MANUAL, BOOTSTRAP, 0),
        (me(), {}, Listing(), MANUAL._replace(contact_points=1), WAIT, 0),
        (me(), {1: fresh()}, Listing(), MANUAL._replace(contact_points=1), WAIT, 0),
        (me(), {1: member(7)}, Listing(), MANUAL._replace(contact_points=1), JOIN, 1),
        # a cluster in sight is joined, whatever the discovery; two are a person's business
        (me(), {1: fresh(), 8: member(7), 9: member(7)}, SEEN, LISTED, JOIN, 8),
        (me(), {8: member(7), 9: member(6)}, SEEN, LISTED, WAIT, 0),
        # a member stays one
        (me(7), {}, SEEN, LISTED._replace(expect=1), WAIT, 0),
        (me(7), {}, Listing(), MANUAL, WAIT, 0),
        (me(7), {1: member(7)}, SEEN, LISTED, JOIN, 1),
        (me(7), {1: fresh(), 2: member(6)}, SEEN, LISTED, WAIT, 0),
        # data without an id is damage
        (me(has_data=True), {}, Listing(), MANUAL, WAIT, 0),
        (me(has_data=True), {1: member(7)}, SEEN, LISTED, WAIT, 0),
        # listed: not without a listing, an expectation, enough nodes, or beside too many silent ones
        (me(), {}, SEEN, LISTED._replace(expect=0), WAIT, 0),
        (me(), {8: fresh()}, Listing(), LISTED, WAIT, 0),
        (me(), {}, SEEN, LISTED, WAIT, 0),
        (me(), {8: fresh(expect=3)}, SEEN, LISTED, WAIT, 0),
        (me(), {8: fresh()}, SEEN._replace(silent=2), LISTED, WAIT, 0),
        # an edge node never mints, and joins what there is
        (me(), {}, Listing(), EDGE, WAIT, 0),
        (me(), {8: fresh()}, Listing(), EDGE, WAIT, 0),
        (me(), {1: member(7)}, Listing(), EDGE, JOIN, 1),
        (me(), {8: edge()}, SEEN._replace(covers=2), LISTED._replace(is_edge=True), WAIT, 0),
        # a core node beside a silent contact point, or another core node, founds nothing
        (me(), {8: edge()}, SEEN._replace(silent=1, behind=(8,)), MANUAL._replace(contact_points=2), WAIT, 0),
        (me(), {1: fresh(), 8: edge()}, SEEN._replace(behind=(1, 8)), MANUAL._replace(contact_points=2), WAIT, 0),
    ],
)
def test_rules(
    standing: Standing, peers: dict[int, Word], listing: Listing, rules: Rules, kind: str, peer: int
) -> None:
    decision = decide(standing, peers, listing, rules)
    assert (decision.kind, decision.peer) == (kind, peer)
    assert decision.ballot == standing.ballot
    assert bool(decision.reason) == (kind == WAIT)


def test_the_smallest_collects_promises_and_mints() -> None:
    own = Ballot(1, ME, 1)
    assert decide(me(), {8: fresh()}, SEEN, LISTED).ballot == own
    waiting = decide(me(ballot=own), {8: fresh()}, SEEN._replace(covers=1), LISTED)
    assert (waiting.kind, "0000000000000008" in waiting.reason) == (WAIT, True)
    promised = {8: fresh(Ballot(1, ME, 1))}
    assert decide(me(ballot=own), promised, SEEN._replace(covers=1), LISTED).kind == WAIT  # to be listed again
    assert decide(me(ballot=own), promised, SEEN._replace(covers=2), LISTED) == Decision(BOOTSTRAP, own)


def test_others_promise_to_the_smallest() -> None:
    assert decide(me(), {1: fresh(Ballot(4))}, SEEN, LISTED).ballot == Ballot(1, 1, 4)


def test_who_sees_a_smaller_one_gives_promises_back() -> None:
    was_first = me(ballot=Ballot(1, ME, 1))
    assert decide(was_first, {1: fresh()}, SEEN, LISTED).ballot == Ballot(2, 1, 1)
    only_promised = {1: fresh(), 8: fresh(Ballot(1, ME, 1))}
    assert decide(me(ballot=Ballot(1, 1, 1)), only_promised, SEEN, LISTED).ballot == Ballot(2, 1, 1)


def test_a_promise_is_kept_until_its_receiver_gives_it_back() -> None:
    bound = me(ballot=Ballot(1, 3, 2))
    peers = {1: fresh(), 8: fresh()}
    decision = decide(bound, peers, SEEN, LISTED)
    assert decision.ballot == bound.ballot
    assert "0000000000000003" in decision.reason
    assert decide(bound, peers | {3: fresh(Ballot(2))}, SEEN, LISTED).ballot == bound.ballot
    assert decide(bound, peers | {3: fresh(Ballot(3))}, SEEN, LISTED).ballot == Ballot(1, 1, 1)


def test_a_core_node_told_to_join_edge_nodes_founds_the_cluster_with_their_promises() -> None:
    rules = MANUAL._replace(contact_points=1)
    seen = SEEN._replace(behind=(8,))
    own = Ballot(1, ME, 1)
    asking = decide(me(), {8: edge()}, seen, rules)
    assert (asking.kind, asking.ballot) == (WAIT, own)
    promised = {8: edge(Ballot(1, ME, 1))}
    assert decide(me(ballot=own), promised, seen, rules) == Decision(BOOTSTRAP, own)
    elsewhere = decide(me(ballot=own), {8: edge(Ballot(1, 3, 1))}, seen, rules)
    assert (elsewhere.kind, "0000000000000008" in elsewhere.reason) == (WAIT, True)
    lost = decide(me(ballot=own), {}, Listing(taken=True, silent=1), rules)
    assert lost.ballot == Ballot(2), "edge nodes are free to promise to another core node"


def test_an_edge_node_promises_to_the_first_core_node_that_asks() -> None:
    asks = fresh(Ballot(4, 8, 4))
    assert decide(me(), {8: asks, 9: fresh(Ballot(1, 9, 1))}, Listing(), EDGE).ballot == Ballot(1, 8, 4)
    assert decide(me(), {8: fresh()}, Listing(), EDGE).ballot == FRESH, "it does not ask"
    bound = me(ballot=Ballot(1, 9, 1))
    assert decide(bound, {8: asks}, Listing(), EDGE).ballot == bound.ballot
    assert "0000000000000009" in decide(bound, {8: asks}, Listing(), EDGE).reason
    told = EDGE._replace(contact_points=1)
    assert decide(me(), {8: asks}, SEEN._replace(silent=1), told).ballot == FRESH, "a contact point may know better"
    assert decide(me(), {1: edge(), 8: asks}, SEEN._replace(behind=(1,)), told).ballot == FRESH
    assert decide(me(), {8: asks}, SEEN._replace(behind=(8,)), told).ballot == Ballot(1, 8, 4)


def test_the_smallest_core_node_mints_where_nodes_are_listed() -> None:
    own = Ballot(1, ME, 1)
    promised = {1: edge(Ballot(1, ME, 1)), 8: fresh(Ballot(1, ME, 1))}
    assert decide(me(ballot=own), promised, SEEN._replace(covers=3), LISTED) == Decision(BOOTSTRAP, own)
    assert decide(me(), {8: fresh(Ballot(4))}, SEEN, LISTED._replace(is_edge=True)).ballot == Ballot(1, 8, 4)


def test_words_travel() -> None:
    word = Word(2**64 - 1, 3, Ballot(5, 2**63, 7))
    body = encode_word(word)
    assert decode_word(body) == word
    assert decode_word(b"\x02" + body[1:] + b"more") == word  # of a newer node
    assert decode_word(body[:-1]) == word
    assert decode_word(encode_word(word._replace(is_edge=True))).is_edge


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01" * 34, b"\x00" * 35])
def test_no_word(body: bytes) -> None:
    with pytest.raises(FlockError, match="malformed"):
        decode_word(body)


def test_the_contact_points_that_do_not_answer_are_named_with_their_ports() -> None:
    rules = MANUAL._replace(contact_points=1, called="n1.example:17000")
    reason = decide(me(), {}, Listing(), rules).reason
    assert "n1.example:17000" in reason
    assert "16000" not in reason
