from __future__ import annotations

from flockmq.routing.buckets import BUCKETS, Bucket, Changes, bucket_of, entry_digest, version_of


def test_every_node_puts_a_topic_into_the_same_bucket() -> None:
    assert [bucket_of(topic) for topic in (b"a", b"a/b", b"sensors/1/temperature")] == [579, 28, 470]
    used = {bucket_of(b"sensors/%d" % number) for number in range(20_000)}
    assert used == set(range(BUCKETS))


def test_versions_are_ordered_by_stamp_then_by_node() -> None:
    assert version_of(2, 1) > version_of(1, (1 << 64) - 1)
    assert version_of(2, 7) > version_of(2, 6)


def test_a_digest_does_not_depend_on_the_order_and_comes_back_to_nothing() -> None:
    entries = [(b"a", version_of(1, 1)), (b"b", version_of(1, 1)), (b"a", version_of(2, 1))]
    one, other = Bucket(), Bucket()
    for topic, version in entries:
        one.add_digest(topic, version)
    for topic, version in reversed(entries):
        other.add_digest(topic, version)
    assert one.digest == other.digest != 0
    for topic, version in entries:
        one.take_digest(topic, version)
    assert one.digest == 0


def test_stamps_that_changed_places_are_seen() -> None:
    """A digest made of linear checksums would be the same for both."""
    straight = entry_digest(b"a", 1, 9) + entry_digest(b"b", 2, 9)
    crossed = entry_digest(b"a", 2, 9) + entry_digest(b"b", 1, 9)
    assert straight != crossed


def test_changes_name_each_topic_once_in_order() -> None:
    changes = Changes(10)
    for topic in (b"a", b"b", b"a", b"c"):
        changes.add(topic)
    assert changes.take(2) == [b"a", b"b"]
    changes.add(b"a")
    assert changes.take(10) == [b"c", b"a"]
    assert changes.take(10) == []


def test_too_many_changes_are_only_remembered_as_such() -> None:
    changes = Changes(3)
    for number in range(3):
        changes.add(b"%d" % number)
    changes.add(b"1")
    before = changes.lost_count
    changes.add(b"x")
    assert (before, changes.lost_count) == (False, True)
    assert len(changes.topics) <= 3
