"""Draws what pipelines computed: one picture (PNG) and one page (HTML) that carries the picture and the tables inside.

```
 panels: Lines | Bars  --> draw() --> PNG bytes --> NAME.png
                                          |
 facts, tables, notes  -------------------+-------> NAME.html   (no other file, no network: it can be mailed)
```
One style for all: few colours, told apart also by people who see few of them; the largest things first, the rest summed
up. Without a screen, and without matplotlib's global state, so that it works in any thread and on any server.
"""

from __future__ import annotations

import base64
import html
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from flockmq.spark.pipelines.summary import Table

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#b8a300")
"""After Okabe and Ito."""
SERIES_MAX: Final = len(COLOURS)
BARS_MAX: Final = 12
TABLE_ROWS_MAX: Final = 500
LABEL_CHARS_MAX: Final = 28
PANEL_INCHES: Final = (6.4, 3.3)
DPI: Final = 110
_INK: Final = "#333333"
_FAINT: Final = "#dddddd"

_RC: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "text.color": _INK,
    "text.parse_math": False,  # a topic may be called a$b
}

Points = Sequence[tuple[datetime, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Values over time: a line for each series; ``bands`` (name -> lower and upper line) are shaded behind them."""

    title: str
    unit: str
    series: Mapping[str, Points]
    bands: Mapping[str, tuple[Points, Points]] = field(default_factory=dict)
    band_name: str = ""
    stacked: bool = False
    """Areas one upon the other: for parts of a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A value for each name, the largest on top; ``marks`` are drawn as a line across each bar, e.g. a target."""

    title: str
    unit: str
    values: Mapping[str, float]
    marks: Mapping[str, float] = field(default_factory=dict)
    mark_name: str = ""


Panel = Lines | Bars


def moment(time_ms: int) -> datetime:
    """Milliseconds since 1970 as a moment: what Spark hands over as a timestamp has lost its zone."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def write_report(
    folder: Path,
    name: str,
    title: str,
    panels: Sequence[Panel],
    *,
    facts: Sequence[tuple[str, object]] = (),
    tables: Sequence[Table] = (),
) -> list[Path]:
    """Write ``NAME.png`` and ``NAME.html`` into a folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = draw(title, panels)
    png = folder / f"{name}.png"
    page = folder / f"{name}.html"
    png.write_bytes(picture)
    page.write_text(render_page(title, picture, facts, tables), encoding="utf-8")
    return [png, page]


# --- the picture ----------------------------------------------------------------------------------------------------


def draw(title: str, panels: Sequence[Panel]) -> bytes:
    """All panels in one picture, two in a row."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 1 if len(panels) <= 1 else 2
    rows = max(1, math.ceil(len(panels) / columns))
    with rc_context(_RC), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name in a script that the font lacks is still a picture
        figure = Figure(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.5))
        figure.set_layout_engine("constrained", w_pad=0.14, h_pad=0.12)
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, index + 1)
            _frame(axes, panel.title)
            if isinstance(panel, Lines):
                _draw_lines(axes, panel)
            else:
                _draw_bars(axes, panel)
        out = BytesIO()
        figure.savefig(out, format="png", dpi=DPI, facecolor="white")
    return out.getvalue()


def _frame(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(color=_FAINT, labelcolor=_INK)
    axes.set_axisbelow(True)


def _draw_lines(axes: Any, panel: Lines) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if not any(panel.series.values()):
        _say_empty(axes)
        return
    series = dict(list(panel.series.items())[:SERIES_MAX])
    for colour, name in zip(COLOURS, series, strict=False):
        if name in panel.bands:
            lower, upper = panel.bands[name]
            bounds = [value for _, value in lower], [value for _, value in upper]
            moments = [at for at, _ in lower]
            label = panel.band_name or None
            axes.fill_between(moments, *bounds, color=colour, alpha=0.16, linewidth=0, label=label)
    if panel.stacked:
        moments, heights = _aligned(series)
        axes.stackplot(moments, heights, labels=[_short(name) for name in series], colors=COLOURS, alpha=0.85)
    else:
        for colour, (name, points) in zip(COLOURS, series.items(), strict=False):
            marker = "o" if len(points) < 3 else None  # a line of one point is none
            axes.plot(*zip(*points, strict=True), color=colour, label=_short(name), linewidth=1.6, marker=marker)
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    axes.yaxis.set_major_formatter(_scaled)
    if panel.stacked or _is_near_zero(axes.get_ylim()):
        axes.set_ylim(bottom=0)
    axes.set_ylabel(panel.unit)
    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    handles, names = axes.get_legend_handles_labels()
    if len(names) > 1:
        _legend(axes, handles, names)


def _legend(axes: Any, handles: Any, names: Sequence[str]) -> None:
    """Beside the title while it fits there, else beside the picture."""
    is_short = sum(len(name) + 5 for name in names) < 50
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.99), "ncols": len(names)}
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    axes.legend(handles, names, frameon=False, fontsize=8, handlelength=1.2, **(place if is_short else beside))


def _is_near_zero(limits: tuple[float, float]) -> bool:
    """Whether an axis from 0 on hides little: a rate should not look as if it came from nothing."""
    low, high = limits
    return high > 0 and low < 0.35 * high and low > -0.1 * high


def _aligned(series: Mapping[str, Points]) -> tuple[list[datetime], list[list[float]]]:
    """The same moments for all series; one without a value at a moment has 0 there."""
    moments = sorted({at for points in series.values() for at, _ in points})
    known = [dict(points) for points in series.values()]
    return moments, [[values.get(at, 0.0) for at in moments] for values in known]


def _draw_bars(axes: Any, panel: Bars) -> None:
    if not panel.values:
        _say_empty(axes)
        return
    ranked = largest(panel.values, BARS_MAX)
    places = range(len(ranked))
    bars = axes.barh(places, list(ranked.values()), color=COLOURS[0], height=0.66)
    if len(panel.values) > BARS_MAX:
        bars[-1].set_color(_FAINT)  # all others together are no rival of those above
    for place, name in enumerate(ranked):
        if name in panel.marks:
            label = panel.mark_name if place == 0 else None
            axes.vlines(panel.marks[name], place - 0.45, place + 0.45, color=COLOURS[5], linewidth=2, label=label)
    axes.set_yticks(places, [_short(name) for name in ranked])
    axes.invert_yaxis()
    axes.bar_label(bars, [_scaled(value) for value in ranked.values()], padding=3, fontsize=8)
    axes.margins(x=0.14)
    axes.grid(axis="x", color=_FAINT, linewidth=0.6)
    axes.xaxis.set_major_formatter(_scaled)
    axes.set_xlabel(panel.unit)
    if panel.mark_name and panel.marks:
        axes.legend(loc="lower right", frameon=False, fontsize=8)


def largest(values: Mapping[str, float], count: int) -> dict[str, float]:
    """The largest ones, largest first; where there are more than ``count``, the last one stands for all others."""
    ranked = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    if len(ranked) <= count:
        return dict(ranked)
    others = ranked[count - 1 :]
    return {**dict(ranked[: count - 1]), f"{len(others):,} others": sum(value for _, value in others)}


def _say_empty(axes: Any) -> None:
    axes.text(0.5, 0.5, "nothing in this time", ha="center", va="center", transform=axes.transAxes, color="#999999")
    axes.set_xticks([])
    axes.set_yticks([])


def _scaled(value: float, _position: Any = None) -> str:
    """``12.3k``, ``4M``: short enough for an axis."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if suffix == "k" else limit
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _short(name: str) -> str:
    """A name that fits beside an axis: the end of a topic tells more than its beginning."""
    name = name or "(none)"
    return name if len(name) <= LABEL_CHARS_MAX else "…" + name[-(LABEL_CHARS_MAX - 1) :]


# --- the page -------------------------------------------------------------------------------------------------------

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#333;max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "img{max-width:100%}table{border-collapse:collapse;margin:.5rem 0 2rem}"
    "th,td{padding:.2rem .8rem;border-bottom:1px solid #ddd;text-align:left}"
    "th{font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums}caption{text-align:left;font-weight:600}"
)


def render_page(title: str, picture: bytes, facts: Sequence[tuple[str, object]], tables: Sequence[Table]) -> str:
    """One page with everything in it."""
    image = base64.b64encode(picture).decode("ascii")
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        _table("", (), facts) if facts else "",
        f'<p><img alt="{html.escape(title)}" src="data:image/png;base64,{image}"></p>',
        *(_table(table.title, table.columns, table.rows) for table in tables),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    shown = rows[:TABLE_ROWS_MAX]
    parts = ["<table>", f"<caption>{html.escape(title)}</caption>" if title else ""]
    if columns:
        parts.append("<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in columns) + "</tr>")
    parts += ["<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in shown]
    parts.append("</table>")
    if len(rows) > len(shown):
        parts.append(f"<p>The first {len(shown):,} of {len(rows):,} rows.</p>")
    return "\n".join(part for part in parts if part)


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (
        f'<td class="n">{html.escape(text_of(value))}</td>' if is_number else f"<td>{html.escape(text_of(value))}</td>"
    )


def text_of(value: object) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.isoformat(" ", timespec="seconds")
    return str(value)
