from __future__ import annotations

import pytest

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.topics import (
    check_topic_filter,
    check_topic_name,
    has_wildcard,
    matches,
    split_delayed,
    split_replay,
    split_shared,
    valid_utf8,
)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (b"", True),
        (b"plain", True),
        ("grün/雪/🦆".encode(), True),
        (b"\xef\xbb\xbfbom", True),  # [MQTT-1.5.4-3]
        (b"\x01\x1f\x7f", True),  # control characters: let through
        (b"\xef\xbf\xbf", True),  # U+FFFF, a non-character: let through
        (b"\xf4\x8f\xbf\xbf", True),  # U+10FFFF
        (b"a\x00b", False),  # [MQTT-1.5.4-2]
        ("ü\x00".encode(), False),
        (b"\xc0\x80", False),  # overlong U+0000
        (b"\xe0\x80\xaf", False),  # overlong /
        (b"\xed\xa0\x80", False),  # surrogate [MQTT-1.5.4-1]
        (b"\xed\xbf\xbf", False),
        (b"\xf4\x90\x80\x80", False),  # beyond U+10FFFF
        (b"\xc3", False),
        (b"\xff", False),
    ],
)
def test_valid_utf8(text: bytes, valid: bool) -> None:
    assert valid_utf8(text) is valid


@pytest.mark.parametrize("topic", [b"/", b"a", b"a/b", b"//", b"$SYS/a", b" ", "ü/雪".encode(), b"a\x01"])
def test_valid_names(topic: bytes) -> None:
    check_topic_name(topic, 3, 65_535)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (b"", 0x90),  # [MQTT-4.7.3-1]
        (b"a/+", 0x90),  # [MQTT-3.3.2-2]
        (b"#", 0x90),
        (b"a#b", 0x90),
        (b"a\x00", 0x81),  # [MQTT-4.7.3-2]
        (b"\xed\xa0\x80", 0x81),
        (b"a/b/c/d", 0x90),  # four levels, three allowed
        (b"123456789", 0x90),  # nine bytes, eight allowed
    ],
)
def test_invalid_names(topic: bytes, reason: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        check_topic_name(topic, 3, 8)
    assert caught.value.reason_code == reason


@pytest.mark.parametrize(
    "topic_filter", [b"#", b"+", b"/", b"+/+", b"/+", b"a/#", b"+/#", b"a/+/b/#", b"/#", b"$SYS/#", b"a//#", b"a b/+"]
)
def test_valid_filters(topic_filter: bytes) -> None:
    check_topic_filter(topic_filter, 4, 65_535)


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        (b"", 0x8F),  # [MQTT-4.7.3-1]
        (b"a#", 0x8F),  # [MQTT-4.7.1-1]
        (b"a/#/b", 0x8F),
        (b"#/", 0x8F),
        (b"##", 0x8F),
        (b"#/#", 0x8F),
        (b"a/b#", 0x8F),
        (b"a+", 0x8F),  # [MQTT-4.7.1-2]
        (b"+a/b", 0x8F),
        (b"a/++", 0x8F),
        (b"a/+#", 0x8F),
        (b"a\x00", 0x81),  # [MQTT-4.7.3-2]
        (b"\xff", 0x81),
        (b"1/2/3/4/#", 0x8F),  # five levels, four allowed
        (b"123456789/#", 0x8F),  # eleven bytes, ten allowed
    ],
)
def test_invalid_filters(topic_filter: bytes, reason: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        check_topic_filter(topic_filter, 4, 10)
    assert caught.value.reason_code == reason


def test_limits_are_the_largest_that_passes() -> None:
    check_topic_name(b"a/b/c", 3, 5)
    check_topic_filter(b"a/b/#", 3, 5)


def test_zero_is_no_limit() -> None:
    check_topic_name(b"/" * 65_535)
    check_topic_filter(b"/" * 65_535)


def test_has_wildcard() -> None:
    assert has_wildcard(b"a/+")
    assert has_wildcard(b"#")
    assert not has_wildcard(b"a/b")


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        (b"a/b", (None, b"a/b")),
        (b"$share", (None, b"$share")),
        (b"$shared/g/a", (None, b"$shared/g/a")),
        (b"$share/g/a/#", (b"g", b"a/#")),
        (b"$share/g//", (b"g", b"/")),
        (b"$share/$g/$SYS/#", (b"$g", b"$SYS/#")),
    ],
)
def test_split_shared(topic_filter: bytes, expected: tuple[bytes | None, bytes]) -> None:
    assert split_shared(topic_filter) == expected


@pytest.mark.parametrize(
    "topic_filter",
    [
        b"$share/",
        b"$share//",
        b"$share//a",
        b"$share/g",
        b"$share/g/",
        b"$share/+/a",
        b"$share/g#/a",
    ],  # [MQTT-4.8.2-1] -2
)
def test_broken_shared_filters(topic_filter: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        split_shared(topic_filter)
    assert caught.value.reason_code == 0x8F


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (b"a/b", None),
        (b"$delayed", None),
        (b"$delayed/0/a", (0, b"a")),
        (b"$delayed/15/a/b", (15, b"a/b")),
        (b"$delayed/4294967295//", (4_294_967_295, b"/")),
    ],
)
def test_split_delayed(topic: bytes, expected: tuple[int, bytes] | None) -> None:
    assert split_delayed(topic) == expected


@pytest.mark.parametrize(
    "topic",
    [
        b"$delayed/",
        b"$delayed//a",
        b"$delayed/5",
        b"$delayed/5/",
        b"$delayed/-5/a",
        b"$delayed/1.5/a",
        b"$delayed/1_0/a",
        "$delayed/٣/a".encode(),
        b"$delayed/" + b"9" * 11 + b"/a",
    ],
)
def test_broken_delays(topic: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        split_delayed(topic)
    assert caught.value.reason_code == 0x90


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # The examples of section 4.7.1.
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"sport/#", b"sports", False),
        (b"#", b"anything/at/all", True),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"+/tennis/#", b"sport/tennis", True),
        # Section 4.7.2. [MQTT-4.7.2-1]
        (b"#", b"$SYS/monitor", False),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),
        (b"$SYS/#", b"$SYS/monitor", True),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
        (b"a/#", b"a/$SYS", True),
        (b"a/+", b"a/$SYS", True),
        # Section 4.7.3.
        (b"ACCOUNTS", b"Accounts", False),
        (b"/a", b"a", False),
        (b"a", b"a/", False),
        (b"a/", b"a", False),
        (b"a/b", b"a/b/c", False),
        (b"a/b/c", b"a/b", False),
        (b"a/b", b"a/b", True),
    ],
)
def test_matches(topic_filter: bytes, topic: bytes, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


def test_a_replay_is_a_start_and_a_filter() -> None:
    assert split_replay(b"a/b") == (b"", b"a/b")
    assert split_replay(b"$replay/earliest/a/#") == (b"earliest", b"a/#")
    assert split_replay(b"$replay/time:2026-01-02T03:04:05Z/$share/g/a") == (
        b"time:2026-01-02T03:04:05Z",
        b"$share/g/a",
    )


@pytest.mark.parametrize("topic_filter", [b"$replay/", b"$replay/earliest", b"$replay/earliest/", b"$replay//a"])
def test_a_replay_without_start_or_filter_is_refused(topic_filter: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        split_replay(topic_filter)
