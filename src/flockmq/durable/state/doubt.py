"""Changes that the log of group 0 has here behind what is known to be committed.

A client may have been told that such a change is made. A node that served clients without it would acknowledge messages
of a new topic that no log has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import (
    AlterTopic,
    Ban,
    CreateHidden,
    CreateTopic,
    DeleteAcl,
    DeleteClient,
    DeleteNamespace,
    PutAcl,
    PutClient,
    RefusedError,
    decode_command,
    decode_envelope,
)
from flockmq.log.batch import DATA, BatchView
from flockmq.log.errors import DamageError

if TYPE_CHECKING:
    from flockmq.raft.replicas import Replica

DOUBTFUL: Final = (
    *(CreateTopic, AlterTopic, CreateHidden),
    *(PutClient, DeleteClient, PutAcl, DeleteAcl, DeleteNamespace, Ban),
)
"""Without these a node would take in messages, or clients, otherwise than it was promised."""
READ_BYTES: Final = 1_048_576


def is_doubtful(envelope: bytes) -> bool:
    """Whether a change must be known to be made, or not, before clients are served."""
    try:
        return isinstance(decode_command(decode_envelope(envelope).command), DOUBTFUL)
    except RefusedError:
        return False  # a command that can't be read is applied nowhere


def last_doubtful(replica: Replica, applied: int) -> int:
    """The index that the last doubtful change in a log would have; 0: there is none behind ``applied``."""
    checkpoint = replica.checkpoints.latest()
    log = replica.log
    index = max(log.first_index(), checkpoint.index + 1 if checkpoint is not None else 0)
    found = 0
    while index <= log.last_index():
        try:
            batches = log.entries(index, log.last_index() + 1, READ_BYTES)
        except DamageError:
            return applied + 1  # what can't be read may be doubtful
        for batch in batches:
            index += 1
            view = BatchView(batch)
            if view.kind != DATA or view.next_offset <= applied:
                continue
            for position, record in enumerate(view.records()):
                if is_doubtful(record.payload):
                    found = view.base_offset + position + 1
    return found
