"""Where sessions stand, as the log has it: never behind a message that their client has not acknowledged.

```
 SUBSCRIBE, applied: starts --> records of matching names from there on --> acknowledged by the client (MQTT packets)
 DETACH, MARK, claims: the position of a record, by partition -----------> all before it are acknowledged
 a replica of $capture forgets segments --> the least position of all sessions is behind them, or a gap is reported
```
| rule | broken when |
| --- | --- |
| positions | the position of a session passes a message that its client has not acknowledged, or the log's end |
| holds | a replica of ``$capture`` forgets what a session may need, and no event ``cursor_overrun`` says so |

Messages from before the start of a subscription are counted: one that is committed while its SUBSCRIBE is on its way to
the log may come live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.machine.session_bodies import SubscribeStatement, UnsubscribeStatement
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.machine.session_table import SessionTable
    from flockmq.testing.simulation.nodes.archive import Record
    from flockmq.testing.simulation.nodes.process import DurableProcess
    from flockmq.testing.simulation.nodes.session_machines import Step
    from flockmq.testing.simulation.nodes.world import NodesWorld

Starts = dict[int, int]
"""Partition -> offset; a partition that is not named is newer than the subscription, which gets all of it."""


class PositionRules:
    """See the module."""

    def __init__(self, cluster: NodesWorld) -> None:
        self.gaps: dict[str, list[tuple[int, int, int]]] = {}
        """Client -> (partition, from, to) of records that were gone, says an event."""
        self._cluster = cluster
        self._acknowledged: dict[bytes, set[bytes]] = {}
        """Client -> payloads."""
        self._starts: dict[bytes, dict[bytes, Starts]] = {}
        """Client -> filter -> starts: what lies behind must come."""
        self._lowest: dict[bytes, dict[bytes, Starts]] = {}
        """The same with the lowest starts, where a SUBSCRIBE was sent again: what lies before must not come."""
        self._cleared: dict[tuple[bytes, int], int] = {}
        """(Client, partition) -> all before this offset is acknowledged, or not the client's."""
        self._firsts: dict[tuple[int, int, int], int] = {}
        """(Node, life, partition) -> where its log begins."""
        self._overruns: dict[int, int] = {}
        """Partition -> up to where events say that records went."""

    # What clients do.

    def opened(self, name: str) -> None:
        """A client of a persistent session begins."""
        self._acknowledged[name.encode()] = set()

    def acknowledged(self, name: str, payload: bytes) -> None:
        """PUBACK or PUBREC was sent."""
        self._acknowledged[name.encode()].add(payload)

    def came(self, name: str, topic: bytes, payload: bytes) -> None:
        """A message came: hardly ever one from before the starts of all subscriptions that match."""
        starts = self._lowest.get(name.encode(), {})
        matching = [found for topic_filter, found in starts.items() if _matches(topic_filter, topic)]
        places = self._cluster.archive.places.get(payload, [])
        if not matching or not places:
            return  # the SUBSCRIBE is not applied yet; the message went to no log
        self._cluster.count("session starts checked")
        if not any(offset >= found.get(group, 0) for found in matching for group, offset in places):
            self._cluster.count("session messages before their start")

    # What the log says.

    def applied(self, group: int, step: Step) -> None:  # noqa: ARG002
        """A statement is applied; see ``StepRule``."""
        statement = step.statement
        record = step.granted()
        if record is not None and not record.had_session:
            self._forget(record.client)
        if isinstance(statement, SubscribeStatement) and statement.client in self._acknowledged:
            self._subscribed(statement, step.table)
        elif isinstance(statement, UnsubscribeStatement) and step.table.current(statement.client, statement.epoch):
            for topic_filter in statement.full_filters:
                self._starts.get(statement.client, {}).pop(topic_filter, None)
                self._lowest.get(statement.client, {}).pop(topic_filter, None)
        for client in self._starts:
            known = step.table.records.get(client)
            if known is not None:
                self._check(step.table, known)

    def _forget(self, client: bytes) -> None:
        self._starts.pop(client, None)
        self._lowest.pop(client, None)
        for key in [key for key in self._cleared if key[0] == client]:
            del self._cleared[key]

    def _subscribed(self, statement: SubscribeStatement, table: SessionTable) -> None:
        if table.current(statement.client, statement.epoch) is None:
            return
        first = self._starts.setdefault(statement.client, {})
        lowest = self._lowest.setdefault(statement.client, {})
        for one in statement.subscriptions:
            first.setdefault(one.full_filter, dict(one.starts))
            known = lowest.setdefault(one.full_filter, dict(one.starts))
            for group, offset in one.starts.items():
                known[group] = min(offset, known.get(group, 0))

    def _check(self, table: SessionTable, record: SessionRecord) -> None:
        archive = self._cluster.archive
        groups = {group for starts in self._starts[record.client].values() for group in starts} | set(record.positions)
        for group in groups:
            position = table.position_of(record, group)
            known = self._cleared.get((record.client, group), 0)
            if position <= known:
                continue
            if position > archive.end(group):
                text = f"{record.client!r} stands at {position} of group {group}, which ends at {archive.end(group)}"
                raise Violation("positions", text)
            for offset in range(known, position):
                if self._is_open(record.client, group, offset, archive.records[group][offset]):
                    one = archive.records[group][offset]
                    text = (
                        f"{record.client!r} stands at {position} of group {group}; {one.payload!r} at {offset} is open"
                    )
                    raise Violation("positions", text)
            self._cleared[record.client, group] = position
            self._cluster.count("session positions checked")

    def _is_open(self, client: bytes, group: int, offset: int, record: Record) -> bool:
        """Whether a record waits for an acknowledgement of a session."""
        if not record.qos or record.payload in self._acknowledged[client]:
            return False
        starts = self._starts[client]
        if not any(_matches(one, record.topic) and offset >= starts[one].get(group, 0) for one in starts):
            return False
        return not self.is_in_gap(client.decode(), group, offset)

    # What retention does.

    def is_in_gap(self, name: str, group: int, offset: int) -> bool:
        """Whether an event says that a session could not read this record any more."""
        return any(group == one and begin <= offset < end for one, begin, end in self.gaps.get(name, []))

    def happened(self, kind: str, fields: dict[str, object]) -> None:
        """A node says that something happened."""
        if kind == "durable_gap":
            self._cluster.count("session gaps reported")
            gap = (_number(fields["partition"]), _number(fields["from_offset"]), _number(fields["to_offset"]))
            self.gaps.setdefault(str(fields["client_id"]), []).append(gap)
        elif kind == "cursor_overrun":
            self._cluster.count("cursor overruns reported")
            group = _number(fields["group"])
            self._overruns[group] = max(_number(fields["first_offset"]), self._overruns.get(group, 0))

    def look_at(self, process: DurableProcess) -> None:
        """A turn of a node is over."""
        for group in self._cluster.capture_groups():
            replica = process.engine.replicas.get(group)
            if replica is None:
                continue
            place = (process.number, process.life, group)
            first = replica.log.first_offset
            if first > self._firsts.get(place, 0):
                self._firsts[place] = first
                self._check_first(process.number, group, first)

    def _check_first(self, number: int, group: int, first: int) -> None:
        self._cluster.count("capture segments forgotten")
        for machine in self._cluster.session_machines.tables.values():
            least = machine.sessions.least_positions([group]).get(group, first)
            if least < first and self._overruns.get(group, 0) < first:
                text = f"node {number} forgets group {group} up to {first}; a session is at {least}"
                raise Violation("holds", text)


def _matches(topic_filter: bytes, topic: bytes) -> bool:
    """Whether a name is below the root of a filter ``ROOT/#``."""
    return topic.startswith(topic_filter[:-1])


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
