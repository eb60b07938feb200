"""The registrar by itself: what it answers to claims, registrations and answers, message by message."""

from __future__ import annotations

from flockmq.peering.registrar import ASK_MS, Registrar
from flockmq.peering.rendezvous import Ranking
from flockmq.peering.session_messages import (
    ANSWER,
    ASK,
    CHECKS_USER,
    CLAIM,
    CLEAN,
    GRANT,
    PASSED_ON,
    REFUSE,
    REVOKE,
    Message,
    Post,
    decode_messages,
    encode_entry,
)

ME = 1
NOW = 1_000
WALL = 500_000


class Said:
    """An outbox that keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Message]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        self.messages += [(peer, message) for message in decode_messages(body)]

    def take(self) -> list[tuple[int, Message]]:
        taken = self.messages
        self.messages = []
        return taken


class Bench:
    """A registrar among nodes 1, 2, 3 that have all told what they have."""

    def __init__(self, told: bool = True) -> None:
        self.said = Said()
        self.post = Post(ME, self.said)
        self.registrar = Registrar(ME, self.post, Ranking([ME]))
        for peer in (2, 3):
            self.registrar.link(peer)
        self.registrar.set_members(Ranking([1, 2, 3]), WALL)
        if told:
            for peer in (2, 3):
                self.registrar.on_synced(peer, self.registrar.ranking.digest)

    def claim(
        self, node: int, nonce: int, flags: int = PASSED_ON, user: int = 0, epoch: int = 0
    ) -> list[tuple[object, ...]]:
        message = Message(CLAIM, "x", flags=flags, nonce=nonce, epoch=epoch, node=node, user=user)
        self.registrar.on_claim(message, WALL, NOW)
        return self.heard()

    def heard(self) -> list[tuple[object, ...]]:
        self.post.flush()
        names = {GRANT: "grant", REVOKE: "revoke", REFUSE: "refuse", ASK: "ask", CLAIM: "claim"}
        return [(peer, names[message.kind], message.epoch, message.node) for peer, message in self.said.take()]


def test_the_first_owner() -> None:
    bench = Bench()
    assert bench.claim(2, 7) == [(2, "grant", WALL, 0)]
    assert bench.registrar.records["x"].owner == 2


def test_the_next_owner() -> None:
    bench = Bench()
    bench.claim(2, 7)
    assert bench.claim(3, 8) == [(3, "grant", WALL + 1, 2), (2, "revoke", WALL + 1, 3)]
    assert bench.claim(3, 9) == [(3, "grant", WALL + 2, 3)]  # its own, again


def test_a_claim_that_comes_twice_gets_the_same_answer() -> None:
    bench = Bench()
    bench.claim(2, 7)
    once = bench.claim(3, 8)
    assert bench.claim(3, 8) == once


def test_a_claim_that_comes_late_takes_nothing_back() -> None:
    bench = Bench()
    bench.claim(2, 7)
    bench.claim(3, 8)
    assert bench.claim(2, 7) == []
    assert bench.registrar.records["x"].owner == 3


def test_epochs_grow_past_all_that_is_known() -> None:
    bench = Bench()
    assert bench.claim(2, 7, epoch=WALL + 100) == [(2, "grant", WALL + 101, 0)]


def test_another_user_is_refused() -> None:
    bench = Bench()
    bench.claim(2, 7, user=11)
    assert bench.claim(3, 8, flags=CHECKS_USER | PASSED_ON, user=12) == [(3, "refuse", 0, 0)]
    assert bench.registrar.records["x"].owner == 2
    assert bench.claim(3, 9, user=12)[0][1] == "grant"  # where everybody is let in, names mean nothing


def test_who_is_not_to_decide_passes_a_claim_on_once() -> None:
    bench = Bench()
    name = next(f"id-{number}" for number in range(99) if bench.registrar.ranking.first(f"id-{number}") == 3)
    message = Message(CLAIM, name, nonce=1, node=2)
    bench.registrar.on_claim(message, WALL, NOW)
    assert bench.heard() == [(3, "claim", 0, 2)]
    bench.registrar.on_claim(message, WALL, NOW)  # it comes back: views differ
    assert bench.heard() == [(2, "grant", WALL, 0)]


def test_nodes_that_have_not_told_are_asked_first() -> None:
    bench = Bench(told=False)
    assert sorted(bench.claim(2, 7)) == [(3, "ask", 0, 0)]
    assert bench.claim(2, 7) == []  # it waits already
    (number,) = bench.registrar.questions
    bench.registrar.on_answer(3, Message(ANSWER, nonce=number, epoch=WALL + 5, user=4), WALL)
    assert bench.heard() == [(2, "grant", WALL + 6, 3), (3, "revoke", WALL + 6, 2)]


def test_answers_are_not_waited_for_long() -> None:
    bench = Bench(told=False)
    bench.claim(2, 7)
    bench.registrar.tick(NOW + ASK_MS - 1, WALL)
    assert bench.heard() == []
    bench.registrar.tick(NOW + ASK_MS, WALL)
    assert bench.heard() == [(2, "grant", WALL, 0)]
    assert not bench.registrar.asked


def test_who_goes_is_not_waited_for() -> None:
    bench = Bench(told=False)
    bench.claim(2, 7)
    bench.registrar.unlink(3, WALL)
    assert bench.heard() == [(2, "grant", WALL, 0)]


def test_of_two_owners_the_higher_epoch_stays() -> None:
    bench = Bench()
    bench.registrar.on_register(2, encode_entry("x", 10, 0))
    bench.registrar.on_register(3, encode_entry("x", 9, 0))
    assert bench.heard() == [(3, "revoke", 10, 2)]
    bench.registrar.on_register(3, encode_entry("x", 11, 0))
    assert bench.heard() == [(2, "revoke", 11, 3)]


def test_of_two_owners_with_one_epoch_the_higher_node_stays() -> None:
    bench = Bench()
    bench.registrar.on_register(3, encode_entry("x", 10, 0))
    bench.registrar.on_register(2, encode_entry("x", 10, 0))
    assert bench.heard() == [(2, "revoke", 10, 3)]


def test_a_release_is_for_the_epoch_it_names() -> None:
    bench = Bench()
    bench.registrar.on_register(2, encode_entry("x", 10, 0))
    bench.registrar.on_release(3, encode_entry("x", 10, 0))
    bench.registrar.on_release(2, encode_entry("x", 9, 0))
    assert "x" in bench.registrar.records
    bench.registrar.on_release(2, encode_entry("x", 10, 0))
    assert "x" not in bench.registrar.records


def test_what_a_dead_node_had_is_nobodys() -> None:
    bench = Bench()
    bench.claim(2, 7)
    bench.registrar.unlink(2, WALL)
    bench.registrar.set_members(Ranking([1, 3]), WALL)
    bench.registrar.on_synced(3, bench.registrar.ranking.digest)
    assert bench.claim(3, 8) == [(3, "grant", WALL, 0)]


def test_what_a_full_list_does_not_name_is_forgotten() -> None:
    bench = Bench()
    registrar = bench.registrar
    names = [f"id-{number}" for number in range(200)]
    mine = [name for name in names if registrar.ranking.first(name) == ME]
    kept, pending, gone = mine[:3]
    for name in (kept, pending, gone):
        registrar.on_register(2, encode_entry(name, 10, 0))
    registrar.on_sync(2, 5)
    registrar.on_register(2, encode_entry(kept, 10, 0) + encode_entry(pending, 0, 0))
    registrar.on_synced(2, registrar.ranking.digest)
    registrar.tick(NOW, WALL)
    assert sorted(registrar.records) == sorted([kept, pending])


def test_what_others_decide_about_is_forgotten() -> None:
    bench = Bench()
    registrar = bench.registrar
    for number in range(50):
        registrar.on_register(2, encode_entry(f"id-{number}", 10, 0))
    registrar.set_members(Ranking([1, 2]), WALL)
    registrar.tick(NOW, WALL)
    assert len(registrar.records) == 50  # the owner sees other members, and may be right
    registrar.on_synced(2, registrar.ranking.digest)
    registrar.tick(NOW, WALL)
    assert 0 < len(registrar.records) < 50
    assert all(registrar.ranking.first(name) == ME for name in registrar.records)


def test_a_clean_start_is_told_to_the_old_owner() -> None:
    bench = Bench()
    bench.claim(2, 7)
    bench.claim(3, 8, flags=CLEAN | PASSED_ON)
    assert bench.registrar.records["x"].owner == 3
