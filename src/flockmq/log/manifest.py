"""The manifest: what every log looked like at one record of the journal, and where to replay from.

```
 {"format": 1, "store": ..., "generation": 7, "journal": 3, "position": 4096, "sequence": 912, "next_number": 40,
  "groups": [{"group": 5, "first": 1, "last": 310, "term": 4, "vote": 2, "segments": [[number, ...], ...], ...}, ...]}
```
JSON behind a checksum, written twice. A log's part is made anew only when the log changed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from flockmq.errors import FlockError
from flockmq.log.checksum import open_text
from flockmq.log.disk import Disk
from flockmq.log.errors import DamageError, must_be_lost
from flockmq.log.group import GroupLog
from flockmq.log.segment import Segment
from flockmq.log.staging import Staging
from flockmq.log.state import Damage, Snapshot
from flockmq.log.work import MANIFESTS

FORMAT: Final = 1


class Manifest:
    """What a manifest says besides its groups."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.store: int = fields["store"]
        """A random number: records of another store are no records of this one."""
        self.generation: int = fields["generation"]
        self.journal: int = fields["journal"]
        self.position: int = fields["position"]
        self.sequence: int = fields["sequence"]
        self.next_number: int = fields["next_number"]
        self.groups: list[dict[str, Any]] = fields["groups"]
        self.notes: list[str] = []
        """Copies that could not be read: both have to be written anew before the other one goes bad as well."""
        self.is_alone = False
        """The other copy is older, or damaged: a store that goes on from here writes both first."""


def read_manifest(disk: Disk) -> Manifest | None:
    """The newest manifest that can be read; None in a folder where there never was one."""
    found: list[Manifest] = []
    notes: list[str] = []
    present = False
    for name in MANIFESTS:
        size = disk.size(name)
        if size < 0:
            continue
        present = True
        try:
            text = open_text(disk.read(name, 0, size))
        except OSError as error:
            if not must_be_lost(error):
                raise
            text = None
        if text is not None:
            fields = json.loads(text)
            if fields["format"] != FORMAT:
                raise FlockError(
                    f"This store has format {fields['format']}; this FlockMQ reads {FORMAT}. Use the one that wrote it."
                )
            found.append(Manifest(fields))
        else:
            notes.append(f"{name} is damaged; its copy was used.")
    if found:
        newest = max(found, key=_generation)
        newest.notes = notes
        newest.is_alone = [one.generation for one in found] != [newest.generation] * len(MANIFESTS)
        return newest
    if present or disk.names("groups"):
        raise DamageError(
            "Both manifests of this store are damaged or missing: it is not known what it held. Move the folder aside "
            "and start the node again: the others refill it. A node without others says what to do then."
        )
    return None


def _generation(manifest: Manifest) -> int:
    return manifest.generation


def manifest_parts(fields: dict[str, int], logs: list[GroupLog]) -> list[str]:
    """The text of a manifest in pieces."""
    head = json.dumps({"format": FORMAT, **fields})
    parts = [head[:-1], ', "groups": [']
    for number, log in enumerate(logs):
        if not log.manifest_row:
            log.manifest_row = json.dumps(_describe(log))
        parts.append(",\n" if number else "\n")
        parts.append(log.manifest_row)
    parts.append("]}\n")
    return parts


def _describe(log: GroupLog) -> dict[str, Any]:
    snapshot = log.snapshot
    damage = log.damage
    return {
        "group": log.group,
        "first": log.first,
        "first_offset": log.first_offset,
        "term_before": log.term_before,
        "last": log.last,
        "end_offset": log.end_offset,
        "term": log.term,
        "vote": log.vote,
        "commit": log.commit,
        "terms": [[start, term] for start, term in zip(log.term_starts, log.terms, strict=True)],
        "segments": [
            [
                *(one.number, one.base_offset, one.first_index, one.next_index, one.length),
                *(one.first_timestamp, one.latest_timestamp),
            ]
            for one in log.segments
        ],
        "snapshot": None
        if snapshot is None
        else [snapshot.number, snapshot.index, snapshot.term, snapshot.next_offset, snapshot.length, snapshot.crc],
        "damage": None if damage is None else [damage.first, damage.last, damage.everything, damage.reason],
    }


def log_from(fields: dict[str, Any], staging: Staging) -> GroupLog:
    """A log as a manifest describes it."""
    log = GroupLog(fields["group"], staging)
    log.first = fields["first"]
    log.first_offset = fields["first_offset"]
    log.term_before = fields["term_before"]
    log.last = fields["last"]
    log.end_offset = fields["end_offset"]
    log.term = fields["term"]
    log.vote = fields["vote"]
    log.commit = fields["commit"]
    for start, term in fields["terms"]:
        log.term_starts.append(start)
        log.terms.append(term)
    for number, base_offset, first_index, next_index, length, first_timestamp, latest_timestamp in fields["segments"]:
        segment = Segment(number, base_offset, first_index)
        segment.next_index = segment.flushed_index = segment.low_index = next_index
        segment.length = segment.flushed = segment.low = length
        segment.first_timestamp = first_timestamp
        segment.latest_timestamp = latest_timestamp
        segment.rows = None
        log.segments.append(segment)
    if fields["snapshot"] is not None:
        number, index, term, next_offset, length, crc = fields["snapshot"]
        log.snapshot = Snapshot(number, index, term, next_offset, length, crc)
        log.snapshot.saved = True
    if fields["damage"] is not None:
        first, last, everything, reason = fields["damage"]
        log.damage = Damage(first, last, everything, reason)
    return log
