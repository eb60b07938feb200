from __future__ import annotations

from flockmq.routing.retained import MESSAGE_OVERHEAD_BYTES, RetainedMessage, RetainedStore, message_bytes
from routing_cases import run_of


def put(store: RetainedStore, topic: bytes, payload: bytes = b"x", expires_at: int = 0, now: int = 0) -> bool:
    return store.put(topic, run_of(topic, payload, expires_at), now)


def topics(messages: list[RetainedMessage]) -> list[bytes]:
    return sorted(message.topic for message in messages)


def test_the_last_message_of_a_topic_is_kept() -> None:
    store = RetainedStore(0, 0)
    first, last = run_of(b"a/b", b"1"), run_of(b"a/b", b"2")
    assert store.put(b"a/b", first, 5)
    assert store.put(b"a/b", last, 6)
    message = store.get(b"a/b", 7)
    assert message is not None
    assert (message.topic, message.run, message.stored_at) == (b"a/b", last, 6)
    assert store.match(b"a/+", 7) == [message]
    assert store.count == 1
    assert store.bytes == message_bytes(b"a/b", last)


def test_bytes_count_topic_packet_and_overhead() -> None:
    run = run_of(b"topic", b"payload")
    assert message_bytes(b"topic", run) == 5 + len(run.wire) + MESSAGE_OVERHEAD_BYTES


def test_a_deleted_message_is_gone() -> None:
    store = RetainedStore(0, 0)
    put(store, b"a")
    assert store.delete(b"a")
    assert not store.delete(b"a")
    assert store.get(b"a", 0) is None
    assert store.match(b"#", 0) == []
    assert (store.count, store.bytes) == (0, 0)


def test_a_filter_finds_what_it_matches() -> None:
    store = RetainedStore(0, 0)
    for topic in (b"a", b"a/b", b"a/b/c", b"x", b"$other/a"):
        put(store, topic)
    assert topics(store.match(b"a/#", 0)) == [b"a", b"a/b", b"a/b/c"]
    assert topics(store.match(b"#", 0)) == [b"a", b"a/b", b"a/b/c", b"x"]
    assert topics(store.match(b"$other/+", 0)) == [b"$other/a"]
    assert topics(store.match(b"a/b", 0)) == [b"a/b"]


def test_a_match_tells_its_work_and_can_be_bounded() -> None:
    store = RetainedStore(0, 0)
    for number in range(100):
        put(store, b"%d/x" % number, expires_at=1_000)
    assert store.match(b"7/x", 0)
    assert store.steps < 10
    assert store.match(b"+/nothing", 0) == []
    assert store.steps >= 100
    assert store.match_within(b"+/x", 0, 50) is None
    found = store.match_within(b"+/x", 0, 500)
    assert found is not None
    assert topics(found) == sorted(store.topics())
    assert store.match_within(b"+/x", 1_000, 500) == []
    assert store.topics() == []


def test_messages_beyond_the_limit_are_refused_and_change_nothing() -> None:
    store = RetainedStore(2, 0)
    assert put(store, b"a")
    assert put(store, b"b")
    size = store.bytes
    assert not put(store, b"c")
    assert (store.count, store.bytes) == (2, size)
    assert store.get(b"c", 0) is None
    assert put(store, b"a", b"replaced")
    store.delete(b"b")
    assert put(store, b"c")


def test_bytes_beyond_the_limit_are_refused_unless_enough_is_replaced() -> None:
    size = message_bytes(b"a", run_of(b"a", bytes(100)))
    store = RetainedStore(0, 2 * size)
    assert put(store, b"a", bytes(100))
    assert put(store, b"b", bytes(100))
    assert store.bytes == 2 * size
    assert not put(store, b"c", b"")
    assert not put(store, b"a", bytes(101))
    message = store.get(b"a", 0)
    assert message is not None
    assert message.run.payload(0) == bytes(100)
    assert put(store, b"a", bytes(50))
    assert put(store, b"b", bytes(120))


def test_expired_messages_are_not_handed_out() -> None:
    store = RetainedStore(0, 0)
    put(store, b"a/1", expires_at=1_000)
    put(store, b"a/2", expires_at=2_000)
    put(store, b"a/3")
    assert topics(store.match(b"a/+", 999)) == [b"a/1", b"a/2", b"a/3"]
    assert topics(store.match(b"a/+", 1_000)) == [b"a/2", b"a/3"]
    assert store.count == 2
    assert store.get(b"a/2", 1_999) is not None
    assert store.get(b"a/2", 2_000) is None
    assert store.count == 1


def test_a_sweep_looks_at_a_bounded_number_of_names() -> None:
    store = RetainedStore(0, 0)
    for number in range(10):
        put(store, b"a/%d" % number, expires_at=1_000)
        put(store, b"b/%d" % number)
    assert store.sweep(999, 100) == 0
    assert store.sweep(1_000, 4) == 4
    assert store.count == 16
    assert store.sweep(1_000, 4) == 4
    assert store.sweep(1_000, 4) == 2
    assert store.sweep(1_000, 4) == 0
    assert topics(store.match(b"#", 0)) == [b"b/%d" % number for number in range(10)]


def test_a_sweep_comes_to_every_name_in_turn() -> None:
    store = RetainedStore(0, 0)
    for number in range(10):
        put(store, b"a/%d" % number, expires_at=1_000 if number == 7 else 9_000)
    assert sum(store.sweep(5_000, 3) for _ in range(4)) == 1
    assert store.count == 9


def test_a_message_that_no_longer_expires_is_not_swept() -> None:
    store = RetainedStore(0, 0)
    put(store, b"a", expires_at=1_000)
    put(store, b"b", expires_at=1_000)
    assert store.sweep(500, 1) == 0
    put(store, b"a")
    put(store, b"b")
    assert store.sweep(2_000, 10) == 0
    assert store.sweep(2_000, 10) == 0
    assert store.count == 2


def test_a_sweep_spends_nothing_on_names_that_are_gone_or_stay() -> None:
    store = RetainedStore(0, 0)
    for topic in (b"first", b"gone/1", b"gone/2", b"stays/1", b"stays/2"):
        put(store, topic, expires_at=1_000)
    for number in (1, 2):
        store.delete(b"gone/%d" % number)
        put(store, b"stays/%d" % number)
    assert store.sweep(1_000, 1) == 1
    assert topics(store.match(b"#", 0)) == [b"stays/1", b"stays/2"]


def test_expired_messages_make_room_for_new_ones() -> None:
    store = RetainedStore(2, 0)
    put(store, b"a", expires_at=1_000)
    put(store, b"b", expires_at=1_000)
    assert not put(store, b"c", now=999)
    assert put(store, b"c", now=1_000)
    assert topics(store.match(b"#", 1_000)) == [b"c"]


def test_an_expired_message_is_replaced_when_the_store_is_full() -> None:
    store = RetainedStore(1, 0)
    put(store, b"a", expires_at=1_000)
    assert put(store, b"a", b"newer", now=1_000)
    assert (store.count, store.bytes) == (1, message_bytes(b"a", run_of(b"a", b"newer")))


def test_pages_follow_each_other_in_order_of_topic() -> None:
    store = RetainedStore(0, 0)
    names = [b"%d/x" % number for number in (5, 3, 9, 1, 7)] + [b"a"]
    for name in names:
        put(store, name)
    pages = []
    after = b""
    while page := store.page(after, 2):
        pages.append([message.topic for message in page])
        after = page[-1].topic
    assert pages == [[b"1/x", b"3/x"], [b"5/x", b"7/x"], [b"9/x", b"a"]]
    assert store.page(b"a", 2) == []


def test_system_messages_are_found_but_not_counted_or_listed() -> None:
    store = RetainedStore(1, 0)
    put(store, b"a")
    for value in (b"1", b"2"):
        store.put_system(b"$SYS/uptime", run_of(b"$SYS/uptime", value), 0)
    (message,) = store.match(b"$SYS/#", 0)
    assert message.is_system
    assert message.run.payload(0) == b"2"
    assert (store.count, store.bytes) == (1, message_bytes(b"a", run_of(b"a")))
    assert topics(store.page(b"", 10)) == [b"a"]
    assert store.delete(b"$SYS/uptime")
    assert store.count == 1


def test_counts_stay_right_when_a_topic_changes_hands() -> None:
    store = RetainedStore(1, 0)
    put(store, b"$SYS/x")
    store.put_system(b"$SYS/x", run_of(b"$SYS/x"), 0)
    assert (store.count, store.bytes) == (0, 0)
    assert put(store, b"$SYS/x")
    assert store.count == 1
