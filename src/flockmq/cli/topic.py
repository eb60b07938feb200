"""``flockmq topic``: durable topics, whose messages are kept in replicated logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import (
    NAMESPACE_DEFAULT,
    AnyNamespaceOption,
    NamespaceOption,
    WithHiddenOption,
    YesOption,
    check_filters,
    check_namespace,
    confirm,
    in_namespace,
    parse_retention,
    retention_text,
    size_text,
)
from flockmq.cli.output import (
    LIMIT_DEFAULT,
    JsonOption,
    LimitOption,
    print_change,
    print_fields,
    print_json,
    print_table,
)
from flockmq.cli.usage import UsageError
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_model import DataTopic, Partition

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.")]
FilterOption = Annotated[
    list[str] | None,
    typer.Option("--filter", "-f", metavar="F", help="A topic filter whose messages it keeps; can be repeated."),
]
Ack = Literal["quorum", "leader", "memory"]
Exchange = Literal["fanout", "direct", "topic", "headers"]
_ACK_HELP = (
    "When QoS 1 publishers are answered: stored by a majority, stored by the leader, or known to the leader. QoS 2 "
    "always waits for the majority."
)
_KEY_HELP = "What decides the shard: topic, client, or the name of an MQTT 5 user property."
_RETENTION_HELP = (
    "How long or how much of each shard to keep at least, like 7d, 10GB or 7d,10GB; none keeps everything."
)
_EXCHANGE_HELP = "Default exchange type of consumer groups."


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Durable topics: what is published to them is kept in replicated logs.")
    group.command("create")(create)
    group.command("list")(list_topics)
    group.command("show")(show)
    group.command("alter")(alter)
    group.command("delete")(delete)
    app.add_typer(group, name="topic")


def create(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    filters: FilterOption = None,
    shards: Annotated[int, typer.Option("--shards", min=1, max=1024, help="How many partitions.")] = 1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=7, help="Copies; fewer while there are fewer nodes.")
    ] = 3,
    retention: Annotated[list[str] | None, typer.Option("--retention", metavar="R", help=_RETENTION_HELP)] = None,
    ack: Annotated[Ack, typer.Option("--ack", help=_ACK_HELP)] = "quorum",
    key: Annotated[str, typer.Option("--key", metavar="KEY", help=_KEY_HELP)] = "topic",
    exchange: Annotated[Exchange, typer.Option("--exchange", help=_EXCHANGE_HELP)] = "fanout",
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a durable topic. Without --filter it keeps what is published to NAME and below: NAME/#.

    Its retention is 7d unless --retention says otherwise. Filters that could match a name of another topic are refused.
    """
    from flockmq.admin.durable_model import RETENTION_MS_DEFAULT, TopicRequest

    age_ms, size = parse_retention(retention) if retention else (RETENTION_MS_DEFAULT, None)
    _check_key(key)
    made = admin_client(server).create_topic(
        TopicRequest(
            name=name,
            namespace=namespace,
            filters=check_filters(filters) or [],
            shards=shards,
            replication_factor=replication_factor,
            retention_ms=age_ms,
            retention_bytes=size,
            ack=ack,
            key=key,
            exchange=exchange,
        )
    )
    if as_json:
        print_json(made)
    else:
        print(f"Topic {made.name!r} keeps {', '.join(made.filters)} in {counted(made.shards, 'shard')}.")
        if made.copies_possible < made.replication_factor:
            print(f"Copies: {_copies(made)}.")


def list_topics(
    *,
    namespace: AnyNamespaceOption = None,
    with_hidden: WithHiddenOption = False,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List durable topics."""
    import itertools

    client = admin_client(server)
    found = client.topics(namespace=namespace, with_hidden=with_hidden)
    topics = list(itertools.islice(found, limit or None))
    if not topics:
        check_namespace(client, namespace)
    if as_json:
        print_json(topics)
    elif not topics:
        print(f"There are no durable topics; create one with `flockmq topic create NAME{in_namespace(namespace)}`.")
    else:
        columns = ["NAMESPACE", "TOPIC", "FILTERS", "SHARDS", "COPIES", "RETENTION", "ACK", "KEY", "EXCHANGE"]
        print_table(columns, [_row(one) for one in topics], spare=["EXCHANGE", "KEY", "ACK", "NAMESPACE"])


def _row(topic: DataTopic) -> list[object]:
    return [
        topic.namespace,
        topic.name,
        " ".join(topic.filters) or None,
        topic.shards,
        topic.replication_factor,
        retention_text(topic.retention_ms, topic.retention_bytes),
        topic.ack,
        topic.key,
        topic.exchange,
    ]


def show(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    with_hidden: WithHiddenOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show a durable topic and its partitions: leaders, replicas, how many records."""
    client = admin_client(server)
    topic = client.topic(name, namespace=namespace, with_hidden=with_hidden)
    partitions = client.topic_partitions(name, namespace=namespace, with_hidden=with_hidden)
    if as_json:
        import msgspec

        print_json({**msgspec.to_builtins(topic), "partitions": msgspec.to_builtins(partitions)})
        return
    print_fields(
        [
            ("topic", topic.name),
            ("namespace", topic.namespace),
            ("filters", " ".join(topic.filters) or None),
            ("shards", topic.shards),
            ("copies", _copies(topic)),
            ("retention", retention_text(topic.retention_ms, topic.retention_bytes)),
            ("ack", topic.ack),
            ("key", topic.key),
            ("exchange", topic.exchange),
            ("created", topic.created_at),
        ]
    )
    print()
    print_partitions(partitions, with_topic=False)


def _copies(topic: DataTopic) -> str:
    wanted, possible = topic.replication_factor, topic.copies_possible
    if possible >= wanted:
        return str(wanted)
    alive = f"{counted(possible, 'core node')} alive"
    return f"{wanted} wanted, {possible} possible with {alive}; more are made when nodes join"


def print_partitions(partitions: list[Partition], *, with_topic: bool) -> None:
    """A table of partitions."""
    columns = ["SHARD", "GROUP", "LEADER", "REPLICAS", "FIRST", "END", "SIZE", "LAG", "STATE"]
    rows: list[list[object]] = []
    for one in partitions:
        lags = [replica.lag for replica in one.replicas if replica.lag is not None]
        row: list[object] = [
            one.shard,
            one.group,
            one.leader,
            " ".join(replica.node for replica in one.replicas),
            one.first_offset,
            one.end_offset,
            size_text(one.bytes),
            max(lags, default=None),
            "moving to " + " ".join(one.target) if one.target and one.healthy else one.problem or "healthy",
        ]
        rows.append([f"{one.namespace}/{one.topic}", *row] if with_topic else row)
    print_table(["TOPIC", *columns] if with_topic else columns, rows, spare=["GROUP", "SIZE", "FIRST", "REPLICAS"])


def alter(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    filters: FilterOption = None,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, max=1024, help="More partitions; they are never taken away.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, max=7, help="Copies.")
    ] = None,
    retention: Annotated[list[str] | None, typer.Option("--retention", metavar="R", help=_RETENTION_HELP)] = None,
    ack: Annotated[Ack | None, typer.Option("--ack", help=_ACK_HELP)] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help=_KEY_HELP)] = None,
    exchange: Annotated[Exchange | None, typer.Option("--exchange", help=_EXCHANGE_HELP)] = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change a durable topic; what is not given stays. --filter replaces all filters that it had.

    After shards are added, later records of a key may be in another shard than earlier ones: their order holds within
    each shard, not between the two.
    """
    from typing import Any

    from flockmq.admin.durable_model import TopicChange

    given: dict[str, Any] = {
        "filters": check_filters(filters),
        "shards": shards,
        "replication_factor": replication_factor,
        "ack": ack,
        "key": key,
        "exchange": exchange,
    }
    given = {field: value for field, value in given.items() if value is not None}
    if retention:
        given["retention_ms"], given["retention_bytes"] = parse_retention(retention)
    if not given:
        raise UsageError("Nothing to change was given; see `flockmq topic alter --help`.")
    if key is not None:
        _check_key(key)
    client = admin_client(server)
    before = client.topic(name, namespace=namespace, with_hidden=True)
    made = client.alter_topic(name, TopicChange(**given), namespace=namespace)
    if as_json:
        print_json(made)
    elif made == before:
        print(f"Topic {made.name!r} was like that before; nothing changed.")
    else:
        print(f"Topic {made.name!r} was changed.")
        if replication_factor is not None and made.copies_possible < made.replication_factor:
            print(f"Copies: {_copies(made)}.")


def _check_key(key: str) -> None:
    if not key:
        raise UsageError("--key can't be empty: use topic, client, or the name of an MQTT 5 user property.")


def delete(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete a durable topic with all of its records and cursors."""
    confirm(f"Delete topic {name!r} of namespace {namespace!r} with all of its records?", yes=yes)
    admin_client(server).delete_topic(name, namespace=namespace)
    print_change(f"Topic {name!r} was deleted.", as_json=as_json, deleted=name, namespace=namespace)
