"""Sizes that keep the code readable, and the words of its sentences: counted in the source, bounded here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from docs_pages import ROOT

PACKAGE: Final = ROOT / "src/flockmq"
FILES: Final = sorted(PACKAGE.rglob("*.py"))
FUNCTION_LINES_MAX: Final = 80
METHODS_MAX: Final = 25
LARGE_CLASSES_MAX: Final = 10
"""Classes with more methods than that: the whole of one thing, such as a broker."""
PARAMETERS_MAX: Final = 10
CALLBACKS_MAX: Final = 40
"""Parameters of durable/ that are callables. A flow that waits is a generator task instead; a dozen of `groups/` are
questions that are answered at once."""
_VAGUE: Final = re.compile(r"\b(somebody|nobody|whoever|whomever|everybody|anybody)\b", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes(file: Path) -> list[ast.AST]:
    """The syntax of a file, flat."""
    return list(ast.walk(ast.parse(file.read_text("utf-8"))))


def functions(file: Path) -> Iterator[Function]:
    """All functions and methods of a file."""
    for node in nodes(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(function: Function) -> list[ast.arg]:
    """What a caller may give."""
    given = function.args
    return [one for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.arg not in ("self", "cls")]


def callable_names() -> set[str]:
    """`Callable`, and names that stand for one anywhere in the source."""
    return {"Callable"} | {
        node.targets[0].id
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value).startswith("Callable")
    }


def test_functions_are_short() -> None:
    lines = [
        (file.stem, one.name, (one.end_lineno or one.lineno) - one.lineno + 1)
        for file in FILES
        for one in functions(file)
    ]
    assert not [(file, name, count) for file, name, count in lines if count > FUNCTION_LINES_MAX]


def test_functions_have_few_parameters() -> None:
    """A command of `cli/` has a parameter for each option."""
    counts = [
        (file.stem, one.name, len(parameters(one)))
        for file in FILES
        if file.relative_to(PACKAGE).parts[0] != "cli"
        for one in functions(file)
    ]
    assert not [(file, name, count) for file, name, count in counts if count > PARAMETERS_MAX]


def test_few_classes_are_large() -> None:
    classes = [
        (node.name, sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body))
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.ClassDef)
    ]
    large = [(name, count) for name, count in classes if count > METHODS_MAX]
    assert len(large) <= LARGE_CLASSES_MAX, large


def test_durable_topics_take_few_callbacks() -> None:
    known = callable_names()
    found = [
        f"{file.stem}.{function.name}({one.arg})"
        for file in (PACKAGE / "durable").rglob("*.py")
        for function in functions(file)
        for one in parameters(function)
        if one.annotation is not None and known & set(re.findall(r"\w+", ast.unparse(one.annotation)))
    ]
    assert len(found) <= CALLBACKS_MAX, found


def test_sentences_name_their_actor() -> None:
    found = {file.name: _VAGUE.findall(file.read_text("utf-8")) for file in FILES}
    assert not {name: words for name, words in found.items() if words}
