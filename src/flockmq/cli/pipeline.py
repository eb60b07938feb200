"""``flockmq pipeline``: Spark programs over durable topics that come with FlockMQ.

The pipelines describe themselves (flockmq.spark.pipelines); Spark is loaded only when one runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.durable_options import NAMESPACE_DEFAULT, NamespaceOption
from flockmq.cli.output import JsonOption, print_fields, print_json, print_table
from flockmq.cli.usage import UsageError

if TYPE_CHECKING:
    from flockmq.spark.pipelines.parameters import Parameter, Values
    from flockmq.spark.pipelines.registry import Pipeline
    from flockmq.spark.pipelines.summary import Summary

_RUN_SETTINGS: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""What is not an option of all pipelines is one of the pipeline that is named; that one may be asked for help too."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Pipelines: Spark programs over durable topics. They need `flockmq[spark]`.")
    group.command("list")(list_pipelines)
    group.command("run", context_settings=_RUN_SETTINGS)(run)
    group.command("init")(init)
    app.add_typer(group, name="pipeline")


def list_pipelines(*, as_json: JsonOption = False) -> None:
    """List the pipelines and what they do."""
    from flockmq.spark.pipelines.registry import pipelines

    found = pipelines()
    if as_json:
        print_json([_description(one) for one in found])
        return
    print_table(["PIPELINE", "WHAT IT DOES"], [[one.name, one.summary] for one in found])
    print("\nOptions of one of them: flockmq pipeline run NAME --help")


def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of `flockmq pipeline list`.")] = "",
    *,
    server: Annotated[
        str | None,
        typer.Option(
            "--server", envvar="FLOCKMQ_SERVER", metavar="URLS", help="APIs of nodes, separated by commas; any will do."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="FLOCKMQ_TOKEN", metavar="T", help="Instead of the one that this user has."),
    ] = None,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="K=V", help="An option of the source and sink, like ca=/etc/ca.pem; can be repeated."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="spark://..., k8s://... or yarn; without it Spark runs here."),
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="URL", help="sc://..., a Spark Connect server.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark; can be repeated.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="Where it keeps how far it is; else beside its output."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then end.")] = False,
    for_time: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End after that many seconds, or after 30s, 10m; else at Ctrl-C."),
    ] = None,
    show_help: Annotated[bool, typer.Option("--help", help="Show these options and the pipeline's own.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline: ``flockmq pipeline run archive --topic factory --lake lake --once``."""
    from flockmq.spark.pipelines.registry import find
    from flockmq.spark.pipelines.run import RunSettings, needs_spark, run_pipeline

    if not name or name.startswith("-"):
        if name in ("", "--help") and (show_help or name):
            print(context.get_help())
            return
        raise typer.BadParameter("name the pipeline first, like `flockmq pipeline run archive`")
    pipeline = find(name)
    if show_help:
        print(context.get_help())
        _print_parameters(pipeline)
        return
    if master and remote:
        raise UsageError("--master and --remote both say where Spark runs; give one of them.")
    values = _values(pipeline, context.args)
    options = {"server": server, "token": token, "namespace": namespace, **_pairs("--option", option)}
    needs_spark()
    settings = RunSettings(
        options={key: value for key, value in options.items() if value},
        master=master,
        remote=remote,
        conf=_pairs("--conf", conf),
        checkpoint=checkpoint,
        once=once,
        for_s=_seconds(for_time),
        quiet=as_json,
    )
    if once and for_time:
        raise typer.BadParameter("--once ends by itself; give it or --for, not both")
    _print_summary(run_pipeline(pipeline, values, settings), as_json=as_json)


def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Make a Declarative Pipelines project: bronze, silver and gold tables, and a sink back to a topic."""
    from pathlib import Path

    from flockmq.spark.pipelines.init import make_project

    files = [str(path) for path in make_project(Path(folder))]
    if as_json:
        print_json({"folder": folder, "files": files})
        return
    for path in files:
        print(path)


def _values(pipeline: Pipeline, arguments: list[str]) -> Values:
    from flockmq.spark.pipelines.parameters import ParameterError, parse_arguments

    try:
        return parse_arguments(pipeline.parameters, arguments)
    except ParameterError as error:
        raise typer.BadParameter(str(error).rstrip(".")) from None


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{option}: {text!r} is not KEY=VALUE")
        pairs[key] = value
    return pairs


def _seconds(text: str | None) -> float | None:
    from flockmq.config.units import MILLISECONDS, parse_number

    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parse_number(text, MILLISECONDS) / 1_000
    except ValueError:
        raise UsageError(f"--for can't be {text!r}: give seconds, or a duration like 30s or 10m.") from None


def _description(pipeline: Pipeline) -> dict[str, object]:
    return {
        "name": pipeline.name,
        "summary": pipeline.summary,
        "parameters": [
            {
                "name": one.name,
                "kind": one.kind.name.lower(),
                "default": one.default,
                "required": one.required,
                "choices": list(one.choices),
                "help": one.help,
            }
            for one in pipeline.parameters
        ],
    }


def _print_parameters(pipeline: Pipeline) -> None:
    print(f"\n{pipeline.name}: {pipeline.summary}\n")
    rows = [[f"--{one.name} {one.metavar}".rstrip(), _help(one)] for one in pipeline.parameters]
    print_table([f"OPTIONS OF {pipeline.name.upper()}", ""], rows)
    if pipeline.example:
        print(f"\nExample: {pipeline.example}")


def _help(parameter: Parameter) -> str:
    if parameter.required:
        return f"{parameter.help} Required."
    if parameter.default in (None, "", "false"):
        return parameter.help
    return f"{parameter.help} Default: {parameter.default}."


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        print_json(summary.to_json())
        return
    print(summary.title)
    print_fields([(f"  {label}", value) for label, value in summary.rows])
    for table in summary.tables:
        print(f"\n{table.title}")
        print_table(list(table.columns), table.rows)
    if summary.files:
        print("\nfiles")
        for file in summary.files:
            print(f"  {file}")
