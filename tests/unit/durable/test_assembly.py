"""Assembly happens once: a constructor fills its own attributes, and those of no other object."""

from __future__ import annotations

import ast
from pathlib import Path

import flockmq

PACKAGES = ("node", "peering", "durable", "gossip", "routing", "session", "server", "admin")


def targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign | ast.AugAssign) else []


def is_of_another_object(target: ast.expr) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and not (isinstance(target.value, ast.Name) and target.value.id == "self")


def filled_slots(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    makers = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    return [
        f"{path.name}:{statement.lineno} {ast.unparse(statement)}"
        for maker in makers
        for statement in ast.walk(maker)
        if isinstance(statement, ast.stmt) and any(is_of_another_object(one) for one in targets(statement))
    ]


def test_no_constructor_fills_a_slot_of_another_object() -> None:
    root = Path(flockmq.__file__).parent
    found = [slot for package in PACKAGES for path in (root / package).rglob("*.py") for slot in filled_slots(path)]
    assert found == []
