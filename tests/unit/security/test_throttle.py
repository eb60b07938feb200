from __future__ import annotations

from flockmq.security.settings import SecuritySettings
from flockmq.security.throttle import LoginThrottle


def throttle_of(*, peer: int = 3, name: int = 0, tracked: int = 100) -> LoginThrottle:
    return LoginThrottle(
        SecuritySettings(
            failed_logins_per_peer_max=peer,
            failed_logins_per_username_max=name,
            failed_logins_window_ms=1_000,
            failed_logins_ban_ms=5_000,
            failed_logins_tracked_max=tracked,
        )
    )


def test_an_address_is_refused_after_too_many_failures_until_the_ban_passes() -> None:
    throttle = throttle_of()
    for now in (0, 10):
        throttle.failed("192.0.2.1", "alice", now)
        assert throttle.blocked("192.0.2.1", "alice", now) == 0
    throttle.failed("192.0.2.1", "bob", 20)
    assert throttle.blocked("192.0.2.1", None, 20) == 5_000
    assert throttle.blocked("192.0.2.1", "carol", 5_019) == 1
    assert throttle.blocked("192.0.2.1", "carol", 5_020) == 0
    assert throttle.blocked("192.0.2.2", "alice", 20) == 0


def test_failures_far_apart_do_not_add_up() -> None:
    throttle = throttle_of()
    for now in range(0, 20_000, 1_000):
        throttle.failed("192.0.2.1", None, now)
        assert throttle.blocked("192.0.2.1", None, now) == 0


def test_after_a_ban_the_count_starts_anew() -> None:
    throttle = throttle_of()
    for now in (0, 0, 0, 6_000, 6_000):
        throttle.failed("192.0.2.1", None, now)
    assert throttle.blocked("192.0.2.1", None, 6_000) == 0
    throttle.failed("192.0.2.1", None, 6_000)
    assert throttle.blocked("192.0.2.1", None, 6_000) == 5_000


def test_a_name_is_refused_to_addresses_that_failed_and_forgiven_by_a_success() -> None:
    throttle = throttle_of(peer=0, name=3)
    throttle.failed("198.51.100.9", "bob", 0)
    for number in range(3):
        throttle.failed(f"192.0.2.{number}", "alice", 0)
    for address in ("192.0.2.1", "198.51.100.9"):
        assert throttle.blocked(address, "alice", 0) == 5_000
        assert throttle.blocked(address, "bob", 0) == 0
    assert throttle.blocked("192.0.2.1", None, 0) == 0, "addresses are not limited here"
    throttle.succeeded("alice")
    assert throttle.blocked("192.0.2.1", "alice", 0) == 0


def test_strangers_do_not_lock_a_user_out() -> None:
    throttle = throttle_of(peer=3, name=3)
    for number in range(9):
        throttle.failed(f"192.0.2.{number % 3}", "alice", number)
    assert throttle.blocked("192.0.2.1", "alice", 9) > 0
    assert throttle.blocked("198.51.100.9", "alice", 9) == 0
    throttle.failed("198.51.100.9", "alice", 9)
    assert throttle.blocked("198.51.100.9", "alice", 9) > 0, "one guess"


def test_an_own_account_is_no_licence_to_guess() -> None:
    throttle = throttle_of(peer=3, name=100)
    for name in ("alice", "bob", "carol"):
        throttle.failed("192.0.2.1", name, 0)
        throttle.succeeded("mallory")
    assert throttle.blocked("192.0.2.1", "dave", 0) == 5_000


def test_ipv6_counts_by_network_and_mapped_addresses_as_ipv4() -> None:
    throttle = throttle_of()
    for host in ("2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"):
        throttle.failed(host, None, 0)
    assert throttle.blocked("2001:db8::4", None, 0)
    assert not throttle.blocked("2001:db8:0:1::4", None, 0)
    for host in ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.7"):
        throttle.failed(host, None, 0)
    assert throttle.blocked("::ffff:192.0.2.7", None, 0)
    assert throttle.blocked("192.0.2.7", None, 0)


def test_the_tables_are_bounded_and_forget_the_oldest() -> None:
    throttle = throttle_of(peer=1, name=1, tracked=10)
    for number in range(50):
        throttle.failed(f"192.0.2.{number}", "name" * 10_000 + str(number), number)
    assert throttle.tracked == 20
    assert throttle.blocked("192.0.2.0", None, 50) == 0
    assert throttle.blocked("192.0.2.49", None, 50) > 0


def test_zero_turns_it_off() -> None:
    throttle = throttle_of(peer=0, name=0)
    for _ in range(1_000):
        throttle.failed("192.0.2.1", "alice", 0)
    assert throttle.blocked("192.0.2.1", "alice", 0) == 0
    assert throttle.tracked == 0


def test_an_address_that_is_none_is_counted_as_it_stands() -> None:
    throttle = throttle_of(peer=1)
    throttle.failed("/run/mqtt.sock", None, 0)
    assert throttle.blocked("/run/mqtt.sock", None, 0)
