from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.peering.contact import Contact
from flockmq.peering.formation import BOOTSTRAP, FORMATION, JOIN, WAIT, Ballot, Rules, Word, decode_word, encode_word
from flockmq.peering.forming import CONTACTS_MAX, Formation

ME, PEER = 5, 8
HERE, THERE = Contact("here", 16_000), Contact("there", 16_000)


class Outbox:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Word]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel == FORMATION
        self.sent.append((peer, decode_word(body)))


def node(outbox: Outbox, cluster_id: int = 0, expect: int = 2, *, lists_peers: bool = True) -> Formation:
    return Formation(ME, cluster_id, False, Ballot(), Rules(lists_peers, expect), outbox, 0)


def word(cluster_id: int = 0, ballot: Ballot | None = None) -> bytes:
    return encode_word(Word(cluster_id, 2, ballot or Ballot()))


def test_a_lone_node_bootstraps_at_once_and_tells_who_comes() -> None:
    outbox = Outbox()
    alone = node(outbox, lists_peers=False)
    assert alone.decision.kind == BOOTSTRAP
    alone.belong(77)
    alone.peer_up(PEER, 1)
    alone.flush(1)
    alone.flush(2)
    assert [(peer, said.cluster_id) for peer, said in outbox.sent] == [(PEER, 77)]


def test_two_nodes_form_a_cluster() -> None:
    outbox = Outbox()
    first = node(outbox)
    first.listed([HERE, THERE], 1)
    first.answered(HERE, ME)
    assert first.silent() == [THERE]
    first.answered(THERE, PEER)
    first.peer_up(PEER, 2)
    first.receive(PEER, word(), 3)
    assert first.silent() == []
    own = first.take_ballot()
    assert own == Ballot(1, ME, 1)
    first.flush(3)
    assert outbox.sent == []  # not on disk
    first.kept(own, 4)
    first.flush(4)
    assert outbox.sent == [(PEER, Word(0, 2, own))]
    first.receive(PEER, word(ballot=Ballot(1, ME, 1)), 5)
    first.listed([HERE, THERE], 5)
    assert first.decision.kind == WAIT
    first.listed([HERE, THERE], 6)
    assert first.decision.kind == BOOTSTRAP
    first.belong(77)
    first.flush(7)
    assert outbox.sent[1:] == [(PEER, Word(77, 2, own))]


def test_who_is_out_of_sight_does_not_count() -> None:
    fresh = node(Outbox())
    fresh.listed([THERE], 1)
    fresh.peer_up(PEER, 1)
    fresh.receive(PEER, word(77), 1)
    assert (fresh.decision.kind, fresh.decision.peer, fresh.decision.cluster_id) == (JOIN, PEER, 77)
    fresh.peer_dead(PEER, 2)
    assert fresh.decision.kind == WAIT
    fresh.receive(PEER, word(77), 3)  # late, of a link that is gone
    assert fresh.decision.kind == WAIT


def test_a_claim_of_others_ends_minting() -> None:
    fresh = node(Outbox(), expect=1)
    fresh.listed([], 1)
    fresh.kept(Ballot(1, ME, 1), 1)
    fresh.listed([], 2)
    assert fresh.decision.kind == BOOTSTRAP
    fresh.claimed(0x77)
    assert (fresh.decision.kind, "0000000000000077" in fresh.decision.reason) == (WAIT, True)
    fresh.peer_up(PEER, 3)
    fresh.receive(PEER, word(0x77), 3)
    assert fresh.decision.kind == JOIN


def test_malformed_words_change_nothing() -> None:
    fresh = node(Outbox())
    fresh.peer_up(PEER, 1)
    before = fresh.decision
    with pytest.raises(FlockError):
        fresh.receive(PEER, b"x", 2)
    assert fresh.decision == before


def test_memory_is_bounded() -> None:
    fresh = node(Outbox())
    fresh.listed([Contact("h", port) for port in range(1, 5_000)], 1)
    assert len(fresh.silent()) == CONTACTS_MAX
    for port in range(1, 5_000):
        fresh.answered(Contact("i", port), PEER)
    assert len(fresh._answers) <= 2 * CONTACTS_MAX
