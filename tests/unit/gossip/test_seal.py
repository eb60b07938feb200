from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.gossip.seal import BODY_BYTES_MAX, DATAGRAM_BYTES_MAX, SEAL_BYTES, WINDOW, Sealer, SealError

COOKIE = b"0123456789abcdef0123"


def pair() -> tuple[Sealer, Sealer]:
    return Sealer(COOKIE, 1, 1_000), Sealer(COOKIE, 2, 1_000)


def test_what_is_sealed_opens_once() -> None:
    one, two = pair()
    datagram = one.seal(b"hello")
    assert b"hello" not in datagram
    assert two.open(datagram) == (1, 1_000, b"hello")
    with pytest.raises(SealError):
        two.open(datagram)
    assert two.refused == 1


def test_the_largest_body_fits_a_datagram_and_a_larger_one_is_refused() -> None:
    one, two = pair()
    body = bytes(BODY_BYTES_MAX)
    assert len(one.seal(body)) == DATAGRAM_BYTES_MAX == BODY_BYTES_MAX + SEAL_BYTES
    assert two.open(one.seal(body))[2] == body
    with pytest.raises(FlockError):
        one.seal(body + b"x")


def test_any_order_within_the_window_is_fine() -> None:
    one, two = pair()
    datagrams = [one.seal(bytes([number & 255])) for number in range(WINDOW)]
    for datagram in reversed(datagrams):
        two.open(datagram)
    for datagram in datagrams:
        with pytest.raises(SealError):
            two.open(datagram)


def test_what_is_older_than_the_window_is_refused() -> None:
    one, two = pair()
    first = one.seal(b"first")
    for _ in range(WINDOW):
        last = one.seal(b"later")
    two.open(last)
    with pytest.raises(SealError):
        two.open(first)


def test_an_earlier_life_is_refused_once_a_later_one_spoke() -> None:
    two = Sealer(COOKIE, 2, 5)
    old, new = Sealer(COOKIE, 1, 10), Sealer(COOKIE, 1, 11)
    two.open(old.seal(b"a"))
    two.open(new.seal(b"b"))
    with pytest.raises(SealError):
        two.open(old.seal(b"c"))


def test_a_forged_later_life_does_not_shut_out_the_real_one() -> None:
    two = Sealer(COOKIE, 2, 5)
    real, forger = Sealer(COOKIE, 1, 10), Sealer(b"another cookie....", 1, 99)
    two.open(real.seal(b"a"))
    with pytest.raises(SealError):
        two.open(forger.seal(b"b"))
    assert two.open(real.seal(b"c")) == (1, 10, b"c")


def test_strangers_are_not_remembered() -> None:
    two = Sealer(COOKIE, 2, 5)
    for node_id in range(100):
        with pytest.raises(SealError):
            two.open(Sealer(b"another cookie....", node_id, 1).seal(b"x"))
    assert two.senders() == 0
    assert two.refused == 100


def test_the_table_of_senders_is_bounded_and_the_silent_make_way() -> None:
    two = Sealer(COOKIE, 2, 5, senders_max=3)
    senders = [Sealer(COOKIE, 10 + number, 1) for number in range(4)]
    stale = senders[1].seal(b"")
    for sender in senders[:3]:
        two.open(sender.seal(b""))
    two.open(senders[0].seal(b""))
    two.open(senders[3].seal(b""))  # 11 was silent the longest
    assert two.senders() == 3
    two.open(stale)  # forgotten, so not known as a repeat: the price of a table that is too small


def test_a_short_cookie_is_refused() -> None:
    with pytest.raises(FlockError, match="at least 16"):
        Sealer(b"short", 1, 1)


@given(st.binary(max_size=1_500))
def test_garbage_is_refused(garbage: bytes) -> None:
    two = Sealer(COOKIE, 2, 5)
    with pytest.raises(SealError):
        two.open(garbage)
    assert two.senders() == 0


@given(st.binary(max_size=100), st.data())
def test_no_changed_byte_goes_unnoticed(body: bytes, data: st.DataObject) -> None:
    one, two = pair()
    datagram = bytearray(one.seal(body))
    place = data.draw(st.integers(0, len(datagram) - 1))
    datagram[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SealError):
        two.open(bytes(datagram))
