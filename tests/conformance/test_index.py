"""Every clause that binds a server has a test, and ``docs/reference/conformance.md`` says which one.

``FLOCKMQ_UPDATE=1`` writes the page anew; people review the difference.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from conformance.clauses import CLAUSES, Clause

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
FOLDERS = ("tests/conformance", "tests/integration")
SPECIFICATIONS = {
    "5.0": "https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html",
    "3.1.1": "https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/mqtt-v3.1.1.html",
}


def _test_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def _clauses_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "clause":
            version, *identifiers = (ast.literal_eval(argument) for argument in decorator.args)
            for identifier in identifiers:
                yield version, identifier


def find_tests() -> dict[tuple[str, str], list[str]]:
    """Clause -> the tests that name it, as ``file::test``; read from the source, so that no test need be imported."""
    found: dict[tuple[str, str], list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            for function in _test_functions(ast.parse(path.read_text())):
                for key in _clauses_of(function):
                    found.setdefault(key, []).append(f"{path.relative_to(ROOT)}::{function.name}")
    return found


def _short(tests: list[str]) -> str:
    shown = [f"`{test.rpartition('/')[2]}`" for test in tests[:3]]
    if len(tests) > 3:
        shown.append(f"and {len(tests) - 3} more")
    return "<br>".join(shown)


def _table(clauses: list[Clause], tests: dict[tuple[str, str], list[str]]) -> list[str]:
    lines = ["| clause | what it demands | proved by |", "| --- | --- | --- |"]
    for clause in clauses:
        named = tests.get((clause.version, clause.identifier), [])
        lines.append(f"| {clause.identifier} | {clause.demand.replace('|', '/')} | {_short(named) or '-'} |")
    return lines


def render() -> str:
    """The page."""
    tests = find_tests()
    lines = [
        "# Conformance to MQTT",
        "",
        "Every numbered normative statement of MQTT 5.0 and 3.1.1, what it demands in our words, and the tests that",
        "prove it. Tests are in `tests/conformance/` (against the broker without a network) and `tests/integration/`",
        "(over real sockets). Made from the tests: `FLOCKMQ_UPDATE=1 pytest tests/conformance/test_index.py`.",
    ]
    for version, address in SPECIFICATIONS.items():
        clauses = [clause for clause in CLAUSES.values() if clause.version == version]
        ours = [clause for clause in clauses if clause.side != "client"]
        theirs = [clause for clause in clauses if clause.side == "client"]
        lines += [
            "",
            f"## MQTT {version}",
            "",
            f"[The specification]({address}): {len(ours)} statements bind a server.",
        ]
        lines += ["", *_table(ours, tests)]
        lines += ["", f"### Only for clients (MQTT {version})", "", "| clause | what it demands |", "| --- | --- |"]
        lines += [f"| {clause.identifier} | {clause.demand.replace('|', '/')} |" for clause in theirs]
    return "\n".join(lines) + "\n"


def test_every_server_clause_has_a_test() -> None:
    tests = find_tests()
    missing = [
        f"{clause.version} {clause.identifier}: {clause.demand}"
        for key, clause in CLAUSES.items()
        if clause.side != "client" and key not in tests
    ]
    assert not missing, "\n".join(["clauses without a test:", *missing])


def test_every_server_clause_has_a_test_of_its_name() -> None:
    """``test_mqtt5_3_1_2_3_...`` for [MQTT-3.1.2-3]: who looks for a clause finds its test."""
    tests = find_tests()
    missing: list[str] = []
    for key, clause in CLAUSES.items():
        number = clause.identifier.removeprefix("MQTT-").replace(".", "_").replace("-", "_")
        name = f"::test_{'mqtt5' if clause.version == '5.0' else 'mqtt311'}_{number}_"
        if clause.side != "client" and not any(name in test for test in tests.get(key, [])):
            missing.append(f"{clause.version} {clause.identifier}")
    assert not missing, missing


def test_named_tests_carry_their_clause() -> None:
    """A test named after a clause is also tied to it, so that name and table agree."""
    wrong: list[str] = []
    prefixes = {"test_mqtt5_": "5.0", "test_mqtt311_": "3.1.1"}
    for path in sorted((ROOT / "tests/conformance").glob("test_*.py")):
        for function in _test_functions(ast.parse(path.read_text())):
            for prefix, version in prefixes.items():
                if not function.name.startswith(prefix):
                    continue
                a, b, c, number = function.name.removeprefix(prefix).split("_")[:4]
                if (version, f"MQTT-{a}.{b}.{c}-{number}") not in set(_clauses_of(function)):
                    wrong.append(f"{path.name}::{function.name}")
                if ast.get_docstring(function) is None:
                    wrong.append(f"{path.name}::{function.name} does not say what it demands")
    assert not wrong, wrong


def test_page_is_current() -> None:
    page = render()
    if os.environ.get("FLOCKMQ_UPDATE"):
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page)
    current = PAGE.read_text() if PAGE.exists() else ""
    assert current == page, "docs/reference/conformance.md is out of date: run this test with FLOCKMQ_UPDATE=1"
