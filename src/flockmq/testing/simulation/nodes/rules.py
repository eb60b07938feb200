"""The rules that whole nodes are held against, while they run and afterwards.

| rule | broken when |
| --- | --- |
| nothing lost | an acknowledged message (PUBACK, PUBREC) is not in its log in the end |
| no phantom | a record is there that no client sent, or that was refused |
| exactly once | a message of QoS 0 or 2, or one of QoS 1 that was sent once, is there twice |
| order | of one publisher (QoS 0: connection) and key, a message stands for the first time behind a later one |
| offsets | they are not dense, or a record is in another shard than its key's |
| replicas | two nodes hold different bytes, or not all of them |
| cluster state | two nodes have different states in the end |
| delivery | what a subscriber got from a shard is not a piece of its log without gap or repeat |
| delivery from the SUBACK on | it did not get something that was sent after its SUBACK (if that came in time) |
| answers in order | PUBACKs come in another order than the messages were sent |
| ends | a reader is told that a log ends before what was known to be committed when it asked |
| cursors | or that a cursor stands before what was stored of it by then (both: ``readers.py``) |
| retained | a node has another retained message of a name than the last one in the log, though some node always lived |

A key that moves to another shard leaves messages behind: the order of a key is those, then the ones in its new shard.

Where a topic acknowledges early, a PUBACK is the promise of the node that gave it, for as long as that node lives, and
order is that of a connection: what was acknowledged there may still wait while its publisher goes on elsewhere.

Persistent sessions have rules of their own: ``session_rules.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.deliver.replay import CLEAN_WAIT_MS
from flockmq.log.batch import DATA, BatchView
from flockmq.log.columns import RETAIN
from flockmq.routing.durable import shard_of
from flockmq.testing.simulation.nodes.deliveries import Seen, check_delivery
from flockmq.testing.simulation.nodes.ledger import Ledger
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.log.group import GroupLog
    from flockmq.testing.simulation.nodes.clients import Client
    from flockmq.testing.simulation.nodes.world import NodesWorld

READ_BYTES = 1 << 20
PATIENCE_US = (CLEAN_WAIT_MS - 10) * 1_000
"""A SUBACK that comes this late was not held back any longer: without a leader no node knows where a log ends. A little
less than nodes wait, whose time goes by milliseconds."""

Log = list[tuple[bytes, bytes]]
"""Topic and payload of every record."""


class Rules(Ledger):
    """What was promised to clients of the durable topic."""

    def __init__(self, cluster: NodesWorld, shards: int, is_early: bool = False) -> None:
        super().__init__(cluster, is_early)
        self._shards = shards
        self._seen: list[Seen] = []

    def broken(self, rule: str, text: str) -> None:
        """A rule is broken: the run ends."""
        raise Violation(rule, text)

    # What subscribers say; what publishers say is in the ledger.

    def asked(self, name: str, client: Client) -> Seen:
        """A SUBSCRIBE was sent: messages may come before the SUBACK does, but none has to."""
        seen = Seen(name, client)
        self._seen.append(seen)
        return seen

    def promised_to(self, seen: Seen, replay: bool, waited_us: int) -> None:
        """The SUBACK came after so long: all that is sent from now on has to come, or all from the beginning."""
        if waited_us >= PATIENCE_US:
            self._cluster.count("SUBACKs without a promise")
            return
        seen.promise(-1 if replay else self._cluster.queue.now, [] if replay else list(self._cluster.ends))

    # In the end.

    def is_moved(self, topic: bytes) -> bool:
        """Whether the topic got another shard, which has this name now."""
        first, then = self.shards_of(topic)
        return first != then and len(self._cluster.groups) > self._shards

    def shards_of(self, topic: bytes) -> list[int]:
        """Where a topic name belongs: at first, and after the topic got another shard."""
        return [shard_of(topic, self._shards), shard_of(topic, self._shards + 1)]

    def check_logs(self, logs: list[Log]) -> None:
        """``logs``: by shard."""
        placed: set[bytes] = set()
        highest: dict[tuple[bytes, int], int] = {}
        for is_moved in (False, True):  # what keys left behind, then what came after it
            for shard, log in enumerate(logs):
                for offset, (topic, payload) in enumerate(log):
                    where = f"shard {shard}, offset {offset}: {payload!r}"
                    first, then = self.shards_of(topic)
                    if shard != first and (shard != then or len(logs) == self._shards):
                        self.broken("offsets", f"{where} belongs to shard {first}")
                    if is_moved == (shard != first):
                        self._check_record(where, topic, payload, placed, highest)
        lost = sorted(self.promised.keys() - placed)
        if lost:
            self.broken("nothing lost", f"{len(lost)} acknowledged messages are in no log, such as {lost[:3]}")

    def _check_record(
        self, where: str, topic: bytes, payload: bytes, placed: set[bytes], highest: dict[tuple[bytes, int], int]
    ) -> None:
        if self.messages.get(payload, (b"", 0))[0] != topic or payload in self.refusals:
            self.broken("no phantom", f"{where} was never sent, or was refused")
        if payload in placed:
            if self.messages[payload][1] != 1 or payload not in self.again:
                self.broken("exactly once", f"{where} is there twice (QoS {self.messages[payload][1]})")
            self._cluster.count("there twice")
            return
        placed.add(payload)
        if not self.has_order(payload):
            return
        number = int(payload.rpartition(b" ")[2])
        line = self.lines[payload]
        if number <= highest.get(line, 0):
            self.broken("order", f"{where} stands behind number {highest[line]}")
        highest[line] = number

    def check_deliveries(self, logs: list[Log]) -> None:
        """Each connection of each subscriber."""
        for seen in self._seen:
            self._cluster.count("deliveries", len(seen.messages))
            check_delivery(seen, logs, self.shards_of, self.sent_at)


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


def read_retained(log: GroupLog) -> dict[bytes, bytes]:
    """By topic name: the payload of the last record that is to be retained."""
    found: dict[bytes, bytes] = {}
    index = log.first_index()
    while index <= log.last_index():
        for batch in log.entries(index, log.last_index() + 1, READ_BYTES):
            index += 1
            view = BatchView(batch)
            if view.kind == DATA:
                found |= {record.topic: record.payload for record in view.records() if record.flags & RETAIN}
    return found
