from __future__ import annotations

import pytest

from flockmq.admin.guard import AttemptThrottle, Guard, check_host, host_name
from flockmq.errors import TOO_MANY_ATTEMPTS, UNAUTHORIZED, WRONG_HOST, ApiError, ErrorKind


class Door:
    """A guard that knows one token and notes what it did."""

    def __init__(self, burst: int = 3, refill_ms: int = 1_000) -> None:
        self.asked: list[str] = []
        self.reported: list[str] = []
        self.guard = Guard(self.verify, AttemptThrottle(burst, refill_ms), self.reported.append)

    def verify(self, token: str) -> bool:
        self.asked.append(token)
        return token == "right"

    def knock(self, authorization: str | None, now_ms: int = 0, address: str = "192.0.2.1") -> ErrorKind | None:
        try:
            self.guard.check(address, authorization, now_ms)
        except ApiError as error:
            return error.kind
        return None


@pytest.mark.parametrize("authorization", ["Bearer right", "bearer right", "BEARER   right "])
def test_the_right_token_opens(authorization: str) -> None:
    assert Door().knock(authorization) is None


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "right", "Basic cmlnaHQ=", "Bearerright"])
def test_no_token_is_no_attempt(authorization: str | None) -> None:
    door = Door()
    for _ in range(10):
        assert door.knock(authorization) is UNAUTHORIZED
    assert door.asked == []
    assert door.knock("Bearer right") is None


def test_401_says_which_scheme_is_wanted() -> None:
    with pytest.raises(ApiError) as refused:
        Door().guard.check("192.0.2.1", None, 0)
    assert refused.value.headers["WWW-Authenticate"] == 'Bearer realm="flockmq"'


def test_401_says_which_cluster_answers_so_that_a_client_of_several_knows_its_token() -> None:
    guard = Guard(lambda _token: False, AttemptThrottle(), lambda _peer: None, lambda: "00ff00ff00ff00ff")
    for authorization in (None, "Bearer wrong"):
        with pytest.raises(ApiError) as refused:
            guard.check("192.0.2.1", authorization, 0)
        assert refused.value.headers["WWW-Authenticate"] == 'Bearer realm="flockmq", cluster="00ff00ff00ff00ff"'


def test_after_too_many_wrong_tokens_further_ones_are_not_counted_or_reported() -> None:
    door = Door(burst=3)
    assert [door.knock(f"Bearer wrong{number}") for number in range(3)] == [UNAUTHORIZED] * 3
    assert door.knock("Bearer wrong3") is TOO_MANY_ATTEMPTS
    assert door.guard.failures == 4
    assert door.reported == ["192.0.2.1"] * 3


def test_the_right_token_is_served_whatever_else_came_from_its_address() -> None:
    door = Door(burst=3, refill_ms=2_000)
    for second in range(60):
        assert door.knock("Bearer wrong", now_ms=second * 1_000) is not None
        assert door.knock("Bearer right", now_ms=second * 1_000) is None


def test_time_forgives() -> None:
    door = Door(burst=3, refill_ms=1_000)
    for _ in range(3):
        door.knock("Bearer wrong")
    assert door.knock("Bearer wrong", now_ms=999) is TOO_MANY_ATTEMPTS
    assert door.knock("Bearer wrong", now_ms=1_000) is UNAUTHORIZED
    assert door.knock("Bearer wrong", now_ms=1_001) is TOO_MANY_ATTEMPTS


def test_retry_after_is_how_long_to_wait() -> None:
    door = Door(burst=1, refill_ms=1_500)
    door.knock("Bearer wrong")
    with pytest.raises(ApiError) as refused:
        door.guard.check("192.0.2.1", "Bearer wrong", 0)
    assert refused.value.headers["Retry-After"] == "2"
    assert door.knock("Bearer wrong", now_ms=2_000) is UNAUTHORIZED


def test_one_address_does_not_lock_another_out() -> None:
    door = Door(burst=1)
    door.knock("Bearer wrong", address="192.0.2.1")
    assert door.knock("Bearer wrong", address="192.0.2.2") is UNAUTHORIZED


@pytest.mark.parametrize(
    ("one", "other"),
    [("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"), ("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::2")],
)
def test_addresses_of_one_customer_count_together(one: str, other: str) -> None:
    door = Door(burst=1)
    door.knock("Bearer wrong", address=one)
    assert door.knock("Bearer wrong", address=other) is TOO_MANY_ATTEMPTS


def test_other_ipv6_networks_count_apart() -> None:
    door = Door(burst=1)
    door.knock("Bearer wrong", address="2001:db8:1:2::1")
    assert door.knock("Bearer wrong", address="2001:db8:1:3::1") is UNAUTHORIZED


def test_addresses_are_bounded_and_the_quiet_ones_forgotten() -> None:
    throttle = AttemptThrottle(burst=1, refill_ms=60_000, addresses_max=2)
    for number in range(1, 6):
        throttle.failed(f"192.0.2.{number}", 0)
    assert len(throttle) == 2
    assert throttle.wait_ms("192.0.2.1", 0) == 0
    assert throttle.wait_ms("192.0.2.5", 0) > 0


def test_a_huge_token_is_wrong_without_being_hashed() -> None:
    door = Door()
    assert door.knock("Bearer " + "x" * 1_025) is UNAUTHORIZED
    assert door.asked == []
    assert door.guard.failures == 1


LOCAL = [
    "localhost",
    "localhost:18083",
    "LocalHost:1",
    "127.0.0.1:18083",
    "127.9.9.9",
    "[::1]:18083",
    "[::1]",
    "localhost.",
]
FOREIGN = [
    None,
    "",
    "evil.example",
    "evil.example:18083",
    "127.0.0.1.evil.example",
    "[2001:db8::1]",
    "localhost.evil.example",
]


@pytest.mark.parametrize("local_address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", LOCAL)
def test_on_loopback_its_own_names_are_taken(host: str, local_address: str) -> None:
    check_host(host, local_address, frozenset())


@pytest.mark.parametrize("host", FOREIGN)
def test_on_loopback_other_names_are_refused(host: str | None) -> None:
    with pytest.raises(ApiError) as refused:
        check_host(host, "127.0.0.1", frozenset())
    assert refused.value.kind is WRONG_HOST


def test_on_loopback_a_name_can_be_allowed() -> None:
    check_host("mqtt.example:443", "127.0.0.1", frozenset({"mqtt.example"}))
    check_host("localhost", "127.0.0.1", frozenset({"mqtt.example"}))
    with pytest.raises(ApiError):
        check_host("evil.example", "127.0.0.1", frozenset({"mqtt.example"}))


def test_elsewhere_any_host_is_taken_until_names_are_given() -> None:
    check_host("anything.example", "192.0.2.1", frozenset())
    check_host("mqtt.example", "192.0.2.1", frozenset({"mqtt.example"}))
    with pytest.raises(ApiError):
        check_host("anything.example", "192.0.2.1", frozenset({"mqtt.example"}))
    with pytest.raises(ApiError):
        check_host("localhost", "192.0.2.1", frozenset({"mqtt.example"}))


@pytest.mark.parametrize(
    ("host", "name"), [("[::1]:80", "::1"), ("A.b:1", "a.b"), ("a.b.", "a.b"), ("", ""), ("[", ""), ("::1", "")]
)
def test_host_names(host: str, name: str) -> None:
    assert host_name(host) == name
