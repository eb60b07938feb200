"""Plans of whole nodes as text, and what seeds draw."""

from __future__ import annotations

from dataclasses import replace

from flockmq.testing.simulation.nodes.plan import SEGMENT_BYTES, SESSIONS_DRAWN, draw_plan, draw_sessions, parse_plan

SEED_2 = (
    "nodes=3 shards=2 copies=3 ms=6000; 895 rebalance 2; 3395 crash 1; 4395 start all; 4795 grow L1; 5195 slow 1 20"
)
HEAD = "nodes=3 shards=1 copies=3 ms=4000"


def test_words_of_the_head_can_be_read_back() -> None:
    for words in (
        "",
        " ack=memory",
        " readers=1",
        " sessions=1",
        " wills=1",
        " ack=leader readers=1 sessions=1 wills=1",
    ):
        text = f"{HEAD}{words}; 12 kill 3"
        assert str(parse_plan(text)) == text
    assert parse_plan(f"{HEAD} sessions=1").sessions == 1
    assert parse_plan(HEAD).sessions == 0


def test_half_of_the_seeds_are_to_have_sessions() -> None:
    drawn = [draw_sessions(seed) for seed in range(200)]
    assert set(drawn) == {0, 1, 2}
    assert 60 < len([one for one in drawn if one]) < 140
    assert [draw_plan(seed).sessions for seed in range(200)] == (drawn if SESSIONS_DRAWN else [0] * 200)


def test_old_seeds_draw_what_they_always_drew() -> None:
    plan = replace(draw_plan(2), sessions=0, wills=0, segment=SEGMENT_BYTES)
    of_sessions = {"isolate", "hand", "jump", "compact", "hold", "sweep"}
    assert not of_sessions & {fault.kind for fault in plan.faults}
    assert str(plan) == SEED_2
