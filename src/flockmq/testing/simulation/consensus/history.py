"""What happened to one group, over all nodes and lives, and the rules that must hold at every moment of it.

```
 nodes   --leads, appended, applied, restored--> GroupHistory --> Violation, at the very step that breaks a rule
 clients --submitted, acknowledged, refused,---^
           read_began, read_answered
```
| rule | broken when |
| --- | --- |
| election safety | two lives of nodes lead in one term |
| one vote a term | a node makes votes for two candidates of one term durable |
| log matching | two logs have an entry of one index and term, but with other bytes or after another entry |
| leader completeness | a new leader lacks an entry that was committed in a term before its own |
| state machine safety | two nodes apply different entries at one index, or one skips or repeats an index |
| monotonic offsets | a batch's base offset is not where the batch before it ended |
| no phantom | a record is in the log that no client submitted, that was refused, or that is there twice |
| no reorder | records of a sender are in the log in another order than it sent them |
| acknowledged is committed | a client is told an offset at which its record does not stand |
| no stale read | a read answers with less than what was acknowledged or read before it began |
"""

from __future__ import annotations

from bisect import bisect_left

from flockmq.log.batch import DATA, BatchView
from flockmq.raft.entry import Entry
from flockmq.testing.simulation.consensus.chain import chain_after
from flockmq.testing.simulation.world import Violation


class GroupHistory:
    """The one true log of a group as far as any node has applied it, and the leader of each term."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.log: list[bytes] = [b""]
        """Committed entries by index; nothing at 0."""
        self.terms = [0]
        self.chains = [0]
        self.next_offsets = [0]
        self.leaders: dict[int, tuple[int, int]] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.committed_by: list[int] = [0]
        """By index: term of the node that was first to apply it, so not before the term that committed it."""
        self.placed: dict[bytes, int] = {}
        """Payload -> offset of every record in the log."""
        self.refused: set[bytes] = set()
        self.submitted: set[bytes] = set()
        self.acknowledged: dict[bytes, int] = {}
        self.acknowledged_index = 0
        self.read_index = 0
        self.reads = 0
        self._order: dict[bytes, int] = {}
        self._seen: dict[tuple[int, int], tuple[int, bytes]] = {}

    @property
    def last_index(self) -> int:
        """Newest entry that any node applied."""
        return len(self.log) - 1

    def _broken(self, rule: str, text: str) -> Violation:
        return Violation(rule, f"group {self.group}: {text}")

    # What nodes do.

    def leads(self, node: int, life: int, term: int, last_index: int, term_at_committed: int) -> None:
        """A node became leader. ``term_at_committed``: what its log holds at ``completeness_index(term)``."""
        known = self.leaders.setdefault(term, (node, life))
        if known != (node, life):
            text = f"nodes {known[0]} (life {known[1]}) and {node} (life {life}) both lead in term {term}"
            raise self._broken("election safety", text)
        index = self.completeness_index(term)
        if last_index < index or term_at_committed not in (self.terms[index], -1):
            text = (
                f"node {node} leads in term {term} with entries up to {last_index}; entry {index} was committed before "
                f"in term {self.terms[index]}, but there it has term {term_at_committed}"
            )
            raise self._broken("leader completeness", text)

    def voted(self, node: int, term: int, vote: int) -> None:
        """A node's vote became durable."""
        known = self.votes.setdefault((node, term), vote)
        if known != vote:
            raise self._broken("one vote a term", f"node {node} voted for {known} and for {vote} in term {term}")

    def completeness_index(self, term: int) -> int:
        """Up to where a leader of this term must have everything."""
        index = self.last_index
        while index and self.committed_by[index] >= term:
            index -= 1
        return index

    def appended(self, node: int, prev_term: int, entries: list[Entry]) -> None:
        """A node put entries into its log."""
        seen = self._seen
        for entry in entries:
            key = (entry.index, entry.term)
            known = seen.get(key)
            if known is None:
                seen[key] = (prev_term, entry.data)
            elif prev_term not in (known[0], -1) or known[1] != entry.data:
                text = (
                    f"entry {entry.index} of term {entry.term} on node {node} follows term {prev_term}; elsewhere it "
                    f"follows term {known[0]} and has {'the same' if known[1] == entry.data else 'other'} bytes"
                )
                raise self._broken("log matching", text)
            prev_term = entry.term

    def applied(self, node: int, term: int, index: int, entry: Entry) -> None:
        """A node in this term applied the entry at an index, the one after its last."""
        if entry.index != index:
            text = f"node {node} should apply entry {index} next but was given {entry.index}"
            raise self._broken("state machine safety", text)
        if index <= self.last_index:
            if self.log[index] != entry.data:
                text = (
                    f"node {node} applies entry {index} of term {entry.term}; others applied there one of term "
                    f"{self.terms[index]}"
                )
                raise self._broken("state machine safety", text)
            return
        if index != self.last_index + 1:
            raise self._broken("state machine safety", f"node {node} applies {index}; no node applied the one before")
        self._extend(node, term, entry)

    def installed(self, node: int, before: int, index: int) -> None:
        """A node replaced its state by a snapshot."""
        if index < before:
            text = f"node {node} applied {before} entries and went back to a snapshot of {index}"
            raise self._broken("state machine safety", text)

    def restored(self, node: int, index: int, chain: int) -> None:
        """A node starts from a checkpoint."""
        if index > self.last_index or chain != self.chains[index]:
            raise self._broken("state machine safety", f"node {node} starts from another state after entry {index}")

    def _extend(self, node: int, term: int, entry: Entry) -> None:
        if entry.base_offset != self.next_offsets[-1]:
            text = (
                f"entry {entry.index} on node {node} starts at offset {entry.base_offset}; the one before it ended at "
                f"{self.next_offsets[-1]}"
            )
            raise self._broken("monotonic offsets", text)
        self.log.append(entry.data)
        self.terms.append(entry.term)
        self.chains.append(chain_after(self.chains[-1], entry.data))
        self.committed_by.append(term)
        self.next_offsets.append(entry.next_offset)
        if entry.kind == DATA:
            for record in BatchView(entry.data).records():
                self._place(record.offset, record.client, record.payload)

    def _place(self, offset: int, sender: bytes, payload: bytes) -> None:
        if payload not in self.submitted:
            raise self._broken("no phantom", f"offset {offset} holds {payload!r}, which no client sent")
        if payload in self.refused:
            raise self._broken("no phantom", f"offset {offset} holds {payload!r}, which was refused")
        if payload in self.placed:
            raise self._broken("no phantom", f"offsets {self.placed[payload]} and {offset} both hold {payload!r}")
        self.placed[payload] = offset
        number = int(payload.rpartition(b" ")[2])
        before = self._order.get(sender, -1)
        if number <= before:
            raise self._broken("no reorder", f"at offset {offset} record {number} of {sender!r} comes after {before}")
        self._order[sender] = number

    # What clients do.

    def acknowledge(self, payloads: list[bytes], offset: int) -> None:
        """A client was told that its records stand from an offset on."""
        for payload in payloads:
            place = self.placed.get(payload, -1)
            if place != offset:
                text = f"{payload!r} was acknowledged at offset {offset}, but stands at {place}"
                raise self._broken("acknowledged is committed", text)
            self.acknowledged[payload] = offset
            offset += 1
        index = bisect_left(self.next_offsets, offset)
        self.acknowledged_index = max(self.acknowledged_index, index)

    def refuse(self, payloads: list[bytes]) -> None:
        """A client was told that its records are certainly not in the log and will not come into it."""
        for payload in payloads:
            if payload in self.placed:
                raise self._broken("no phantom", f"{payload!r} was refused, but stands at {self.placed[payload]}")
            self.refused.add(payload)

    def read_floor(self) -> int:
        """A read that begins now must see everything up to here."""
        return max(self.acknowledged_index, self.read_index)

    def read_answered(self, node: int, floor: int, index: int) -> None:
        """A read was answered with the state at an index."""
        if index < floor:
            text = f"node {node} answered a read with entry {index}; {floor} was acknowledged or read before it began"
            raise self._broken("no stale read", text)
        if index > self.last_index:
            raise self._broken("no stale read", f"node {node} answered a read with {index}, which no node applied yet")
        self.read_index = max(self.read_index, index)
        self.reads += 1
