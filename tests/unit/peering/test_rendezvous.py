from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.peering.rendezvous import Ranking, hash64

NODES = st.lists(st.integers(1, (1 << 64) - 1), min_size=1, max_size=8, unique=True)


def test_the_same_on_every_node_and_for_ever() -> None:
    ranking = Ranking([1, 2, 3])
    assert hash64(b"client") == 0x186E09631AED3962
    assert [ranking.first(f"client-{number}") for number in range(8)] == [2, 3, 1, 2, 3, 3, 1, 1]


@given(NODES, st.text(max_size=20))
def test_the_order_of_the_members_does_not_matter(members: list[int], client_id: str) -> None:
    ranking = Ranking(members)
    other = Ranking([*reversed(members), members[0]])
    assert ranking.first(client_id) == other.first(client_id)
    assert ranking.digest == other.digest
    assert ranking.top(client_id, 9, 0)[0] == ranking.first(client_id)
    assert sorted(ranking.top(client_id, 9, 0)) == sorted(members)


@given(NODES, st.text(max_size=20))
def test_only_what_a_node_had_moves_when_it_goes(members: list[int], client_id: str) -> None:
    ranking = Ranking(members)
    first = ranking.first(client_id)
    for member in members:
        left = Ranking([other for other in members if other != member])
        assert ranking.top(client_id, 9, member) == left.top(client_id, 9, 0)
        if member != first:
            assert left.first(client_id) == first


def test_all_nodes_get_their_share() -> None:
    ranking = Ranking(range(1, 11))
    counts = dict.fromkeys(range(1, 11), 0)
    for number in range(10_000):
        counts[ranking.first(f"sensor-{number}")] += 1
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1_150
