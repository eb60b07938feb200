"""The rules that whole nodes are held against, while they run and afterwards.

| rule | broken when |
| --- | --- |
| nothing lost | an acknowledged message (PUBACK, PUBREC) is not in its log in the end |
| no phantom | a record is there that nobody sent, or that was refused when it was sent for the only time |
| exactly once | a message of QoS 0 or 2, or one of QoS 1 that was sent once, is there twice |
| order | of one publisher (QoS 0: connection) and key, a message stands for the first time behind a later one |
| offsets | they are not dense, or a record is in another shard than its key's |
| replicas | two nodes hold different bytes, or not all of them |
| cluster state | two nodes have different states in the end |
| delivery | what a subscriber got from a shard is not a piece of its log without gap or repeat |
| delivery from the SUBACK on | it did not get something that was sent after its SUBACK (if that came in time) |
| answers in order | PUBACKs come in another order than the messages were sent |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.replay import CLEAN_WAIT_MS
from flockmq.log.batch import DATA, BatchView
from flockmq.log.checksum import crc32c
from flockmq.testing.simulation.history import Violation

if TYPE_CHECKING:
    from flockmq.log.group import GroupLog
    from flockmq.testing.durable_clients import Client
    from flockmq.testing.durable_harness import DurableHarness

READ_BYTES = 1 << 20
PATIENCE_US = (CLEAN_WAIT_MS - 10) * 1_000
"""A SUBACK that comes this late was not held back any longer: without a leader nobody knows where a log ends. A little
less than nodes wait, whose time goes by milliseconds."""
NEVER = 1 << 62


class Seen:
    """What one connection of a subscriber got."""

    def __init__(self, name: str, client: Client, ends: list[int], at: int) -> None:
        self.name = name
        self.client = client
        self.connection = client.connections
        self.ends = ends
        """Where the committed part of each shard ended when the SUBACK came: what was sent later and lies behind must
        come."""
        self.at = at
        self.messages: list[tuple[bytes, bytes]] = []


class Rules:
    """What was promised to whom."""

    def __init__(self, cluster: DurableHarness, shards: int) -> None:
        self.promised: set[bytes] = set()
        self._cluster = cluster
        self._shards = shards
        self._sent: dict[bytes, tuple[bytes, int]] = {}
        self._sent_at: dict[bytes, int] = {}
        self._lines: dict[bytes, tuple[bytes, int]] = {}
        self._again: set[bytes] = set()
        self._refused: dict[bytes, int] = {}
        self._seen: list[Seen] = []

    def broken(self, rule: str, text: str) -> None:
        """A rule is broken: the run ends."""
        raise Violation(rule, text)

    # What clients say.

    def sent(self, payload: bytes, topic: bytes, qos: int, connection: int = 0) -> None:
        """For the first time. Order is that of a publisher; at QoS 0, where nothing is sent again, of a connection."""
        self._sent[payload] = (topic, qos)
        self._lines[payload] = (topic, connection if qos == 0 else 0)
        self._sent_at[payload] = self._cluster.queue.now
        self._cluster.count("sent")

    def sent_again(self, payload: bytes) -> None:
        """With DUP."""
        self._again.add(payload)
        self._cluster.count("sent again")

    def acknowledged(self, payload: bytes) -> None:
        """It is in the log, says a node."""
        if payload not in self.promised:
            self._cluster.count("acknowledged")
        self.promised.add(payload)

    def refused(self, payload: bytes, reason: int) -> None:
        """It is certainly not in the log by this attempt."""
        self._cluster.count("refused")
        if payload not in self._again:
            self._refused[payload] = reason

    def asked(self, name: str, client: Client) -> Seen:
        """A SUBSCRIBE was sent: messages may come before the SUBACK does, but none has to."""
        seen = Seen(name, client, [NEVER] * self._shards, NEVER)
        self._seen.append(seen)
        return seen

    def promised_to(self, seen: Seen, replay: bool, waited_us: int) -> None:
        """The SUBACK came after so long: all that is sent from now on has to come, or all from the beginning."""
        if waited_us >= PATIENCE_US:
            self._cluster.count("SUBACKs without a promise")
            return
        seen.at = -1 if replay else self._cluster.queue.now
        seen.ends = [0 if replay else self._cluster.committed_end(shard) for shard in range(self._shards)]

    # In the end.

    def shard_of(self, topic: bytes) -> int:
        """Where a topic name belongs."""
        return crc32c(topic) % self._shards

    def check_logs(self, logs: list[list[tuple[bytes, bytes]]]) -> None:
        """``logs``: by shard, topic and payload of every record."""
        placed: set[bytes] = set()
        for shard, log in enumerate(logs):
            highest: dict[tuple[bytes, int], int] = {}
            for offset, (topic, payload) in enumerate(log):
                where = f"shard {shard}, offset {offset}: {payload!r}"
                if self._sent.get(payload, (b"", 0))[0] != topic or payload in self._refused:
                    self.broken("no phantom", f"{where} was never sent, or was refused")
                if self.shard_of(topic) != shard:
                    self.broken("offsets", f"{where} belongs to shard {self.shard_of(topic)}")
                if payload in placed:
                    if self._sent[payload][1] != 1 or payload not in self._again:
                        self.broken("exactly once", f"{where} is there twice (QoS {self._sent[payload][1]})")
                    self._cluster.count("there twice")
                    continue
                placed.add(payload)
                number = int(payload.rpartition(b" ")[2])
                line = self._lines[payload]
                if number <= highest.get(line, 0):
                    self.broken("order", f"{where} stands behind number {highest[line]}")
                highest[line] = number
        lost = sorted(self.promised - placed)
        if lost:
            self.broken("nothing lost", f"{len(lost)} acknowledged messages are in no log, such as {lost[:3]}")

    def check_deliveries(self, logs: list[list[tuple[bytes, bytes]]]) -> None:
        """Each connection of each subscriber."""
        for seen in self._seen:
            is_live = seen.client.connected and seen.client.connections == seen.connection
            for shard, log in enumerate(logs):
                came = [payload for topic, payload in seen.messages if self.shard_of(topic) == shard]
                self._check_delivery(seen, shard, came, [payload for _, payload in log], is_live)
                self._cluster.count("deliveries", len(came))

    def _check_delivery(self, seen: Seen, shard: int, came: list[bytes], log: list[bytes], is_live: bool) -> None:
        latest = seen.ends[shard]
        who = f"{seen.name}, connection {seen.connection}, shard {shard}"
        if not came:
            if is_live and latest < len(log):
                self.broken(
                    "delivery from the SUBACK on", f"{who}: nothing came; {len(log) - latest} records since the SUBACK"
                )
            return
        starts = [offset for offset, payload in enumerate(log) if payload == came[0]]
        if not any(log[start : start + len(came)] == came for start in starts):
            self.broken("delivery", f"{who}: {_difference(came, log, starts)}")
        self._check_start(seen, who, log[latest : min(starts)])
        if is_live and came[-1] != log[-1]:
            self.broken("delivery", f"{who}: ends with {came[-1]!r}, the log with {log[-1]!r}")

    def _check_start(self, seen: Seen, who: str, missing: list[bytes]) -> None:
        """What did not come in the beginning was sent before the SUBACK."""
        for payload in missing:
            if self._sent_at[payload] > seen.at:
                self.broken(
                    "delivery from the SUBACK on", f"{who}: {payload!r} was sent after the SUBACK, did not come"
                )


def _difference(came: list[bytes], log: list[bytes], starts: list[int]) -> str:
    if not starts:
        return f"{came[0]!r} was delivered and is in no log"
    for number, payload in enumerate(came):
        wanted = log[starts[-1] + number] if starts[-1] + number < len(log) else b"nothing"
        if payload != wanted:
            return f"delivery {number}: {payload!r} came, {wanted!r} should (offset {starts[-1] + number})"
    return "it is no piece of the log"


def read_log(log: GroupLog) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Entries by index, and the records, of a log on one node. Violation when offsets are not dense."""
    entries: dict[int, bytes] = {}
    records: list[tuple[bytes, bytes]] = []
    index = log.first_index()
    offset = -1
    while index <= log.last_index():
        for batch in log.entries(index, log.last_index() + 1, READ_BYTES):
            view = BatchView(batch)
            if offset not in (-1, view.base_offset):
                raise Violation(
                    "offsets", f"group {log.group}: entry {index} starts at {view.base_offset}, not {offset}"
                )
            offset = view.next_offset
            entries[index] = batch
            if view.kind == DATA:
                records += [(record.topic, record.payload) for record in view.records()]
            index += 1
    return entries, records
