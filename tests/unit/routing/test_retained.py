from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing.buckets import BUCKETS, Bucket, bucket_of, version_of
from flockmq.routing.clock import stamp_at
from flockmq.routing.retained import (
    AHEAD,
    APPLIED,
    FULL,
    OLDER,
    RetainedMessage,
    RetainedStore,
)
from flockmq.routing.retained_usage import MESSAGE_OVERHEAD_BYTES, message_bytes
from routing_cases import NAME, run_of


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
    assert (message.topic, message.run, message.stored_wall_ms()) == (b"a/b", last, 6)
    assert store.match(b"a/+", 7) == [message]
    assert store.usage.count == 1
    assert store.usage.bytes == message_bytes(b"a/b", last)


def test_bytes_count_topic_packet_and_overhead() -> None:
    run = run_of(b"topic", b"payload")
    assert message_bytes(b"topic", run) == 5 + len(run.wire) + MESSAGE_OVERHEAD_BYTES


def test_a_deleted_message_is_gone() -> None:
    store = RetainedStore(0, 0)
    put(store, b"a")
    assert store.delete(b"a", 0)
    assert not store.delete(b"a", 0)
    assert store.get(b"a", 0) is None
    assert store.match(b"#", 0) == []
    assert (store.usage.count, store.usage.bytes) == (0, 0)


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
    size = store.usage.bytes
    assert not put(store, b"c")
    assert (store.usage.count, store.usage.bytes) == (2, size)
    assert store.get(b"c", 0) is None
    assert put(store, b"a", b"replaced")
    store.delete(b"b", 0)
    assert put(store, b"c")


def test_bytes_beyond_the_limit_are_refused_unless_enough_is_replaced() -> None:
    size = message_bytes(b"a", run_of(b"a", bytes(100)))
    store = RetainedStore(0, 2 * size)
    assert put(store, b"a", bytes(100))
    assert put(store, b"b", bytes(100))
    assert store.usage.bytes == 2 * size
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
    assert store.usage.count == 2
    assert store.get(b"a/2", 1_999) is not None
    assert store.get(b"a/2", 2_000) is None
    assert store.usage.count == 1


def test_a_sweep_looks_at_a_bounded_number_of_names() -> None:
    store = RetainedStore(0, 0)
    for number in range(10):
        put(store, b"a/%d" % number, expires_at=1_000)
        put(store, b"b/%d" % number)
    assert store.sweep(999, 100) == 0
    assert store.sweep(1_000, 4) == 4
    assert store.usage.count == 16
    assert store.sweep(1_000, 4) == 4
    assert store.sweep(1_000, 4) == 2
    assert store.sweep(1_000, 4) == 0
    assert topics(store.match(b"#", 0)) == [b"b/%d" % number for number in range(10)]


def test_a_sweep_comes_to_every_name_in_turn() -> None:
    store = RetainedStore(0, 0)
    for number in range(10):
        put(store, b"a/%d" % number, expires_at=1_000 if number == 7 else 9_000)
    assert sum(store.sweep(5_000, 3) for _ in range(4)) == 1
    assert store.usage.count == 9


def test_a_message_that_no_longer_expires_is_not_swept() -> None:
    store = RetainedStore(0, 0)
    put(store, b"a", expires_at=1_000)
    put(store, b"b", expires_at=1_000)
    assert store.sweep(500, 1) == 0
    put(store, b"a")
    put(store, b"b")
    assert store.sweep(2_000, 10) == 0
    assert store.sweep(2_000, 10) == 0
    assert store.usage.count == 2


def test_a_sweep_spends_nothing_on_names_that_are_gone_or_stay() -> None:
    store = RetainedStore(0, 0)
    for topic in (b"first", b"gone/1", b"gone/2", b"stays/1", b"stays/2"):
        put(store, topic, expires_at=1_000)
    for number in (1, 2):
        store.delete(b"gone/%d" % number, 0)
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
    assert (store.usage.count, store.usage.bytes) == (1, message_bytes(b"a", run_of(b"a", b"newer")))


def test_system_messages_are_found_but_not_counted_or_listed() -> None:
    store = RetainedStore(1, 0)
    put(store, b"a")
    for value in (b"1", b"2"):
        store.put_system(b"$SYS/uptime", run_of(b"$SYS/uptime", value), 0)
    (message,) = store.match(b"$SYS/#", 0)
    assert message.is_system
    assert message.run.payload(0) == b"2"
    assert (store.usage.count, store.usage.bytes) == (1, message_bytes(b"a", run_of(b"a")))
    assert store.entries() == [b"a"]
    assert store.delete(b"$SYS/uptime", 0)
    assert store.usage.count == 1


def test_counts_stay_right_when_a_topic_changes_hands() -> None:
    store = RetainedStore(1, 0)
    put(store, b"$SYS/x")
    store.put_system(b"$SYS/x", run_of(b"$SYS/x"), 0)
    assert (store.usage.count, store.usage.bytes) == (0, 0)
    assert put(store, b"$SYS/x")
    assert store.usage.count == 1


# --- several nodes, and the disk ---

SECOND = 1_000
DAY = 86_400_000
HERE, THERE, ELSEWHERE = 5, 9, 2


def shared_store(messages_max: int = 0, bytes_max: int = 0, tombstone_ms: int = 7 * DAY) -> RetainedStore:
    store = RetainedStore(messages_max, bytes_max, 0, tombstone_ms)
    store.share(HERE)
    return store


def payload_of(store: RetainedStore, topic: bytes, now: int = 0) -> bytes | None:
    message = store.get(topic, now)
    return None if message is None else message.run.payload(0)


def check_digests(store: RetainedStore) -> None:
    """Digests kept up to date by small steps are those that the content has."""
    fresh = Bucket()
    for number, bucket in enumerate(store.buckets):
        fresh.digest = 0
        for topic in bucket.topics():
            assert bucket_of(topic) == number
            fresh.add_digest(topic, bucket.version(topic))
        assert bucket.digest == fresh.digest
    assert store.tombstones.count == sum(len(bucket.deleted or ()) for bucket in store.buckets)


def test_the_later_stamp_wins_and_the_higher_node_between_equals() -> None:
    store = shared_store()
    assert store.apply(b"a", run_of(b"a", b"1"), stamp_at(10), THERE, 10) == APPLIED
    assert store.apply(b"a", run_of(b"a", b"older"), stamp_at(9), THERE, 10) == OLDER
    assert store.apply(b"a", run_of(b"a", b"same"), stamp_at(10), THERE, 10) == OLDER
    assert store.apply(b"a", run_of(b"a", b"lower"), stamp_at(10), ELSEWHERE, 10) == OLDER
    assert payload_of(store, b"a") == b"1"
    assert store.apply(b"a", run_of(b"a", b"higher"), stamp_at(10), THERE + 1, 10) == APPLIED
    assert payload_of(store, b"a") == b"higher"
    check_digests(store)


def test_what_is_written_here_comes_behind_what_was_seen() -> None:
    store = shared_store()
    store.apply(b"a", run_of(b"a", b"1"), stamp_at(30 * SECOND), THERE, 0)
    put(store, b"a", b"2", now=1)
    assert payload_of(store, b"a") == b"2"
    assert store.version(b"a") > version_of(stamp_at(30 * SECOND), THERE)


def test_a_stamp_from_the_future_is_refused() -> None:
    store = shared_store()
    assert store.apply(b"a", run_of(b"a"), stamp_at(61 * SECOND), THERE, 0) == AHEAD
    assert store.usage.count == 0
    assert store.clock.refused == 1
    assert store.apply(b"a", run_of(b"a"), stamp_at(61 * SECOND), THERE, SECOND) == APPLIED


def test_a_deletion_leaves_its_version_behind() -> None:
    store = shared_store()
    put(store, b"a", now=5)
    assert store.delete(b"a", 6)
    assert not store.delete(b"b", 6)
    assert store.tombstones.count == 2
    assert store.apply(b"a", run_of(b"a"), stamp_at(5), THERE, 7) == OLDER
    assert store.apply(b"b", run_of(b"b"), stamp_at(6), THERE, 7) == OLDER
    assert store.match(b"#", 7) == []
    assert store.apply(b"a", run_of(b"a", b"new"), stamp_at(7), THERE, 7) == APPLIED
    assert store.tombstones.count == 1
    check_digests(store)


def test_a_deletion_of_another_node_is_taken_over() -> None:
    store = shared_store()
    put(store, b"a", now=5)
    assert store.apply(b"a", None, stamp_at(4), THERE, 6) == OLDER
    assert store.apply(b"a", None, stamp_at(6), THERE, 6) == APPLIED
    assert (store.usage.count, store.usage.bytes, store.tombstones.count) == (0, 0, 1)
    assert store.apply(b"a", None, stamp_at(6), THERE, 6) == OLDER
    check_digests(store)


def test_without_other_nodes_a_deletion_leaves_nothing() -> None:
    store = RetainedStore(0, 0)
    put(store, b"a")
    assert store.delete(b"a", 1)
    assert not store.delete(b"b", 1)
    assert store.tombstones.count == 0


def test_an_old_deletion_is_forgotten_a_few_a_sweep() -> None:
    store = shared_store(tombstone_ms=DAY)
    for number in range(100):
        put(store, b"%d" % number, now=0)
        store.delete(b"%d" % number, 0)
    store.delete(b"later", DAY // 2)
    store.sweep(DAY - 1, 1_000)
    assert store.tombstones.count == 101
    store.sweep(DAY, 10)
    assert 1 < store.tombstones.count <= 91
    for _ in range(20):
        store.sweep(DAY, 10)
    assert store.tombstones.count == 1
    check_digests(store)


def test_a_deletion_that_comes_when_it_is_long_over_still_deletes() -> None:
    store = shared_store(tombstone_ms=DAY)
    store.apply(b"a", run_of(b"a"), stamp_at(5), THERE, 6)
    assert store.apply(b"a", None, stamp_at(6), THERE, 2 * DAY) == APPLIED
    assert (store.usage.count, store.tombstones.count) == (0, 0)
    check_digests(store)


def test_too_many_deletions_are_forgotten_early_and_counted() -> None:
    store = shared_store(messages_max=2_000)
    for number in range(6_000):
        store.delete(b"%d" % number, number)
    assert 2_000 <= store.tombstones.count <= 2_000 + BUCKETS
    assert store.tombstones.count + store.tombstones.dropped == 6_000
    check_digests(store)


def test_an_expired_message_makes_way_for_nothing_older_and_keeps_its_place_in_the_digest() -> None:
    store = shared_store()
    put(store, b"a", expires_at=SECOND, now=10)
    digest = store.buckets[bucket_of(b"a")].digest
    version = store.version(b"a")
    assert store.sweep(SECOND, 10) == 1
    assert (store.usage.count, store.tombstones.count) == (0, 1)
    assert (store.version(b"a"), store.buckets[bucket_of(b"a")].digest) == (version, digest)
    assert store.apply(b"a", run_of(b"a", b"old"), stamp_at(9), THERE, SECOND) == OLDER
    check_digests(store)


def test_a_message_that_comes_expired_removes_the_one_before_it() -> None:
    store = shared_store()
    put(store, b"a", now=5)
    assert store.apply(b"a", run_of(b"a", b"late", SECOND), stamp_at(6), THERE, SECOND) == APPLIED
    assert (store.usage.count, store.tombstones.count) == (0, 1)
    check_digests(store)


def test_messages_of_other_nodes_may_pass_the_limits_but_not_by_more_than_their_double() -> None:
    store = shared_store(messages_max=2)
    for number in range(4):
        assert store.apply(b"%d" % number, run_of(b"x"), stamp_at(1), THERE, 1) == APPLIED
    assert store.apply(b"4", run_of(b"x"), stamp_at(1), THERE, 1) == FULL
    assert store.version(b"4") == 0
    assert not put(store, b"mine")
    assert store.apply(b"3", run_of(b"x", b"replaced"), stamp_at(2), THERE, 1) == APPLIED
    check_digests(store)


def test_changes_are_collected_for_the_disk_and_only_own_ones_for_other_nodes() -> None:
    store = shared_store()
    unsaved = store.keep_unsaved()
    unsent = store.keep_unsent()
    put(store, b"a", now=1)
    put(store, b"a", now=2)
    store.apply(b"b", run_of(b"b"), stamp_at(1), THERE, 3)
    store.delete(b"c", 3)
    store.put_system(b"$SYS/x", run_of(b"$SYS/x"), 3)
    put(store, b"$SYS/y", now=3)
    store.delete(b"$SYS/y", 3)
    assert unsent.take(10) == [b"a", b"c"]
    assert unsaved.take(10) == [b"a", b"b", b"c"]
    put(store, b"d", expires_at=10, now=3)
    unsaved.take(10)
    store.sweep(10, 10)
    assert unsaved.take(10) == [b"d"]
    assert unsent.take(10) == [b"d"]
    check_digests(store)


def test_sharing_begins_with_what_is_there() -> None:
    store = RetainedStore(0, 0)
    other = shared_store()
    for number in range(50):
        put(store, b"%d" % number, now=number)
        other.apply(b"%d" % number, run_of(b"x"), store.version(b"%d" % number) >> 64, 0, 60)
    store.put_system(b"$SYS/x", run_of(b"$SYS/x"), 3)
    store.share(THERE)
    assert [one.digest for one in store.buckets] == [one.digest for one in other.buckets]
    check_digests(store)


def test_a_restart_brings_back_messages_and_deletions_and_the_clock() -> None:
    store = shared_store(messages_max=1)
    unsaved = store.keep_unsaved()
    assert store.restore(b"a", run_of(b"a"), stamp_at(900 * SECOND), THERE, 5)
    assert store.restore(b"b", run_of(b"b"), stamp_at(1), THERE, 5)  # beyond the limit, which was higher then
    assert not store.restore(b"c", run_of(b"c", b"", 4), stamp_at(2), THERE, 5)
    assert store.restore(b"d", None, stamp_at(3), THERE, 5)
    assert not store.restore(b"a", run_of(b"a"), stamp_at(1), THERE, 5)
    assert topics(store.match(b"#", 5)) == [b"a", b"b"]
    assert store.tombstones.count == 2
    assert unsaved.take(10) == []
    store.delete(b"b", 6)
    assert store.version(b"b") > version_of(stamp_at(900 * SECOND), THERE)
    check_digests(store)


def test_without_other_nodes_deletions_of_the_disk_are_let_go() -> None:
    store = RetainedStore(0, 0)
    assert not store.restore(b"d", None, stamp_at(3), THERE, 5)
    assert store.tombstones.count == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete", "apply", "bury", "sweep", "get"]), NAME, st.integers(0, 40)),
        max_size=60,
    )
)
def test_digests_and_counts_are_right_after_anything(steps: list[tuple[str, bytes, int]]) -> None:
    store = RetainedStore(6, 0, 0, 20)
    store.share(HERE)
    now = 0
    for step, topic, number in steps:
        now += number // 4
        expires_at = now + number if number % 3 == 0 and number else 0
        if step == "put":
            store.put(topic, run_of(topic, b"x", expires_at), now)
        elif step == "delete":
            store.delete(topic, now)
        elif step == "apply":
            store.apply(topic, run_of(topic, b"y", expires_at), stamp_at(number), THERE, now)
        elif step == "bury":
            store.apply(topic, None, stamp_at(number), THERE, now)
        elif step == "sweep":
            store.sweep(now, number)
        else:
            store.get(topic, now)
    check_digests(store)
    assert store.usage.count == len(store.topics())
    assert store.usage.bytes == sum(
        message_bytes(topic, message.run) for bucket in store.buckets for topic, message in bucket.messages.items()
    )


def test_a_namespace_has_a_limit_of_its_own() -> None:
    store = RetainedStore(100, 0)
    store.usage.limit_prefix(b"$ns/acme/", 2)
    store.usage.limit_prefix(b"", 1)
    assert put(store, b"$ns/acme/a")
    assert put(store, b"$ns/acme/b")
    assert not put(store, b"$ns/acme/c")
    assert put(store, b"$ns/acme/a", b"in its place")
    assert put(store, b"$ns/other/c")
    assert put(store, b"plain")
    assert not put(store, b"plain/2")
    assert [store.usage.count_of(prefix) for prefix in (b"$ns/acme/", b"$ns/other/", b"")] == [2, 1, 1]
    store.delete(b"$ns/acme/a", 0)
    assert put(store, b"$ns/acme/c")
    store.usage.limit_prefix(b"$ns/acme/", 0)
    assert put(store, b"$ns/acme/d")
    for topic in store.topics():
        store.delete(topic, 0)
    assert [store.usage.count_of(prefix) for prefix in (b"$ns/acme/", b"$ns/other/", b"")] == [0, 0, 0]


# --- durable topics: the log decides ---


def commit(store: RetainedStore, offset: int, payload: bytes, wall_ms: int = DAY, group: int = 7) -> int:
    return store.commit(b"t", run_of(b"t", payload) if payload else None, wall_ms, group, offset, DAY)


def test_commit_order_decides_whatever_the_clocks_said() -> None:
    store = shared_store()
    assert commit(store, 5, b"first", DAY + 1_000) == APPLIED
    assert commit(store, 6, b"second", DAY) == APPLIED
    assert payload_of(store, b"t", DAY) == b"second"


def test_to_apply_a_log_again_changes_nothing() -> None:
    store = shared_store()
    for offset, payload, wall_ms in ((5, b"first", DAY + 9), (6, b"second", DAY), (9, b"third", DAY + 1)):
        commit(store, offset, payload, wall_ms)
    before = store.version(b"t")
    assert [commit(store, offset, b"again") for offset in (5, 6, 9)] == [OLDER] * 3
    assert (store.version(b"t"), payload_of(store, b"t", DAY)) == (before, b"third")


def test_replicas_agree_and_repairs_change_nothing() -> None:
    one, other = shared_store(), shared_store()
    for store in (one, other):
        commit(store, 5, b"first", DAY + 500)
        commit(store, 6, b"second", DAY)
    assert one.version(b"t") == other.version(b"t")
    version = one.version(b"t")
    assert other.apply(b"t", run_of(b"t", b"second"), version >> 64, version & (1 << 64) - 1, DAY) == OLDER
    check_digests(one)


def test_an_empty_payload_deletes_and_stays_deleted() -> None:
    store = shared_store()
    commit(store, 5, b"there")
    commit(store, 6, b"")
    assert payload_of(store, b"t", DAY) is None
    assert commit(store, 5, b"there") == OLDER
    assert payload_of(store, b"t", DAY) is None
    check_digests(store)


def test_between_partitions_the_later_clock_wins() -> None:
    store = shared_store()
    commit(store, 900, b"old shard", DAY)
    assert commit(store, 3, b"new shard", DAY + 1, group=8) == APPLIED
    assert commit(store, 901, b"late", DAY, group=7) == OLDER


def test_what_a_log_says_is_saved_but_told_only_by_who_asks_for_it() -> None:
    store = shared_store()
    unsaved, unsent = store.keep_unsaved(), store.keep_unsent()
    commit(store, 5, b"x")
    assert (list(unsaved.topics), list(unsent.topics)) == ([b"t"], [])
