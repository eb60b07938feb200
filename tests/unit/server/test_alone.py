from __future__ import annotations

from flockmq.server.alone import ALONE_S, Alone


def test_only_what_lasts_is_told_once_and_its_end_as_well() -> None:
    alone = Alone(100.0)
    assert alone.look(0, 100.0 + ALONE_S - 1) == ""
    assert alone.look(0, 100.0 + ALONE_S) == "serving_alone"
    assert alone.look(0, 200.0) == ""
    assert alone.look(2, 201.0) == "others_found"
    assert alone.look(2, 202.0) == ""


def test_nodes_that_join_in_time_leave_no_warning() -> None:
    alone = Alone(100.0)
    assert alone.look(1, 101.0) == ""
    assert alone.look(0, 101.0 + ALONE_S - 0.1) == "", "others were there a moment ago"
    assert alone.look(0, 101.0 + ALONE_S) == "serving_alone"
