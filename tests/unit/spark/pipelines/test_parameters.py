from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.spark.pipelines.parameters import Kind, Parameter, ParameterError, Value, make_values, parse_arguments

PARAMETERS = (
    Parameter("out", Kind.PATH, None, "Where to.", required=True),
    Parameter("topics", Kind.LIST, None, "Which."),
    Parameter("format", Kind.CHOICE, "parquet", "What.", choices=("parquet", "delta", "iceberg")),
    Parameter("window", Kind.DURATION, "1m", "How long."),
    Parameter("files", Kind.INTEGER, "10", "How many.", minimum=2),
    Parameter("share", Kind.NUMBER, "0.5", "How much."),
    Parameter("compact", Kind.FLAG, None, "Whether."),
    Parameter("name", Kind.TEXT, None, "Who."),
)


def test_defaults_are_read_as_people_write_them() -> None:
    values = parse_arguments(PARAMETERS, ["--out", "lake"])
    assert values.text("out") == str(Path("lake").absolute())
    assert values.texts("topics") == ()
    assert values.text("format") == "parquet"
    assert values.integer("window") == 60_000
    assert values.integer("files") == 10
    assert values.number("share") == 0.5
    assert not values.flag("compact")
    assert values.text("name") == ""
    assert "name" not in values
    assert "out" in values


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--topics", "a,b", "--topics=c"], "topics", ("a", "b", "c")),
        (["--format=delta"], "format", "delta"),
        (["--window", "1h30m"], "window", 5_400_000),
        (["--files", "1_000"], "files", 1_000),
        (["--share", "1e-3"], "share", 0.001),
        (["--compact"], "compact", True),
        (["--no-compact"], "compact", False),
        (["--name", "--odd"], "name", "--odd"),
        (["--name=a=b"], "name", "a=b"),
    ],
)
def test_what_is_given_counts(arguments: list[str], name: str, value: Value) -> None:
    assert parse_arguments(PARAMETERS, ["--out", "/lake", *arguments])[name] == value


def test_urls_are_no_paths_of_this_machine() -> None:
    assert parse_arguments(PARAMETERS, ["--out", "s3a://bucket/lake"]).text("out") == "s3a://bucket/lake"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--out PATH is missing: Where to."),
        (["--out"], "--out needs a value"),
        (["--out", "a", "--out", "b"], "--out was given twice"),
        (["--out", "a", "--fromat", "delta"], "did you mean --format?"),
        (["--out", "a", "--xyzzy", "1"], "this pipeline has --out, --topics"),
        (["--out", "a", "--format", "detla"], "did you mean delta?"),
        (["--out", "a", "--format", "csv"], "one of parquet, delta, iceberg"),
        (["--out", "a", "--files", "many"], "expected a whole number"),
        (["--out", "a", "--files", "1"], "at least 2"),
        (["--out", "a", "--share", "nan"], "expected a number"),
        (["--out", "a", "--window", "soon"], "a duration like"),
        (["--out", "a", "--topics", " , "], "it is empty"),
        (["--out", "a", "--compact=yes"], "a flag and takes no value"),
        (["--out", "a", "--no-format"], "There is no option --no-format"),
        (["--out", "a", "loose"], "'loose' belongs to no option"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse_arguments(PARAMETERS, arguments)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_programs_give_them_by_name() -> None:
    values = make_values(PARAMETERS, {"out": "/lake", "compact": True, "topics": ["a", "b"], "window": "5s"})
    assert values.flag("compact")
    assert values.texts("topics") == ("a", "b")
    assert values.integer("window") == 5_000
