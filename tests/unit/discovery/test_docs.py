"""The examples of the documents are configurations that a node would start with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flockmq.cli.start_options import parse
from flockmq.config.load import load
from flockmq.discovery import registry

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO = (DOCS / "how-to" / "form-a-cluster.md").read_text()
TUTORIAL = (DOCS / "tutorial" / "two-nodes-with-etcd.md").read_text()
FILES = [block for block in re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL) if "[cluster]" in block]
COMMANDS = re.findall(r"^flockmq start (.*?)(?<!\\)$", TUTORIAL, re.DOTALL | re.MULTILINE)


def names(block: str) -> str:
    found = re.search(r'^discovery = "(\w+)"', block, re.MULTILINE)
    return found[1] if found else "manual"


def test_every_way_but_kubernetes_has_a_file() -> None:
    assert {names(block) for block in FILES} == set(registry.BUILT_IN) - {"k8s"}


@pytest.mark.parametrize("block", FILES, ids=names)
def test_files(block: str, tmp_path: Path) -> None:
    text = block.replace("/etc/flockmq/", f"{tmp_path}/")
    for name in re.findall(r'_file = "(.+?)"', text):
        Path(name).write_text("x")
    file = tmp_path / "flockmq.toml"
    file.write_text(text)
    config = load(file, {}).config
    assert config.cluster.discovery == names(block)
    assert config.cluster.bootstrap_expect == (0 if names(block) == "manual" else 3)


def test_the_environment_of_pods(tmp_path: Path) -> None:
    variables = dict(re.findall(r"name: (FLOCKMQ_\w+__\w+), value: \"?([^}\"]+)", HOW_TO))
    variables["FLOCKMQ_NODE__NAME"] = "flockmq-0@10.0.0.1"
    variables["FLOCKMQ_CLUSTER__ADVERTISE_HOST"] = "10.0.0.1"
    for name in ("passwords", "token"):
        (tmp_path / name).touch()
    variables = {name: value.replace("/etc/flockmq/", f"{tmp_path}/") for name, value in variables.items()}
    config = load(None, variables).config
    assert config.admin is not None
    assert str(config.admin.addresses[0]).endswith(":18083"), "where the probes look"
    assert (config.cluster.discovery, config.cluster.bootstrap_expect, config.data_dir) == ("k8s", 3, "/data")


def test_the_commands_of_the_tutorial() -> None:
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        options = parse(shlex.split(command.replace("\\\n", " ")), {})
        assert options is not None, command
