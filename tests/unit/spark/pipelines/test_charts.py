"""Pictures are pictures, pages stand alone, and names from outside cannot break out of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from flockmq.spark.pipelines.charts import Bars, Lines, draw, largest, render_page, text_of, write_report
from flockmq.spark.pipelines.summary import Table

PNG = b"\x89PNG\r\n\x1a\n"
START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def points(*values: float) -> list[tuple[datetime, float]]:
    return [(START + timedelta(seconds=10 * index), value) for index, value in enumerate(values)]


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height, as the header of a PNG says."""
    return int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")


def test_a_report_is_one_picture_and_one_page(tmp_path: Path) -> None:
    lines = Lines(title="a", unit="msg/s", series={"one": points(1, 2, 3)}, bands={"one": (points(0, 1), points(2, 3))})
    bars = Bars(title="b", unit="B/s", values={"n1": 3.0, "n2": 1.0}, marks={"n1": 2.0}, mark_name="after")
    table = Table(title="t", columns=("name", "count"), rows=[("x", 12345)])
    png, page = write_report(tmp_path / "new", "traffic", "What is carried", [lines, bars], tables=[table])
    assert png == tmp_path / "new" / "traffic.png"
    assert png.read_bytes().startswith(PNG)
    text = page.read_text(encoding="utf-8")
    assert "data:image/png;base64," in text
    assert "<th>name</th>" in text
    assert '<td class="n">12,345</td>' in text


def test_a_page_needs_nothing_from_elsewhere() -> None:
    text = render_page("title", draw("title", []), [("rows", 3)], [])
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http" not in text


def test_names_from_devices_are_text_not_markup() -> None:
    evil = "<script>alert(1)</script>"
    text = render_page(evil, b"", [(evil, evil)], [Table(title=evil, columns=(evil,), rows=[(evil,)])])
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 8  # title, heading, picture, two facts, caption, column, cell


def test_names_are_no_formulas_for_the_picture() -> None:
    strange = {"a$x_{$b": 1.0, "": 2.0, "é" * 300: 3.0, "温度\x07": 4.0}
    assert draw("$\\frac$", [Bars(title="$", unit="$_", values=strange)]).startswith(PNG)


def test_more_panels_make_a_higher_picture() -> None:
    panel = Lines(title="a", unit="", series={"one": points(1, 2)})
    one, two, four = (size_of(draw("t", [panel] * count)) for count in (1, 2, 4))
    assert two[0] > one[0]
    assert four[0] == two[0]
    assert four[1] > two[1]


@pytest.mark.parametrize(
    "panel",
    [
        Lines(title="none", unit="", series={}),
        Lines(title="empty", unit="", series={"one": []}),
        Lines(title="one point", unit="", series={"one": points(5)}),
        Lines(title="stacked", unit="", series={"one": points(1, 2), "two": points(3)}, stacked=True),
        Lines(title="many", unit="", series={str(number): points(number) for number in range(30)}),
        Bars(title="none", unit="", values={}),
        Bars(title="all zero", unit="", values={"a": 0.0}),
    ],
)
def test_little_or_much_can_be_drawn(panel: Lines | Bars) -> None:
    assert draw("t", [panel]).startswith(PNG)


def test_what_is_beyond_the_largest_is_summed_up() -> None:
    values = {name: float(number) for number, name in enumerate("abcdef")}
    assert largest(values, 6) == {"f": 5.0, "e": 4.0, "d": 3.0, "c": 2.0, "b": 1.0, "a": 0.0}
    assert largest(values, 3) == {"f": 5.0, "e": 4.0, "4 others": 6.0}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (1234567, "1,234,567"), (0.123456, "0.1235"), (123456.7, "123,457"), (True, "True"), ("x", "x")],
)
def test_values_are_shown_as_people_read_them(value: object, text: str) -> None:
    assert text_of(value) == text
