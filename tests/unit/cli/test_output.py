from __future__ import annotations

import json

import pytest

from flockmq.admin.model import UserProperty
from flockmq.cli.output import print_fields, print_json, print_listing, print_table


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT", "NONE"], [["a", 1, None], ["longer", 20_000, None]])
    assert capsys.readouterr().out == "NAME     COUNT  NONE\na            1  -\nlonger  20,000  -\n"


def test_what_clients_chose_can_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME"], [["\x1b[31m[red]evil[/red]\n"]])
    print_fields([("name", "\x1b]0;title\x07")])
    assert capsys.readouterr().out == "NAME\n\\x1b[31m[red]evil[/red]\\n\nname  \\x1b]0;title\\x07\n"


def test_a_wide_table_is_not_cut_when_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME"], [["x" * 500]])
    assert "x" * 500 in capsys.readouterr().out


def things(count: int) -> list[UserProperty]:
    return [UserProperty("name", f"c{number}") for number in range(count)]


def test_a_listing_up_to_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing(iter(things(3)), {"VALUE": "value"}, as_json=False, limit=2, nothing="none")
    printed = capsys.readouterr()
    assert printed.out == "VALUE\nc0\nc1\n"
    assert printed.err == "There are more than 2; print all with --limit 0.\n"
    print_listing(iter(things(2)), {"VALUE": "value"}, as_json=False, limit=2, nothing="none")
    assert capsys.readouterr().err == ""


def test_a_listing_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing(iter(things(2)), {"VALUE": "value"}, as_json=True, limit=0, nothing="none")
    assert [one["value"] for one in json.loads(capsys.readouterr().out)] == ["c0", "c1"]
    print_listing(iter([]), {"VALUE": "value"}, as_json=True, limit=0, nothing="none")
    assert json.loads(capsys.readouterr().out) == []
    print_listing(iter([]), {"VALUE": "value"}, as_json=False, limit=0, nothing="none")
    assert capsys.readouterr().out == "none\n"


def test_json_of_anything(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1, "ü\x1b"]})
    assert capsys.readouterr().out == '{\n  "a": [\n    1,\n    "\\u00fc\\u001b"\n  ]\n}\n'
