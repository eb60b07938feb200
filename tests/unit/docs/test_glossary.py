"""Public names use the words of docs/concepts/glossary.md, and none of those that it replaces."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from docs_pages import ROOT

PAGE: Final = ROOT / "docs/concepts/glossary.md"
PACKAGES: Final = ("client", "testing", "spark")
OTHER_MEANINGS: Final = {
    "flockmq.client.transport.Answer": "a response of HTTP",
    "flockmq.client.load.fleet.device.Answer": "what a simulated device says to a command",
    "flockmq.client.group.GroupConsumer": "a member of a consumer group",
    "flockmq.client.group.GroupRecord": "a record that a member of a consumer group holds",
    "flockmq.client.group_calls.GroupCalls": "calls about consumer groups",
    "flockmq.spark.pipelines.beside.Result": "what a query of Spark computed",
    "flockmq.spark.sink.FlockStreamWriter": "Spark's word: a streaming query",
    "flockmq.spark.stream_reader.FlockStreamReader": "Spark's word: a streaming query",
    "flockmq.testing.simulation.nodes.groups.GroupRules": "rules of consumer groups",
    "flockmq.testing.simulation.nodes.groups.GroupFounder": "makes a consumer group",
    "flockmq.testing.simulation.nodes.groups.GroupMember": "a member of a consumer group",
    "flockmq.testing.simulation.consensus.history.GroupHistory": "the consensus simulator is about Raft groups",
}
"""Classes whose name has a replaced word for something that the glossary does not name."""


def replaced_words() -> set[str]:
    """Single words of the last column, `| say | meaning | not |`."""
    rows = re.findall(r"^\| \*\*.+\| ([^|]*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def public_classes(package: str) -> list[str]:
    """Classes that users can import, by their full name."""
    names = []
    for file in sorted((ROOT / "src/flockmq" / package).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        tree = ast.parse(file.read_text("utf-8"))
        names += [f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)]
    return [name for name in names if "._" not in name]


def words(name: str) -> set[str]:
    """The words of a class name in camel case."""
    return {word.lower() for word in re.findall(r"[A-Z][a-z0-9]*", name.rpartition(".")[2])}


def test_the_glossary_replaces_words() -> None:
    assert {"lane", "wish", "keeper", "everybody", "answer"} <= replaced_words()


@pytest.mark.parametrize("package", PACKAGES)
def test_public_classes_use_no_replaced_word(package: str) -> None:
    wrong = {name: words(name) & replaced_words() for name in public_classes(package)}
    assert not {name: found for name, found in wrong.items() if found and name not in OTHER_MEANINGS}
