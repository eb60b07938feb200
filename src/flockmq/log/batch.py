"""The batch: what a partition log stores, replicates, checksums and serves. All of it under one name.

```
 BatchBuilder.add(...) ... build() --> stamp(batch, term, index, offset) --> followers, disk, readers --> BatchView
 control_batch(kind, body) ----------^
```
``header`` has the layout of the first 96 bytes, ``columns`` that of the body, ``builder`` writes and ``view`` reads.
"""

from __future__ import annotations

from flockmq.log.builder import BatchBuilder
from flockmq.log.columns import Columns, Span
from flockmq.log.header import (
    BATCH_BYTES_MAX,
    CONFIG,
    CURSOR,
    DATA,
    GROUP,
    HEADER_BYTES,
    MARKER,
    NOOP,
    SESSION,
    SINK,
    BatchError,
    control_batch,
    kind_of,
    note_of,
    size_of,
    stamp,
)
from flockmq.log.layout import UserProperty
from flockmq.log.view import BatchView, Record

__all__ = [
    "BATCH_BYTES_MAX",
    "CONFIG",
    "CURSOR",
    "DATA",
    "GROUP",
    "HEADER_BYTES",
    "MARKER",
    "NOOP",
    "SESSION",
    "SINK",
    "BatchBuilder",
    "BatchError",
    "BatchView",
    "Columns",
    "Record",
    "Span",
    "UserProperty",
    "control_batch",
    "kind_of",
    "note_of",
    "size_of",
    "stamp",
]
