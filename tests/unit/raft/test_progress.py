from __future__ import annotations

import pytest

from flockmq.raft.progress import PROBE, REPLICATE, Progress


def replicating(match: int = 5) -> Progress:
    progress = Progress(match + 1)
    progress.acknowledged(match)
    progress.replicate()
    return progress


def test_a_follower_is_probed_first() -> None:
    progress = Progress(8)
    assert (progress.state, progress.next, progress.match) == (PROBE, 8, 0)


def test_acknowledgements_free_the_window() -> None:
    progress = replicating()
    progress.note_sent(5, 7, 100, 1)
    progress.note_sent(7, 9, 50, 1)
    assert (progress.next, progress.sent_bytes) == (10, 150)
    assert progress.acknowledged(8)
    assert (progress.match, progress.sent_bytes) == (8, 50)
    assert progress.acknowledged(9)
    assert progress.sent_bytes == 0
    assert not progress.acknowledged(9)
    assert not progress.acknowledged(3)
    assert progress.match == 9


@pytest.mark.parametrize(
    ("lease_round", "matched", "lost"), [(1, 5, False), (2, 5, True), (2, 7, False), (3, 7, True), (3, 9, False)]
)
def test_what_a_later_heartbeat_overtook_is_lost(lease_round: int, matched: int, lost: bool) -> None:
    progress = replicating()
    progress.note_sent(5, 7, 100, 1)
    progress.note_sent(7, 9, 50, 2)
    assert progress.has_lost(lease_round, matched) is lost


def test_what_was_lost_is_sent_again_and_no_more() -> None:
    progress = replicating()
    progress.note_sent(5, 7, 100, 1)
    progress.note_sent(7, 9, 50, 1)
    progress.send_again(7)
    assert (progress.state, progress.next, progress.sent_bytes) == (REPLICATE, 8, 0)
    progress.send_again(99)
    assert progress.next == 8


def test_a_lost_probe_is_asked_again() -> None:
    progress = Progress(8)
    progress.note_sent(7, 9, 50, 1)
    progress.send_again(0)
    assert (progress.state, progress.next, progress.sent) == (PROBE, 8, [])


def test_nothing_before_the_match_is_probed() -> None:
    progress = replicating()
    progress.probe(2)
    assert progress.next == 6
