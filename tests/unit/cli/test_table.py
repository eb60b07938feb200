from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.cli.table import lay_out, text_width, wrap

NAMES = ["NODE", "STATE", "ADDRESS", "WHY"]
ROWS = [
    ["n1@127.0.0.1", "alive", "127.0.0.1:16000", "answers all probes in time"],
    ["n2@127.0.0.1", "dead", "127.0.0.1:16001", "-"],
]


def test_what_fits_is_one_table_with_numbers_to_the_right() -> None:
    found = lay_out(["NAME", "COUNT", "MS"], [["a", "1", "-0.5"], ["longer", "20,000", "-"]], 80)
    assert found.lines == ["NAME     COUNT    MS", "a            1  -0.5", "longer  20,000     -"]


def test_words_wrap_before_anything_is_left_out() -> None:
    found = lay_out(NAMES, ROWS, 54, spare=["WHY"])
    assert found.lines == [
        "NODE          STATE  ADDRESS          WHY",
        "n1@127.0.0.1  alive  127.0.0.1:16000  answers all",
        "                                      probes in time",
        "n2@127.0.0.1  dead   127.0.0.1:16001  -",
    ]
    assert found.left_out == []


def test_a_table_without_room_becomes_several_that_begin_with_the_same_column() -> None:
    assert lay_out(NAMES, ROWS, 36).lines == [
        "NODE          STATE  ADDRESS",
        "n1@127.0.0.1  alive  127.0.0.1:16000",
        "n2@127.0.0.1  dead   127.0.0.1:16001",
        "",
        "NODE          WHY",
        "n1@127.0.0.1  answers all probes in",
        "              time",
        "n2@127.0.0.1  -",
    ]


def test_columns_that_can_be_spared_are_left_out_in_their_order() -> None:
    found = lay_out(NAMES, ROWS, 36, spare=["WHY", "STATE", "ADDRESS"])
    assert found.left_out == ["WHY"]
    assert found.lines[0] == "NODE          STATE  ADDRESS"
    assert lay_out(NAMES, ROWS, 30, spare=["WHY", "STATE", "ADDRESS"]).left_out == ["STATE", "WHY"]


def test_a_script_gets_all_of_it() -> None:
    assert lay_out(["NAME", "TEXT"], [["x" * 500, "y " * 100]]).lines[1].startswith("x" * 500 + "  y y y")


def test_wide_characters_take_two_columns() -> None:
    assert text_width("温度") == 4
    assert lay_out(["名", "N"], [["温度", "1"], ["abc", "2"]], 80).lines == ["名    N", "温度  1", "abc   2"]
    assert list(wrap("温度温度", 5)) == ["温度", "温度"]


@given(
    st.lists(st.lists(st.text("ab 温", max_size=30), min_size=4, max_size=4), max_size=4),
    st.integers(20, 120),
    st.sampled_from([None, ["D", "C", "B"]]),
)
def test_no_line_is_wider_than_the_terminal_and_no_character_is_lost(
    rows: list[list[str]], width: int, spare: list[str] | None
) -> None:
    found = lay_out(["A", "B", "C", "D"], rows, width, spare)
    if spare is None or not found.left_out:
        printed = "".join(found.lines)
        assert all(printed.count(one) >= "".join(map("".join, rows)).count(one) for one in "ab温")
    if spare is not None:
        assert all(text_width(line) <= max(width, 4 * 12 + 6) for line in found.lines)
