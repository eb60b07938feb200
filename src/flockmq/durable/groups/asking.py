"""Where groups stand: status of their partitions, the records that come next, and whether the log has begun them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.groups.fetching import fetched_record
from flockmq.durable.groups.port import Fetched, Holder, PartitionStatus
from flockmq.errors import FlockError
from flockmq.log.batch import BatchView
from flockmq.peering.fields import U32, U64, Reader, sized
from flockmq.peering.kinds import GROUP_BEGIN, GROUP_STATUS
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.offices import Offices
    from flockmq.durable.groups.opening import Opening
    from flockmq.durable.groups.scanning import Scanner
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.group_directory import GroupDirectory, Place
    from flockmq.tasks import Promise, Task

BEGIN_MS: Final = 5_000
PAUSE_MS: Final = 10
HOLDERS_MAX: Final = 1_000
PEEK_MAX: Final = 1_000
SCANNED_MAX: Final = 100
"""Pieces of the log that are looked at for the oldest records."""
_STATUS: Final = struct.Struct("<QIQQQQQIIIIB")
_HOLDER: Final = struct.Struct("<QII")


class Asking:
    """See the module."""

    def __init__(
        self,
        calls: PartitionCalls,
        machines: Machines,
        logs: Logs,
        directory: GroupDirectory,
        offices: Offices,
        opening: Opening,
        scanner: Scanner,
    ) -> None:
        self._calls = calls
        self._machines = machines
        self._logs = logs
        self._directory = directory
        self._offices = offices
        self._opening = opening
        self._scanner = scanner
        calls.serve_leader(GROUP_BEGIN, self._on_begin)
        calls.serve_each(GROUP_STATUS, self._on_status)

    # Begin.

    def begin(self, group_id: int) -> Promise[list[str]]:
        """See ``GroupMembers``."""
        return self._calls.tasks.start("the beginning of a group", self._begin(group_id))

    def _begin(self, group_id: int) -> Task[list[str]]:
        group = self._directory.group(group_id)
        if group is None:
            return []
        body = U64.pack(group.id) + U32.pack(group.generation)
        places = self._directory.places_of(group)
        questions = [(place, self._calls.ask_leader(place.partition, GROUP_BEGIN, body, BEGIN_MS)) for place in places]
        late: list[str] = []
        for place, question in questions:
            reply = yield from question
            if reply.code != OK:
                late.append(
                    f"Shard {place.shard} of {place.topic.name} has no leader now; it begins the group when it has one."
                )
        return late

    def _on_begin(self, partition: int, reader: Reader) -> Task[Reply]:
        group_id = reader.u64()
        generation = reader.u32()
        until = self._calls.now + BEGIN_MS
        while self._calls.now < until and self._calls.engine.knows_all(partition):
            group = self._directory.group(group_id)
            if group is not None and group.generation >= generation and self._opening.begin(partition, group):
                return Reply(OK)
            yield Sleep(PAUSE_MS)
        return Reply(LATER)

    # Status.

    def status(self, group_id: int) -> Promise[list[PartitionStatus]]:
        """See ``GroupMembers``."""
        return self._calls.tasks.start("the status of a group", self._status(group_id))

    def _status(self, group_id: int) -> Task[list[PartitionStatus]]:
        group = self._directory.group(group_id)
        if group is None:
            return []
        places = self._directory.places_of(group)
        body = U64.pack(group_id) + U32.pack(0)
        gathered = yield from self._calls.ask_leaders([place.partition for place in places], GROUP_STATUS, body)
        found: list[PartitionStatus] = []
        for place in places:
            told = gathered.found.get(place.partition)
            found.append(_unknown(place, group) if told is None else _read_status(place, group, Reader(told))[0])
        return found

    def here(self, group_id: int) -> list[PartitionStatus]:
        """See ``GroupMembers``."""
        group = self._directory.group(group_id)
        found: list[PartitionStatus] = []
        for place in [] if group is None else self._directory.places_of(group):
            if group is not None and self._calls.engine.knows_all(place.partition):
                told = self._on_status(place.partition, Reader(U64.pack(group_id) + U32.pack(0)))
                if told is not None:
                    found.append(_read_status(place, group, Reader(told))[0])
        return found

    def _on_status(self, partition: int, reader: Reader) -> bytes | None:
        group_id = reader.u64()
        count = min(reader.u32(), PEEK_MAX)
        group = self._directory.group(group_id)
        machine = self._machines.by_group.get(partition)
        if group is None or machine is None:
            return None
        end = self._logs.local.end(partition)
        state = machine.groups.groups.get(group_id)
        if state is None:
            return self._pack(partition, end, end, 0, 0, 0, (0, 0, 0, 0, 0), [], [])
        office = self._offices.open.get(partition)
        found = office.groups.get(group_id) if office is not None else None
        holders: list[tuple[int, bytes, int, int]] = []
        in_flight = 0
        if found is not None and found.window.generation == state.generation:
            in_flight = found.window.in_flight
            for key, holder in list(found.holders.items())[:HOLDERS_MAX]:
                room = holder.room if key in found.takers else 0
                holders.append((holder.node_id, holder.name, holder.held, room))
        oldest = self._oldest(partition, group, state.floor, end, max(count, 1)) if state.floor < end else []
        oldest_ms = self._timestamp(partition, oldest[0]) if oldest else 0
        lag = max(end - state.floor - state.settled.size, 0) if oldest else 0
        counts = (state.dead, state.dropped, state.redelivered, in_flight, state.generation)
        lag_bytes = self._bytes(partition, state.floor, end) if lag else 0
        return self._pack(partition, state.floor, end, lag, lag_bytes, oldest_ms, counts, holders, oldest[:count])

    def _pack(
        self,
        partition: int,
        floor: int,
        end: int,
        lag: int,
        lag_bytes: int,
        oldest_ms: int,
        counts: tuple[int, int, int, int, int],
        holders: list[tuple[int, bytes, int, int]],
        oldest: list[int],
    ) -> bytes:
        dead, dropped, redelivered, in_flight, generation = counts
        del partition
        fields = (floor, generation, end, lag, lag_bytes, oldest_ms, self._calls.me)
        parts = [_STATUS.pack(*fields, dead, dropped, redelivered, in_flight, 0), U32.pack(len(holders))]
        for node_id, name, held, room in holders:
            parts.append(_HOLDER.pack(node_id, held, room) + sized(name))
        parts.append(U32.pack(len(oldest)) + b"".join([U64.pack(offset) for offset in oldest]))
        return b"".join(parts)

    def _oldest(self, partition: int, group: ConsumerGroup, floor: int, end: int, count: int) -> list[int]:
        """The first selected records that are not settled."""
        place = self._directory.place_of(partition)
        selection = self._directory.selection(group, partition)
        state = self._machines.by_group[partition].groups.groups[group.id]
        found: list[int] = []
        position = floor
        for _ in range(SCANNED_MAX):
            if place is None or selection is None or position >= end:
                break
            try:
                after, pieces = self._scanner.scan(partition, position, end, group, place.topic, selection)
            except FlockError:
                break
            for piece in pieces:
                for low, high in state.settled.gaps(piece.low, piece.high):
                    found += range(low, min(high, low + count - len(found)))
                    if len(found) >= count:
                        return found
            if after <= position:
                break
            position = after
        return found

    def _timestamp(self, partition: int, offset: int) -> int:
        try:
            view = BatchView(self._logs.local.read(partition, offset, 1)[0])
            return view.record(offset - view.base_offset).timestamp_ms
        except (FlockError, IndexError):
            return 0

    def _bytes(self, partition: int, floor: int, end: int) -> int:
        """About how many bytes the log has for these records: as many as its records have on average."""
        replica = self._calls.engine.replicas.get(partition)
        if replica is None:
            return 0
        log = replica.log
        records = log.end_offset - log.first_offset
        return log.size() * (end - floor) // records if records else 0

    # Peek.

    def peek(self, group_id: int, count: int) -> Promise[list[Fetched]]:
        """See ``GroupMembers``."""
        return self._calls.tasks.start("a look at a group", self._peek(group_id, min(count, PEEK_MAX)))

    def _peek(self, group_id: int, count: int) -> Task[list[Fetched]]:
        group = self._directory.group(group_id)
        if group is None or count <= 0:
            return []
        places = {place.partition: place for place in self._directory.places_of(group)}
        body = U64.pack(group_id) + U32.pack(count)
        gathered = yield from self._calls.ask_leaders(list(places), GROUP_STATUS, body)
        found: list[Fetched] = []
        for partition, told in gathered.found.items():
            _, oldest = _read_status(places[partition], group, Reader(told))
            found += yield from self._records(places[partition], oldest)
        found.sort(key=lambda one: (one.timestamp_ms, one.partition, one.offset))
        return found[:count]

    def _records(self, place: Place, offsets: list[int]) -> Task[list[Fetched]]:
        found: list[Fetched] = []
        views: list[BatchView] = []
        for offset in offsets:
            if not views or offset >= views[-1].next_offset:
                fetched = yield from self._logs.fetch(place.partition, offset, 262_144)
                views = [BatchView(batch) for batch in fetched.batches]
                if fetched.error is not None or not views:
                    break
            found += [
                fetched_record(view.record(offset - view.base_offset), place, "", 0)
                for view in views
                if view.base_offset <= offset < view.next_offset
            ]
        return found


def _unknown(place: Place, group: ConsumerGroup) -> PartitionStatus:
    return PartitionStatus(
        place.partition, place.shard, place.topic.name, 0, 0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0, group.paused
    )


def _read_status(place: Place, group: ConsumerGroup, reader: Reader) -> tuple[PartitionStatus, list[int]]:
    floor, generation, end, lag, lag_bytes, oldest_ms, leader, dead, dropped, redelivered, in_flight, _ = (
        _STATUS.unpack_from(reader.data, reader.skip(_STATUS.size))
    )
    holders: list[Holder] = []
    for _ in range(reader.count(HOLDERS_MAX, _HOLDER.size + 2)):
        node_id, held, room = _HOLDER.unpack_from(reader.data, reader.skip(_HOLDER.size))
        holders.append(Holder(node_id, reader.sized().decode("utf-8", "replace"), held, room))
    oldest = [reader.u64() for _ in range(reader.count(PEEK_MAX, 8))]
    status = PartitionStatus(
        place.partition,
        place.shard,
        place.topic.name,
        leader,
        generation,
        floor,
        end,
        lag,
        lag_bytes,
        oldest_ms,
        in_flight,
        holders,
        dead,
        dropped,
        redelivered,
        group.paused,
    )
    return status, oldest
