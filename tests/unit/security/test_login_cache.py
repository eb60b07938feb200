from __future__ import annotations

from flockmq.security.login_cache import LoginCache


def test_a_login_is_known_for_its_time_and_use_does_not_prolong_it() -> None:
    cache = LoginCache(b"key", 10, 1_000)
    tag = cache.tag("alice", b"secret", "$hash")
    assert not cache.holds(tag, 0)
    cache.add(tag, 0)
    assert cache.holds(tag, 999)
    assert not cache.holds(tag, 1_000)
    assert len(cache) == 0


def test_every_part_of_a_login_counts() -> None:
    cache = LoginCache(b"key", 10, 1_000)
    tags = {
        cache.tag("alice", b"secret", "$hash"),
        cache.tag("alic", b"esecret", "$hash"),
        cache.tag("alice", b"secre", "t$hash"),
        cache.tag("alice", b"secret", "$other"),
        LoginCache(b"other key", 10, 1_000).tag("alice", b"secret", "$hash"),
    }
    assert len(tags) == 5


def test_it_is_bounded_and_keeps_what_is_used() -> None:
    cache = LoginCache(b"key", 3, 1_000)
    for tag in (b"1", b"2", b"3"):
        cache.add(tag, 0)
    cache.holds(b"1", 0)
    cache.add(b"4", 0)
    assert [cache.holds(tag, 0) for tag in (b"1", b"2", b"3", b"4")] == [True, False, True, True]


def test_it_can_be_emptied_and_turned_off() -> None:
    cache = LoginCache(b"key", 10, 1_000)
    cache.add(b"1", 0)
    cache.clear()
    assert not cache.holds(b"1", 0)
    for off in (LoginCache(b"key", 0, 1_000), LoginCache(b"key", 10, 0)):
        off.add(b"1", 0)
        assert len(off) == 0


def test_nothing_secret_is_shown() -> None:
    assert repr(LoginCache(b"topsecret", 1, 1)) == "LoginCache(0)"
