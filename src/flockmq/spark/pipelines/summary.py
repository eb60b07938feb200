"""What a pipeline has to say when it is done: a few figures, tables, and the files that it wrote.

People get it as text, programs as JSON; the pipeline itself prints nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below their column names."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(slots=True)
class Summary:
    """See the module."""

    title: str
    rows: list[tuple[str, Cell]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def add(self, label: str, value: Cell) -> None:
        """One more figure."""
        self.rows.append((label, value))

    def to_json(self) -> dict[str, object]:
        """For programs: labels become names."""
        return {
            "title": self.title,
            **{name_of(label): value for label, value in self.rows},
            "tables": {
                name_of(table.title): [
                    dict(zip((name_of(column) for column in table.columns), row, strict=True)) for row in table.rows
                ]
                for table in self.tables
            },
            "files": list(self.files),
        }


def name_of(label: str) -> str:
    """``rows a second`` -> ``rows_a_second``."""
    return "_".join("".join(letter if letter.isalnum() else " " for letter in label.lower()).split())
