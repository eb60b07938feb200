"""``flockmq group``: consumer groups, whose members share the records of topics."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flockmq.cli import group_dead, group_members
from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import (
    NAMESPACE_DEFAULT,
    WHERE_HELP,
    AnyNamespaceOption,
    NamespaceOption,
    YesOption,
    age_text,
    check_namespace,
    confirm,
    in_namespace,
    parse_where,
    size_text,
)
from flockmq.cli.group_common import GroupArgument, parse_age
from flockmq.cli.output import (
    LIMIT_DEFAULT,
    UNKNOWN,
    JsonOption,
    LimitOption,
    print_change,
    print_fields,
    print_json,
    print_made,
    print_table,
)
from flockmq.cli.usage import UsageError
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_groups_model import GroupDetails, GroupInfo

Mode = Literal["share", "key", "stream"]
_BIND_HELP = (
    "TOPIC, TOPIC:fanout, TOPIC:direct:KEY, TOPIC:topic:FILTER or TOPIC:headers:all:NAME=VALUE,... (or any:...); can "
    "be repeated."
)
_MODE_HELP = (
    "share: any member gets any record; key: records of one key go to one member at a time, in order; stream: a whole "
    "partition goes to one member."
)
_DELIVER_HELP = "Deliveries after which a record is a dead letter; 0: never."
_BACKOFF_HELP = "Wait before a record is delivered again after a nack, like 1s; doubles up to --backoff-max."
_DEAD_HELP = "Topic for dead letters, or none to drop and count them."

_ACK_WAIT_HELP = "A record that is held longer is delivered again."
_BACKOFF_MAX_HELP = "The longest such wait."
_IN_FLIGHT_HELP = "Records of one partition that members may hold."
_HOLD_HELP = "Let retention wait for the group, within the topic's bound."

BindOption = Annotated[list[str] | None, typer.Option("--bind", "-b", metavar="BINDING", help=_BIND_HELP)]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Consumer groups: members share the records of topics, and settle each.")
    group.command("create")(create)
    group.command("alter")(alter)
    group.command("list")(list_groups)
    group.command("show")(show)
    group.command("lag")(lag)
    group.command("members")(members)
    group.command("pause")(pause)
    group.command("resume")(resume)
    group.command("reset")(reset)
    group.command("delete")(delete)
    group_members.register(group)
    group_dead.register(group)
    app.add_typer(group, name="group")


def create(
    name: GroupArgument,
    *,
    bind: BindOption = None,
    mode: Annotated[Mode, typer.Option("--mode", help=_MODE_HELP)] = "share",
    ack_wait: Annotated[str, typer.Option("--ack-wait", metavar="AGE", help=_ACK_WAIT_HELP)] = "30s",
    max_deliver: Annotated[int, typer.Option("--max-deliver", min=0, help=_DELIVER_HELP)] = 5,
    backoff: Annotated[str, typer.Option("--backoff", metavar="AGE", help=_BACKOFF_HELP)] = "1s",
    backoff_max: Annotated[str, typer.Option("--backoff-max", metavar="AGE", help=_BACKOFF_MAX_HELP)] = "1m",
    max_in_flight: Annotated[int, typer.Option("--max-in-flight", min=1, help=_IN_FLIGHT_HELP)] = 1_000,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="TOPIC", help=_DEAD_HELP, show_default="NAME.dead")
    ] = None,
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=WHERE_HELP)] = "latest",
    hold: Annotated[bool, typer.Option("--hold/--no-hold", help=_HOLD_HELP)] = True,
    paused: Annotated[bool, typer.Option("--paused", help="Begin without handing records out.")] = False,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a consumer group. Members then subscribe to $queue/NAME, or fetch over HTTP."""
    from flockmq.admin.durable_groups_model import GroupRequest

    if not bind:
        raise UsageError("Say with --bind what the group reads, such as --bind TOPIC.")
    parse_where(start, "--from")
    made = admin_client(server).create_group(
        GroupRequest(
            name=name,
            bindings=list(bind),
            namespace=namespace,
            mode=mode,
            ack_wait_ms=parse_age(ack_wait, "--ack-wait"),
            max_deliver=max_deliver,
            backoff_ms=parse_age(backoff, "--backoff"),
            backoff_max_ms=parse_age(backoff_max, "--backoff-max"),
            max_in_flight=max_in_flight,
            dead_letter=dead_letter,
            start=start,
            hold=hold,
            paused=paused,
        )
    )
    reads = ", ".join(one.text for one in made.bindings)
    where = f"; dead letters go to {made.dead_letter}" if made.dead_letter else "; dead letters are dropped"
    print_made(made, f"Group {made.name!r} reads {reads} from {made.start} on{where}.", as_json=as_json)


def alter(
    name: GroupArgument,
    *,
    bind: BindOption = None,
    mode: Annotated[Mode | None, typer.Option("--mode", help=_MODE_HELP)] = None,
    ack_wait: Annotated[str | None, typer.Option("--ack-wait", metavar="AGE", help=_ACK_WAIT_HELP)] = None,
    max_deliver: Annotated[int | None, typer.Option("--max-deliver", min=0, help=_DELIVER_HELP)] = None,
    backoff: Annotated[str | None, typer.Option("--backoff", metavar="AGE", help=_BACKOFF_HELP)] = None,
    backoff_max: Annotated[str | None, typer.Option("--backoff-max", metavar="AGE", help=_BACKOFF_MAX_HELP)] = None,
    max_in_flight: Annotated[int | None, typer.Option("--max-in-flight", min=1, help=_IN_FLIGHT_HELP)] = None,
    dead_letter: Annotated[str | None, typer.Option("--dead-letter", metavar="TOPIC", help=_DEAD_HELP)] = None,
    hold: Annotated[bool | None, typer.Option("--hold/--no-hold", help=_HOLD_HELP)] = None,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change a consumer group; it stays where it stands. What is not said stays; --bind replaces all bindings."""
    from flockmq.admin.durable_groups_model import GroupChange

    fields: dict[str, object] = {
        "bindings": list(bind) if bind else None,
        "mode": mode,
        "ack_wait_ms": None if ack_wait is None else parse_age(ack_wait, "--ack-wait"),
        "max_deliver": max_deliver,
        "backoff_ms": None if backoff is None else parse_age(backoff, "--backoff"),
        "backoff_max_ms": None if backoff_max is None else parse_age(backoff_max, "--backoff-max"),
        "max_in_flight": max_in_flight,
        "dead_letter": dead_letter,
        "hold": hold,
    }
    said = {field: value for field, value in fields.items() if value is not None}
    if not said:
        raise UsageError("Nothing is said to change; see `flockmq group alter --help`.")
    change = GroupChange(**said)  # type: ignore[arg-type]
    made = admin_client(server).alter_group(name, change, namespace=namespace)
    if as_json:
        print_json(made)
    else:
        print_fields(_fields(made))


def list_groups(
    *,
    namespace: AnyNamespaceOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List consumer groups and how far they are behind."""
    client = admin_client(server)
    found = list(itertools.islice(client.groups(namespace=namespace, lag=True), limit or None))
    if not found:
        check_namespace(client, namespace)
    if as_json:
        print_json(found)
    elif not found:
        print(
            "There are no consumer groups; create one with `flockmq group create NAME --bind "
            f"TOPIC{in_namespace(namespace)}`."
        )
    else:
        columns = ["NAMESPACE", "GROUP", "READS", "MODE", "MEMBERS", "LAG", "BYTES", "SECONDS", "DEAD", "PAUSED"]
        print_table(columns, [_row(one) for one in found], spare=["MODE", "BYTES", "NAMESPACE", "PAUSED"])


def show(
    name: GroupArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show what a group reads, where it stands, and its members."""
    found = admin_client(server).group(name, namespace=namespace)
    if as_json:
        print_json(found)
        return
    print_fields(_fields(found))
    print()
    _print_partitions(found)
    if found.members:
        print()
        _print_members(found)


def lag(
    name: GroupArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show how far a group is behind in each partition: in messages, bytes and seconds."""
    found = admin_client(server).group(name, namespace=namespace)
    if as_json:
        print_json({"lag": _builtins(found.lag), "partitions": _builtins(found.partitions)})
    else:
        _print_partitions(found)


def members(
    name: GroupArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show who takes part in a group, and what each member holds."""
    found = admin_client(server).group(name, namespace=namespace)
    if as_json:
        print_json(found.members)
    elif found.members:
        _print_members(found)
    else:
        print(f"Group {name!r} has no members now; a client becomes one when it subscribes to $queue/{name}.")


def pause(
    name: GroupArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Hand out no more records. Members may settle what they hold."""
    made = admin_client(server).pause_group(name, namespace=namespace)
    print_made(made, f"Group {name!r} is paused.", as_json=as_json)


def resume(
    name: GroupArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Hand out records again."""
    made = admin_client(server).resume_group(name, namespace=namespace)
    print_made(made, f"Group {name!r} hands out records.", as_json=as_json)


def reset(
    name: GroupArgument,
    *,
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=WHERE_HELP)],
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Begin anew elsewhere: a new generation. Acks of records that were handed out before change nothing."""
    parse_where(start, "--from")
    made = admin_client(server).reset_group(name, start, namespace=namespace)
    print_made(made, f"Group {name!r} begins at {start}; it is in generation {made.generation}.", as_json=as_json)


def delete(
    name: GroupArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Forget a group and where it stands. The topic with its dead letters stays."""
    confirm(f"Forget the group {name!r} of namespace {namespace!r} and where it stands?", yes=yes)
    admin_client(server).delete_group(name, namespace=namespace)
    print_change(f"Group {name!r} was deleted.", as_json=as_json, deleted=name, namespace=namespace)


def _row(group: GroupInfo) -> list[object]:
    known = group.lag
    return [
        group.namespace,
        group.name,
        " ".join(one.text for one in group.bindings),
        group.mode,
        UNKNOWN if known is None else known.members,
        *(
            [UNKNOWN] * 3
            if known is None or known.messages is None
            else _lag(known.messages, known.bytes, known.seconds)
        ),
        UNKNOWN if known is None else known.dead,
        group.paused,
    ]


def _lag(messages: int | None, size: int | None, seconds: float | None) -> list[object]:
    return [
        UNKNOWN if messages is None else messages,
        UNKNOWN if size is None else size_text(size),
        UNKNOWN if seconds is None else round(seconds, 1),
    ]


def _fields(group: GroupInfo) -> list[tuple[str, object]]:
    deliver = f"{group.max_deliver} deliver{'y' if group.max_deliver == 1 else 'ies'}"
    fields: list[tuple[str, object]] = [
        ("group", group.name),
        ("namespace", group.namespace),
        *[("reads" if not index else "", one.text) for index, one in enumerate(group.bindings)],
        ("mode", group.mode),
        ("ack wait", age_text(group.ack_wait_ms)),
        ("backoff", f"{age_text(group.backoff_ms)}, doubling up to {age_text(group.backoff_max_ms)}"),
        ("in flight", f"at most {counted(group.max_in_flight, 'record')} of a partition"),
        ("dead letters", f"after {deliver}, to {group.dead_letter}" if group.dead_letter else "dropped")
        if group.max_deliver
        else ("dead letters", f"only what members reject, to {group.dead_letter}" if group.dead_letter else "never"),
        ("holds retention", group.hold),
        ("paused", group.paused),
        ("generation", f"{group.generation}, from {group.reset_to} on"),
        ("created", group.created_at),
    ]
    if group.made_by_share:
        fields.append(("made by", f"a shared subscription; stays {age_text(group.linger_ms)} without members"))
    if group.lag is not None:
        messages, size, seconds = _lag(group.lag.messages, group.lag.bytes, group.lag.seconds)
        fields.append(("lag", f"{messages} messages, {size}, {seconds} s"))
        if group.lag.problem:
            fields.append(("problem", group.lag.problem))
    return fields


def _print_partitions(group: GroupDetails) -> None:
    rows = [
        [
            f"{one.topic}/{one.shard}",
            one.leader or UNKNOWN,
            UNKNOWN if one.floor is None else one.floor,
            UNKNOWN if one.end_offset is None else one.end_offset,
            *_lag(one.lag, one.lag_bytes, one.lag_s),
            UNKNOWN if one.in_flight is None else one.in_flight,
            UNKNOWN if one.redelivered is None else one.redelivered,
            UNKNOWN if one.dead is None else one.dead,
        ]
        for one in group.partitions
    ]
    columns = ["PARTITION", "LEADER", "FLOOR", "END", "LAG", "BYTES", "SECONDS", "IN FLIGHT", "REDELIVERED", "DEAD"]
    print_table(columns, rows)


def _print_members(group: GroupDetails) -> None:
    rows = [[one.member, one.node, one.held, one.waits_for, " ".join(one.shards) or None] for one in group.members]
    print_table(["MEMBER", "NODE", "HOLDS", "WAITS FOR", "OF"], rows)


def _builtins(value: object) -> object:
    import msgspec

    return msgspec.to_builtins(value)
