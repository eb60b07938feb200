"""Commands about consumer groups.

```
 CreateGroup --> ConsumerGroup (id = index of the command), and NAME.dead for dead letters
 AlterGroup      bindings, mode, times, paused          ResetGroup   generation + 1, reset_to
 ShareGroup  --> the same by name and filter            DeleteGroup  the partitions forget it; NAME.dead stays
 ReadDead    --> $dead/NAME, the reader of its dead letters; stays as long as their topic: none is redriven twice
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from flockmq.cluster import dead_letters
from flockmq.cluster.bindings import check_binding, check_count
from flockmq.cluster.changes_bindings import overlaps
from flockmq.cluster.changes_topics import create_topic, topic_of_users
from flockmq.cluster.checks import check_filter, check_name, check_number, check_text
from flockmq.cluster.commands import CONFLICT, EXISTS, INVALID, LIMIT, NOT_FOUND, CreateTopic, RefusedError
from flockmq.cluster.groups import (
    DEAD_SUFFIX,
    FANOUT,
    HEADERS,
    MODES,
    NAMED,
    NO_DEAD_LETTERS,
    Binding,
    ConsumerGroup,
    is_reader,
    reader_name,
    share_name,
)
from flockmq.cluster.tables import key_of
from flockmq.log.starts import OFFSET, parse_start

if TYPE_CHECKING:
    from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, DeleteGroup, ReadDead, ResetGroup, ShareGroup
    from flockmq.cluster.tables import Tables

GROUPS_MAX: Final = 50_000
GROUPS_PER_NAMESPACE_MAX: Final = 10_000
WAIT_MS_MAX: Final = 86_400_000
"""Of ``ack_wait`` and backoff: a day."""
ACK_WAIT_MS_MIN: Final = 100
DELIVER_MAX: Final = 65_535
IN_FLIGHT_MAX: Final = 65_536
LINGER_MS_MAX: Final = 30 * 86_400_000
START_CHARACTERS_MAX: Final = 4_096
READER_ACK_WAIT_MS: Final = 60_000
READER_IN_FLIGHT: Final = 10_000


def create_group(tables: Tables, command: CreateGroup, wall_ms: int) -> ConsumerGroup:
    """A new group, and the topic for its dead letters when there is none."""
    check_name("consumer group", command.name)
    tables.namespace(command.namespace)
    if key_of(command.namespace, command.name) in tables.groups:
        raise RefusedError(EXISTS, f"The consumer group {command.name} exists; choose another name, or alter it.")
    _check_room(tables, command.namespace)
    group = ConsumerGroup(
        tables.index,
        command.namespace,
        command.name,
        command.bindings,
        command.mode,
        command.ack_wait_ms,
        command.max_deliver,
        command.backoff_ms,
        command.backoff_max_ms,
        command.max_in_flight,
        command.dead_letter or command.name + DEAD_SUFFIX,
        command.start,
        command.hold,
        command.paused,
        reset_to=command.start,
        created_ms=wall_ms,
        reset_ms=wall_ms,
    )
    _check(tables, group)
    _check_start(tables, group, group.start)
    _make_dead_letters(tables, group, wall_ms)
    return _keep(tables, group)


def alter_group(tables: Tables, command: AlterGroup, wall_ms: int) -> ConsumerGroup:
    """Other bindings, times or bounds. The group stays where it stands."""
    known = tables.consumer_group(command.namespace, command.name)
    if is_reader(known.name):
        raise RefusedError(CONFLICT, f"{known.name[:128]} reads dead letters for a group; alter that group.")
    group = replace(
        known,
        bindings=known.bindings if command.bindings is None else command.bindings,
        mode=known.mode if command.mode is None else command.mode,
        ack_wait_ms=_or(command.ack_wait_ms, known.ack_wait_ms),
        max_deliver=_or(command.max_deliver, known.max_deliver),
        backoff_ms=_or(command.backoff_ms, known.backoff_ms),
        backoff_max_ms=_or(command.backoff_max_ms, known.backoff_max_ms),
        max_in_flight=_or(command.max_in_flight, known.max_in_flight),
        dead_letter=known.dead_letter
        if command.dead_letter is None
        else command.dead_letter or command.name + DEAD_SUFFIX,
        hold=known.hold if command.hold is None else command.hold,
        paused=known.paused if command.paused is None else command.paused,
    )
    if known.made_by_share and group != replace(known, paused=group.paused):
        raise RefusedError(
            CONFLICT,
            f"The group {known.name[:128]} was made by a shared subscription; it can be paused, resumed, reset and "
            "deleted. Create a group to choose more.",
        )
    if group == known:
        return known
    if not known.made_by_share:
        _check(tables, group)
        _make_dead_letters(tables, group, wall_ms)
    return _keep(tables, group)


def delete_group(tables: Tables, command: DeleteGroup) -> ConsumerGroup:
    """The group goes from all partitions; the topic with its dead letters stays."""
    known = tables.consumer_group(command.namespace, command.name)
    if command.id and command.id != known.id:
        raise RefusedError(CONFLICT, f"The group {known.name[:128]} is another one by now; nothing needs to be done.")
    del tables.groups[key_of(command.namespace, command.name)]
    tables.versions = replace(tables.versions, groups=tables.index)
    return known


def reset_group(tables: Tables, command: ResetGroup, wall_ms: int) -> ConsumerGroup:
    """Begin anew elsewhere; what members hold and say of the old generation counts no more."""
    known = tables.consumer_group(command.namespace, command.name)
    _check_start(tables, known, command.start)
    return _keep(tables, replace(known, generation=known.generation + 1, reset_to=command.start, reset_ms=wall_ms))


def share_group(tables: Tables, command: ShareGroup, wall_ms: int) -> ConsumerGroup:
    """The group of a shared subscription on durable topics; made on first use."""
    tables.namespace(command.namespace)
    check_text("name of a shared subscription", command.name)
    if not command.name or any(one in command.name for one in "/+#"):
        raise RefusedError(INVALID, "The name of a shared subscription has at least one character, and no /, + or #.")
    check_filter(command.filter)
    check_number("linger in milliseconds", command.linger_ms, 0, LINGER_MS_MAX)
    name = share_name(command.name, command.filter)
    known = tables.groups.get(key_of(command.namespace, name))
    if known is not None:
        return known
    _check_room(tables, command.namespace)
    topics = [one for one in tables.user_topics() if one.namespace == command.namespace]
    bindings = [Binding(one.name, NAMED, command.filter) for one in topics if overlaps(one, command.filter)]
    if not bindings:
        raise RefusedError(
            NOT_FOUND, f"No durable topic of the namespace has names that {command.filter[:80]!r} matches; create one."
        )
    return _keep(
        tables,
        ConsumerGroup(
            tables.index,
            command.namespace,
            name,
            tuple(bindings),
            max_deliver=0,
            made_by_share=True,
            linger_ms=command.linger_ms,
            created_ms=wall_ms,
            reset_ms=wall_ms,
        ),
    )


def read_dead(tables: Tables, command: ReadDead, wall_ms: int) -> ConsumerGroup:
    """The reader of a group's dead letters; made anew when these go to another topic by now."""
    group = tables.consumer_group(command.namespace, command.name)
    if group.dead_letter == NO_DEAD_LETTERS:
        raise RefusedError(
            INVALID, f"The group {group.name[:128]} keeps no dead letters: they are dropped and counted."
        )
    own = group.dead_letter == group.name + DEAD_SUFFIX
    binding = Binding(group.dead_letter, FANOUT) if own else Binding(group.dead_letter, HEADERS, _of_group(group.name))
    name = reader_name(group.name)
    known = tables.groups.get(key_of(command.namespace, name))
    if known is not None and known.bindings == (binding,):
        return known
    return _keep(
        tables,
        ConsumerGroup(
            tables.index,
            command.namespace,
            name,
            (binding,),
            ack_wait_ms=READER_ACK_WAIT_MS,
            max_deliver=0,
            backoff_ms=0,
            max_in_flight=READER_IN_FLIGHT,
            start="earliest",
            hold=False,
            reset_to="earliest",
            created_ms=wall_ms,
            reset_ms=wall_ms,
        ),
    )


def _of_group(name: str) -> str:
    return f"all:{dead_letters.GROUP.decode()}={name}"


def _check(tables: Tables, group: ConsumerGroup) -> None:
    check_count(group.bindings)
    for binding in group.bindings:
        topic = topic_of_users(tables, group.namespace, binding.topic)
        check_binding(binding, binding.type or topic.exchange)
        if binding.topic == group.dead_letter:
            raise RefusedError(
                INVALID,
                f"The group {group.name} reads {binding.topic}, so its dead letters can't go there; name another.",
            )
    if group.mode not in MODES:
        raise RefusedError(INVALID, f"The mode must be one of {', '.join(MODES)}, not {group.mode[:40]!r}.")
    check_number("ack wait in milliseconds", group.ack_wait_ms, ACK_WAIT_MS_MIN, WAIT_MS_MAX)
    check_number("number of deliveries", group.max_deliver, 0, DELIVER_MAX)
    check_number("backoff in milliseconds", group.backoff_ms, 0, WAIT_MS_MAX)
    check_number("longest backoff in milliseconds", group.backoff_max_ms, 0, WAIT_MS_MAX)
    check_number("number of records in flight", group.max_in_flight, 1, IN_FLIGHT_MAX)


def _check_start(tables: Tables, group: ConsumerGroup, start: str) -> None:
    check_text("start", start, START_CHARACTERS_MAX)
    try:
        wanted = parse_start(start)
    except ValueError as error:
        raise RefusedError(INVALID, f"{error}.") from None
    if wanted.what != OFFSET:
        return
    topics = group.topics()
    if len(topics) > 1:
        raise RefusedError(INVALID, f"The group {group.name} reads {len(topics)} topics; offsets are of one topic.")
    refusal = wanted.refusal(tables.topic(group.namespace, topics[0]).shards)
    if refusal:
        raise RefusedError(INVALID, f"{refusal}.")


def _check_room(tables: Tables, namespace: str) -> None:
    if len(tables.groups) >= GROUPS_MAX:
        raise RefusedError(LIMIT, f"There are {GROUPS_MAX} consumer groups, which is the most; delete one first.")
    if sum(1 for group in tables.groups.values() if group.namespace == namespace) >= GROUPS_PER_NAMESPACE_MAX:
        raise RefusedError(
            LIMIT,
            f"The namespace {namespace} has {GROUPS_PER_NAMESPACE_MAX} consumer groups, which is the most; delete one "
            "first.",
        )


def _make_dead_letters(tables: Tables, group: ConsumerGroup, wall_ms: int) -> None:
    """Make ``NAME.dead`` when that is the topic for dead letters; another one must be there."""
    if group.dead_letter == NO_DEAD_LETTERS:
        return
    is_there = key_of(group.namespace, group.dead_letter) in tables.topics
    if is_there or group.dead_letter != group.name + DEAD_SUFFIX:
        topic_of_users(tables, group.namespace, group.dead_letter)
        return
    create_topic(tables, CreateTopic(group.dead_letter, group.namespace), wall_ms, dead_letters=True)


def _keep(tables: Tables, group: ConsumerGroup) -> ConsumerGroup:
    tables.groups[key_of(group.namespace, group.name)] = group
    tables.versions = replace(tables.versions, groups=tables.index)
    return group


def _or(said: int | None, known: int) -> int:
    return known if said is None else said
