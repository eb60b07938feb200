from __future__ import annotations

from flockmq.gossip.broadcasts import Broadcasts


def claim(number: int, size: int = 30) -> bytes:
    return bytes([number]) * size


def test_each_claim_is_given_out_so_often_and_no_more() -> None:
    news = Broadcasts()
    news.put(1, claim(1))
    assert [news.take(1_000, 3) for _ in range(4)] == [[claim(1)]] * 3 + [[]]
    assert len(news) == 0


def test_fresh_news_goes_first() -> None:
    news = Broadcasts()
    news.put(1, claim(1))
    news.take(1_000, 5)
    news.put(2, claim(2))
    assert news.take(35, 5) == [claim(2)]
    assert news.take(1_000, 5) == [claim(1), claim(2)]


def test_a_newer_claim_replaces_the_old_one_and_begins_anew() -> None:
    news = Broadcasts()
    news.put(1, claim(1))
    news.take(1_000, 2)
    news.put(1, claim(9))
    assert len(news) == 1
    assert [news.take(1_000, 2) for _ in range(3)] == [[claim(9)], [claim(9)], []]


def test_what_does_not_fit_waits() -> None:
    news = Broadcasts()
    news.put(1, claim(1, 100))
    news.put(2, claim(2, 30))
    assert news.take(60, 5) == [claim(2, 30)]
    assert news.take(200, 5) == [claim(1, 100), claim(2, 30)]


def test_a_smaller_cluster_ends_what_was_told_often_enough() -> None:
    news = Broadcasts()
    news.put(1, claim(1))
    for _ in range(10):
        news.take(1_000, 16)
    assert news.take(1_000, 4) == [claim(1)]
    assert len(news) == 0


def test_dropped_claims_are_gone() -> None:
    news = Broadcasts()
    news.put(1, claim(1))
    news.drop(1)
    news.drop(2)
    assert news.take(1_000, 5) == []
