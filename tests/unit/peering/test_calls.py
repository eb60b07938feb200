"""Questions between nodes: one answer each, whatever happens."""

from __future__ import annotations

from functools import partial

import pytest

from flockmq.errors import FlockError, NotReady, RemoteProtocolError
from flockmq.peering.calls import BODY_BYTES_MAX, OPEN_MAX, TIMEOUT_MS, Calls
from flockmq.peering.kinds import PING
from flockmq.tasks import Promise, Task


class Post:
    """Carries what one node says to the other one."""

    def __init__(self) -> None:
        self.letters: list[tuple[int, int, bytes]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        self.letters.append((peer, channel, body))


def pair() -> tuple[Calls, Post, Calls, Post]:
    one_post, two_post = Post(), Post()
    one, two = Calls(one_post), Calls(two_post)
    one.peer_up(2, 0)
    two.peer_up(1, 0)
    return one, one_post, two, two_post


def carry(post: Post, sender: int, receiver: Calls) -> None:
    for _, _, body in post.letters:
        receiver.receive(sender, body, 5)
    post.letters.clear()


def test_a_question_is_answered_once() -> None:
    one, one_post, two, two_post = pair()
    two.serve(PING, lambda body: body[::-1])
    answers: list[bytes | None] = []
    one.ask(2, PING, b"abc").then(answers.append)
    carry(one_post, 1, two)
    again = list(two_post.letters)
    carry(two_post, 2, one)
    two_post.letters = again
    carry(two_post, 2, one)
    assert answers == [b"cba"]
    one.tick(TIMEOUT_MS + 1)
    assert answers == [b"cba"]


def test_nobody_else_can_answer() -> None:
    one, one_post, two, two_post = pair()
    two.serve(PING, lambda body: body)
    answers: list[bytes | None] = []
    one.ask(2, PING, b"x").then(answers.append)
    carry(one_post, 1, two)
    carry(two_post, 3, one)
    assert answers == []


@pytest.mark.parametrize("end", ["down", "dead", "late", "not linked", "unknown kind", "nonsense", "too much"])
def test_no_answer_is_an_answer(end: str) -> None:
    one, one_post, two, two_post = pair()
    answers: list[bytes | None] = []

    def refuse(body: bytes) -> bytes:
        raise RemoteProtocolError(0x82, "nonsense")

    if end == "nonsense":
        two.serve(PING, refuse)
    elif end == "too much":
        two.serve(PING, lambda body: bytes(BODY_BYTES_MAX))
    one.ask(3 if end == "not linked" else 2, PING, b"x").then(answers.append)
    if end == "down":
        one.peer_down(2, 1)
    elif end == "dead":
        one.peer_dead(2, 1)
    elif end == "late":
        one.tick(TIMEOUT_MS - 1)
        assert answers == []
        one.tick(TIMEOUT_MS)
    else:
        carry(one_post, 1, two)
        carry(two_post, 2, one)
    assert answers == [None]


def test_the_answer_to_a_question_of_before_a_restart_is_not_taken_for_another() -> None:
    one, one_post, two, two_post = pair()
    first: Promise[bytes] = Promise()
    second: Promise[bytes] = Promise()
    waiting = [first, second]

    def later(peer: int, body: bytes) -> Task[bytes | None]:
        return (yield from waiting.pop(0))

    two.serve_task(PING, later)
    one.ask(2, PING, b"of the first start")
    carry(one_post, 1, two)
    two.peer_down(1, 6)
    two.peer_up(1, 7)
    again_post = Post()
    again = Calls(again_post)
    again.peer_up(2, 7)
    answers: list[bytes | None] = []
    again.ask(2, PING, b"of the second start").then(answers.append)
    carry(again_post, 1, two)
    first.set(b"first")
    two.tick(8)
    carry(two_post, 2, again)
    assert answers == []
    second.set(b"second")
    two.tick(9)
    carry(two_post, 2, again)
    assert answers == [b"second"]


def test_numbers_of_questions_are_of_one_start() -> None:
    numbers: list[bytes] = []
    for boot in (1_700_000_000_000, 1_700_000_000_001):
        post = Post()
        calls = Calls(post, boot=boot)
        calls.peer_up(2, 0)
        calls.ask(2, PING, b"")
        numbers += [body[1:9] for _, _, body in post.letters]
    assert numbers[0] != numbers[1]


def test_questions_that_wait_are_bounded() -> None:
    one, one_post, _, _ = pair()
    answers: list[bytes | None] = []
    for _ in range(OPEN_MAX):
        one.ask(2, PING, b"").then(answers.append)
    assert answers == []
    one.ask(2, PING, b"").then(answers.append)
    assert answers == [None]
    assert len(one_post.letters) == OPEN_MAX


def test_an_answer_may_take_time() -> None:
    one, one_post, two, two_post = pair()
    found: Promise[bytes | None] = Promise()
    two.serve_task(PING, lambda _peer, _body: found_by(found))
    answers: list[bytes | None] = []
    one.ask(2, PING, b"x").then(answers.append)
    carry(one_post, 1, two)
    assert two_post.letters == []
    found.set(b"y")
    carry(two_post, 2, one)
    assert answers == [b"y"]


def test_a_question_that_a_task_finds_to_be_nonsense_is_refused() -> None:
    one, one_post, two, two_post = pair()
    found: Promise[bytes | None] = Promise()
    two.serve_task(PING, lambda _peer, _body: found_by(found))
    answers: list[bytes | None] = []
    one.ask(2, PING, b"x").then(answers.append)
    carry(one_post, 1, two)
    found.fail(RemoteProtocolError(0x82, "nonsense"))
    carry(two_post, 2, one)
    assert answers == [None]


def test_a_question_whose_task_fails_later_is_refused() -> None:
    one, one_post, two, two_post = pair()
    found: Promise[bytes | None] = Promise()
    two.serve_task(PING, lambda _peer, _body: found_by(found))
    answers: list[bytes | None] = []
    one.ask(2, PING, b"x").then(answers.append)
    carry(one_post, 1, two)
    found.fail(NotReady("not now"))
    carry(two_post, 2, one)
    assert answers == [None]


@pytest.mark.parametrize("end", ["down", "late"])
def test_an_error_of_one_caller_does_not_leave_the_others_waiting(end: str) -> None:
    one, _, _, _ = pair()
    answers: list[bytes | None] = []

    def broken(_answer: bytes | None) -> None:
        raise FlockError("broken")

    one.ask(2, PING, b"x").then(broken)
    one.ask(2, PING, b"y").then(answers.append)
    give_up = partial(one.peer_down, 2, 1) if end == "down" else partial(one.tick, TIMEOUT_MS)
    with pytest.raises(FlockError, match="broken"):
        give_up()
    assert answers == [None]


def test_a_node_with_many_tasks_refuses_questions_that_take_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.peering.calls.ANSWERS_MAX", 1)
    one, one_post, two, two_post = pair()
    found: Promise[bytes | None] = Promise()
    two.serve_task(PING, lambda _peer, _body: found_by(found))
    answers: list[bytes | None] = []
    one.ask(2, PING, b"x").then(answers.append)
    one.ask(2, PING, b"y").then(answers.append)
    carry(one_post, 1, two)
    carry(two_post, 2, one)
    assert answers == [None]
    found.set(b"z")
    carry(two_post, 2, one)
    assert answers == [None, b"z"]


def found_by(promise: Promise[bytes | None]) -> Task[bytes | None]:
    return (yield from promise)


@pytest.mark.parametrize("body", [b"", b"\x01", bytes(10), bytes(BODY_BYTES_MAX + 1)])
def test_malformed_bodies_end_the_link(body: bytes) -> None:
    one, _, _, _ = pair()
    with pytest.raises(RemoteProtocolError):
        one.receive(2, body, 0)
