"""The handshake between nodes, word by word: who knows the cookie gets through, and nobody else moves anything."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.wire import hello
from flockmq.wire.hello import Callee, Caller, HelloError, PeerInfo

KEY = bytes(range(32))
OTHER_KEY = bytes(32)
A = bytes([0xAA]) * 32
B = bytes([0xBB]) * 32
BINDING = hello.binding_of(b"caller's", b"callee's")


def info(node_id: int, boot: int = 1, cluster_id: int = 0) -> PeerInfo:
    return PeerInfo(node_id, boot, cluster_id, f"n{node_id}@host", "0.1.0")


def facts(who: PeerInfo) -> tuple[int, int, int, str, str]:
    return who.node_id, who.boot, who.cluster_id, who.name, who.version


def pair(
    *, caller: PeerInfo | None = None, callee: PeerInfo | None = None, meant: int = 0, wants_tls: bool = False
) -> tuple[Caller, Callee]:
    return Caller(KEY, caller or info(1), meant, wants_tls, A), Callee(KEY, callee or info(2), B)


def shake(caller: Caller, callee: Callee, binding: bytes = hello.NO_TLS) -> HelloError | None:
    """The whole handshake, as two drivers would have it; returns the callee's objection."""
    callee.knock(caller.hello())
    caller.bind(binding)
    assert caller.feed(callee.welcome(binding)) == hello.PROVED
    assert callee.feed(caller.proof()) == hello.PROVED
    objection = callee.objection()
    caller.feed(callee.answer(objection))
    return objection


@pytest.mark.parametrize("wants_tls", [False, True])
def test_both_know_each_other_in_the_end(wants_tls: bool) -> None:
    caller, callee = pair(caller=info(1, 10, 7), callee=info(2, 20, 7), meant=2, wants_tls=wants_tls)
    assert shake(caller, callee, BINDING if wants_tls else hello.NO_TLS) is None
    assert (caller.stage, callee.stage, callee.wants_tls) == (hello.DONE, hello.DONE, wants_tls)
    assert callee.caller_nonce() == A
    for found, expected in ((caller.peer, info(2, 20, 7)), (callee.peer, info(1, 10, 7))):
        assert found is not None
        assert facts(found) == facts(expected)


def test_the_cookie_is_not_in_what_is_said() -> None:
    caller, callee = pair()
    said = caller.hello()
    callee.knock(said)
    said += callee.welcome()
    caller.feed(said[hello.HELLO_BYTES :])
    said += caller.proof()
    assert KEY not in said


def test_before_its_proof_nobody_gets_more_bytes_than_it_sent() -> None:
    caller, callee = pair()
    said = caller.hello()
    callee.knock(said)
    assert len(callee.welcome()) < len(said)


@pytest.mark.parametrize("cut", [1, 7, 31])
def test_any_cut_gives_the_same(cut: int) -> None:
    caller, callee = pair()
    callee.knock(caller.hello())
    welcome = callee.welcome()
    stages = [caller.feed(welcome[at : at + cut]) for at in range(0, len(welcome), cut)]
    assert stages[-1] == hello.PROVED
    assert set(stages[:-1]) == {hello.WAITING}
    proof = caller.proof()
    assert [callee.feed(proof[at : at + cut]) for at in range(0, len(proof), cut)][-1] == hello.PROVED
    answer = callee.answer(None) + b"frames follow"
    for at in range(0, len(answer), cut):
        caller.feed(answer[at : at + cut]) if caller.stage != hello.DONE else None
    assert caller.stage == hello.DONE
    assert b"frames follow".startswith(caller.rest)


def test_frames_after_the_answer_are_kept() -> None:
    caller, callee = pair()
    callee.knock(caller.hello())
    caller.feed(callee.welcome())
    callee.feed(caller.proof())
    assert caller.feed(callee.answer(None) + b"frames") == hello.DONE
    assert caller.rest == b"frames"


@pytest.mark.parametrize(
    ("caller", "callee", "meant", "kind"),
    [
        (info(1, 5), info(1, 5), 0, hello.SELF),
        (info(1, 5), info(1, 6), 0, hello.SELF),
        (info(1, 1, 7), info(2, 1, 8), 0, hello.CLUSTER),
        (info(1), info(2), 3, hello.WRONG_NODE),
    ],
)
def test_who_is_proved_is_told_why_not(caller: PeerInfo, callee: PeerInfo, meant: int, kind: int) -> None:
    calling, called = pair(caller=caller, callee=callee, meant=meant)
    called.knock(calling.hello())
    with pytest.raises(HelloError) as found:
        calling.feed(called.welcome())
    assert found.value.kind == kind
    assert found.value.peer is not None
    assert found.value.peer.node_id == callee.node_id


def test_a_callee_objects_for_itself() -> None:
    """A caller that does not look, or looked before something changed, is told."""
    node = info(2, 1, 8)
    caller, callee = pair(caller=info(1, 1, 7), callee=node)
    node.cluster_id = 0
    callee.knock(caller.hello())
    caller.feed(callee.welcome())
    callee.feed(caller.proof())
    node.cluster_id = 8
    objection = callee.objection()
    assert objection is not None
    with pytest.raises(HelloError, match="These are two clusters, 0000000000000008 and 0000000000000007") as found:
        caller.feed(callee.answer(objection))
    assert found.value.kind == hello.CLUSTER


def test_who_is_in_no_cluster_yet_may_call_and_be_called() -> None:
    assert shake(*pair(caller=info(1, 1, 0), callee=info(2, 1, 8))) is None
    assert shake(*pair(caller=info(1, 1, 8), callee=info(2, 1, 0))) is None


def test_another_cookie_meets_silence() -> None:
    caller = Caller(OTHER_KEY, info(1), 0, False, A)
    callee = Callee(KEY, info(2), B)
    with pytest.raises(HelloError, match="does not know this cluster's cookie") as found:
        callee.knock(caller.hello())
    assert found.value.kind == hello.COOKIE
    assert callee.stage == hello.FAILED


def test_a_callee_with_another_cookie_is_found_out() -> None:
    """Somebody who heard a HELLO can't answer it."""
    caller, _ = pair()
    caller.hello()
    liar = Callee(OTHER_KEY, info(2), B)
    liar.knock(Caller(OTHER_KEY, info(1), 0, False, A).hello())
    with pytest.raises(HelloError) as found:
        caller.feed(liar.welcome())
    assert found.value.kind == hello.COOKIE


def test_a_recorded_caller_gets_no_further_than_the_welcome() -> None:
    caller, callee = pair()
    recorded = caller.hello()
    callee.knock(recorded)
    caller.feed(callee.welcome())
    proof = caller.proof()
    later = Callee(KEY, info(2), bytes([0xCC]) * 32)
    later.knock(recorded)
    later.welcome()
    with pytest.raises(HelloError) as found:
        later.feed(proof)
    assert found.value.kind == hello.COOKIE


def test_a_recorded_callee_convinces_nobody() -> None:
    caller, callee = pair()
    callee.knock(caller.hello())
    recorded = callee.welcome()
    later = Caller(KEY, info(1), 0, False, bytes([0xCC]) * 32)
    later.hello()
    with pytest.raises(HelloError):
        later.feed(recorded)


def test_a_proof_thrown_back_proves_nothing() -> None:
    """Roles are part of what is proved: a node's own words, said to it, are worth nothing."""
    caller, callee = pair()
    said = caller.hello()
    with pytest.raises(HelloError):
        caller.feed(said[: hello.WELCOME_BYTES])
    callee.knock(said)
    welcome = callee.welcome()
    with pytest.raises(HelloError):
        callee.feed((0).to_bytes(2, "little") + welcome[-hello.MAC_BYTES :])
    # What the callee proved, as the caller's proof with the same words in front.
    caller, callee = pair()
    callee.knock(caller.hello())
    caller.feed(callee.welcome())
    proof = caller.proof()
    with pytest.raises(HelloError):
        caller.feed(bytes([hello.READY]) + proof)


def test_who_ends_the_tls_of_both_is_found_out() -> None:
    caller, callee = pair(wants_tls=True)
    callee.knock(caller.hello())
    caller.bind(hello.binding_of(b"caller's", b"of who is in between"))
    with pytest.raises(HelloError) as found:
        caller.feed(callee.welcome(hello.binding_of(b"of who is in between", b"callee's")))
    assert found.value.kind == hello.COOKIE


def test_nobody_can_take_the_wish_for_tls_away() -> None:
    caller, callee = pair(wants_tls=True)
    said = bytearray(caller.hello())
    said[6] &= ~hello.WANTS_TLS
    with pytest.raises(HelloError):
        callee.knock(bytes(said))


def test_a_version_that_nobody_speaks_here() -> None:
    fields = struct.pack("<4sBBHQQQQ32s", hello.MAGIC, 9, 12, 0, 1, 1, 0, 0, A)
    _, callee = pair()
    with pytest.raises(HelloError, match="speaks versions 9 to 12") as found:
        callee.knock(hello.sealed_hello(KEY, fields))
    assert found.value.kind == hello.VERSION


def test_the_newest_version_that_both_speak() -> None:
    fields = struct.pack("<4sBBHQQQQ32s", hello.MAGIC, 1, 200, 0, 1, 1, 0, 0, A)
    _, callee = pair()
    callee.knock(hello.sealed_hello(KEY, fields))
    assert callee.welcome()[4] == hello.VERSION_HIGHEST


def test_speaking_out_of_turn() -> None:
    caller, callee = pair()
    callee.knock(caller.hello())
    welcome = callee.welcome()
    with pytest.raises(HelloError):
        caller.feed(welcome + b"more")
    caller, callee = pair()
    callee.knock(caller.hello())
    caller.feed(callee.welcome())
    with pytest.raises(HelloError):
        callee.feed(caller.proof() + b"a frame too early")


@pytest.mark.parametrize(
    ("sent", "may_be"),
    [(b"", True), (b"F", True), (b"FLKL", True), (b"FLKL123", True), (b"GET ", False), (b"\x80\x04", False)],
)
def test_strangers_show_early(sent: bytes, may_be: bool) -> None:
    assert hello.looks_like_hello(sent) is may_be


# Whatever a stranger says, the one thing that happens is HelloError.


@given(st.binary(max_size=hello.HELLO_BYTES + 10))
def test_any_bytes_as_hello(data: bytes) -> None:
    _, callee = pair()
    with pytest.raises(HelloError):
        callee.knock(data)


@given(st.integers(0, hello.HELLO_BYTES - 1), st.integers(1, 255))
def test_any_change_of_a_hello(position: int, change: int) -> None:
    caller, callee = pair()
    said = bytearray(caller.hello())
    said[position] ^= change
    with pytest.raises(HelloError):
        callee.knock(bytes(said))


def fed(side: Caller | Callee, pieces: list[bytes]) -> int:
    """Feed until it is enough; the stage, FAILED when it was refused."""
    try:
        for piece in pieces:
            if side.feed(piece) in (hello.PROVED, hello.DONE):
                break
    except HelloError:
        assert side.stage == hello.FAILED
    return side.stage


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_bytes_as_welcome(pieces: list[bytes]) -> None:
    caller, _ = pair()
    caller.hello()
    assert fed(caller, pieces) in (hello.WAITING, hello.FAILED)
    assert caller.peer is None


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_any_bytes_as_proof(pieces: list[bytes]) -> None:
    caller, callee = pair()
    callee.knock(caller.hello())
    callee.welcome()
    assert fed(callee, pieces) in (hello.WAITING, hello.FAILED)


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_any_bytes_as_answer(pieces: list[bytes]) -> None:
    caller, callee = pair()
    callee.knock(caller.hello())
    caller.feed(callee.welcome())
    caller.proof()
    assert fed(caller, pieces) in (hello.ASKING, hello.FAILED)


@given(st.sampled_from(["welcome", "proof", "answer"]), st.data())
def test_any_change_of_what_follows(which: str, data: st.DataObject) -> None:
    caller, callee = pair()
    callee.knock(caller.hello())

    def changed(said: bytes, name: str) -> bytes:
        if name != which:
            return said
        altered = bytearray(said)
        altered[data.draw(st.integers(0, len(said) - 1))] ^= data.draw(st.integers(1, 255))
        return bytes(altered)

    try:
        caller.feed(changed(callee.welcome(), "welcome"))
        callee.feed(changed(caller.proof(), "proof"))
        caller.feed(changed(callee.answer(None), "answer"))
    except (HelloError, AssertionError):
        pass  # an assertion: our own driver would have gone on where it must not
    assert (caller.stage, callee.stage) != (hello.DONE, hello.DONE)


@given(st.tuples(*[st.integers(0, 2**64 - 1)] * 3), st.text(max_size=60), st.text(max_size=15), st.booleans())
def test_anybody_can_introduce_itself(ids: tuple[int, int, int], name: str, version: str, wants_tls: bool) -> None:
    who = PeerInfo(*ids, name, version)
    callee = info((who.node_id + 1) % 2**64, cluster_id=who.cluster_id)
    calling, called = Caller(KEY, who, 0, wants_tls, A), Callee(KEY, callee, B)
    assert shake(calling, called) is None
    assert called.peer is not None
    assert facts(called.peer) == facts(who)
    assert calling.peer is not None
    assert facts(calling.peer) == facts(callee)
