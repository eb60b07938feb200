"""Reads a journal back after a restart, and decides for each bad record: torn, or damaged.

```
 header sound? --no--> its copy at the end? --no--> does any record with a higher sequence follow?
     | yes                 | yes                        yes: DAMAGE, something is lost here
     v                     v                            no, and the header was not written whole: TORN, or the end
 all rows and data sound? --yes--> take it
     | no
     v
 a higher sequence follows? --yes--> DAMAGE: a record is written only after the one before it was durable
     | no
     v
 the end marker, or sectors that were not empty, read as zeros? --yes--> TORN: never acknowledged, cut
     | no
     v
 DAMAGE
```
A torn record was never acknowledged: it is cut without a report. A damaged one may have been: its group must
not vote as if it had never been there.
"""

from __future__ import annotations

from typing import Final

from flockmq.log.checksum import crc32c
from flockmq.log.journal import (
    BACK,
    FRONT,
    MARKER,
    UNIT,
    JournalHeader,
    Row,
    dark_sectors,
    read_header,
    read_row,
    record_bytes,
)

_ZEROS: Final = bytes(1 << 20)


class JournalRecord:
    """A record as far as it can be read: rows with ``data`` None lost their batches, ``rows_lost`` rows are gone."""

    def __init__(self, file: int, position: int, sequence: int, rows: list[Row], rows_lost: int) -> None:
        self.file = file
        self.position = position
        self.sequence = sequence
        self.rows = rows
        self.rows_lost = rows_lost


class Scan:
    """What a journal holds."""

    def __init__(self, file: int, position: int, sequence: int) -> None:
        self.records: list[JournalRecord] = []
        self.file = file
        """The file that the next record goes to."""
        self.position = position
        """The position of the next record in that file."""
        self.sequence = sequence
        """The sequence that the next record will have."""
        self.torn = False
        """The last write did not finish; what it left is cut."""
        self.clean = True
        """Nothing but zeros follows the last record: writing can go on right there."""
        self.notes: list[str] = []
        """What was wrong, in sentences: damage, and copies that had to stand in."""


class JournalFile:
    """One file of a journal, read whole."""

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.data = data


def scan_journal(files: list[JournalFile], store: int, position: int, sequence: int) -> Scan:
    """Read all records from ``position`` of the first file on, the first of which has this ``sequence``."""
    result = Scan(files[0].number if files else 0, position, sequence)
    for order, file in enumerate(files):
        start = position if order == 0 else 0
        if not _scan_file(result, file, start, files[order + 1 :], store):
            result.torn = True
            result.clean = False
            break
        if result.file == file.number and not _all_zeros(file.data, result.position):
            result.clean = False
    return result


def _scan_file(result: Scan, file: JournalFile, start: int, later: list[JournalFile], store: int) -> bool:
    """Read one file; False when a torn record ends the journal here."""
    data = file.data
    at = start
    while at + UNIT <= len(data):
        header = _header_of(data, at, store, result.sequence, result.notes)
        if header is None:
            found, sequence = _next_start(data, at, store, result.sequence)
            if found < 0:
                return _end_of_file(result, file, at, later, store)
            _note_lost(result, file.number, at)
            at = found
            result.sequence = sequence
            continue
        record, sound = _read(data, at, header, file.number)
        if not sound:
            end = min(at + header.size, len(data))
            followed = _next_start(data, end, store, header.sequence)[0] >= 0 or _follows(later, store, header.sequence)
            if not followed and _unwritten(data, at, header):
                return False
            result.clean = False
            result.notes.append(f"Journal {file.number}: record {header.sequence} is damaged.")
        result.records.append(record)
        at += header.size
        result.sequence = header.sequence + 1
        result.file = file.number
        result.position = at
    return True


def _end_of_file(result: Scan, file: JournalFile, at: int, later: list[JournalFile], store: int) -> bool:
    """No record starts here and none follows in this file: the end, a torn header, or damage. False: torn."""
    if _follows(later, store, result.sequence - 1) or _all_zeros(file.data, at):
        return True
    written = file.data[at : at + UNIT]
    if not written.strip(b"\0") or not _has_end(file.data, at + UNIT):
        return False
    _note_lost(result, file.number, at)
    return True


def _note_lost(result: Scan, file: int, at: int) -> None:
    """A record that can't be read at all: it is not known which logs it concerned."""
    result.notes.append(
        f"Journal {file}: record {result.sequence} at {at} can't be read; any group may have lost some."
    )
    result.records.append(JournalRecord(file, at, result.sequence, [], 1))
    result.clean = False


def _header_of(data: bytes, at: int, store: int, sequence: int, notes: list[str]) -> JournalHeader | None:
    """The header of the record that starts here and has this sequence, from either of its copies."""
    header = read_header(data, at, FRONT, store)
    if header is not None and header.sequence >= sequence:
        return header if header.sequence == sequence else None
    back = data.find(BACK, at + UNIT)
    while back >= 0:
        header = read_header(data, back, BACK, store)
        if header is not None and header.sequence == sequence and back + UNIT - header.size == at:
            if data[at : at + UNIT].strip(b"\0"):  # else it was simply not written
                notes.append(f"Record {sequence} of the journal has a damaged header; its copy was used.")
            return header
        back = data.find(BACK, back + 4)
    return None


def _next_start(data: bytes, start: int, store: int, sequence: int) -> tuple[int, int]:
    """Where the first record starts that has a higher sequence, and which it has; -1 when there is none."""
    best = (-1, 0)
    for magic in (FRONT, BACK):
        at = data.find(magic, start)
        while at >= 0:
            header = read_header(data, at, magic, store)
            if header is not None and header.sequence > sequence:
                begin = at if magic == FRONT else at + UNIT - header.size
                if begin >= start and (best[0] < 0 or begin < best[0]):
                    best = (begin, header.sequence)
                break
            at = data.find(magic, at + 4)
    return best


def _follows(later: list[JournalFile], store: int, sequence: int) -> bool:
    return any(_next_start(file.data, 0, store, sequence)[0] >= 0 for file in later)


def _read(data: bytes, at: int, header: JournalHeader, file: int) -> tuple[JournalRecord, bool]:
    """The record as far as it can be read, and whether that is all of it."""
    rows: list[Row] = []
    lost = 0
    whole = at + header.size <= len(data) and record_bytes(header.rows, header.data_bytes) == header.size
    copies = at + header.size - UNIT - UNIT * header.rows
    for number in range(header.rows if whole else 0):
        row = read_row(data, at + UNIT + UNIT * number) or read_row(data, copies + UNIT * number)
        if row is None:
            lost += 1
            continue
        if row.at:
            piece = data[at + row.at : at + row.at + row.length]
            row.data = piece if crc32c(piece) == row.crc else None
        rows.append(row)
    if not whole:
        lost = 1
    sound = lost == 0 and all(row.data is not None for row in rows) and _has_end(data, at + header.size)
    return JournalRecord(file, at, header.sequence, rows, lost), sound


def _all_zeros(data: bytes, start: int) -> bool:
    """Whether nothing was written from ``start`` on."""
    for at in range(start, len(data), len(_ZEROS)):
        piece = data[at : at + len(_ZEROS)]
        if piece != _ZEROS[: len(piece)]:
            return False
    return True


def _has_end(data: bytes, end: int) -> bool:
    """Whether the marker that ends a header was written; it may be damaged."""
    return end <= len(data) and 0 not in data[end - len(MARKER) : end]


def _unwritten(data: bytes, at: int, header: JournalHeader) -> bool:
    """Whether parts of this record were never written: sectors of zeros that it does not have, or no marker."""
    end = at + header.size
    if not _has_end(data, end) or not _has_end(data, at + UNIT):
        return True
    empty, _ = dark_sectors(data[at:end], at)
    return empty > header.empty + header.faint
