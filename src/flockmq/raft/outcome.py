"""What became of a batch of records on its way into a log."""

from __future__ import annotations


class Outcome:
    """What became of a batch: COMMITTED, REFUSED (certainly not in the log) or UNKNOWN (maybe in the log).

    A ``BatchListener`` also hears TAKEN and STORED before that, and REPLAN: certainly not in the log, and where its
    records belong must be decided anew. After UNKNOWN it hears the outcome after all, where that turns out. FENCED is
    between a forwarder and ``Appends``: one record must not get into the log.
    """

    def __init__(self, kind: int, offset: int = -1, final: bool = True, batch: bytes = b"", token: int = 0) -> None:
        self.kind = kind
        self.offset = offset
        """COMMITTED: of the first record. REPLAN: the index that a plan must have. FENCED: the position of the
        record."""
        self.final = final
        """Nothing more will be reported of the same batch (not with TAKEN, STORED, FENCED and the first UNKNOWN)."""
        self.batch = batch
        """With REPLAN and FENCED: the batch as it was built."""
        self.token = token
        """Names the batch between a forwarder and ``Appends``."""
