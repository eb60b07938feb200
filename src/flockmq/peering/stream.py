"""One node's stream of messages to another: sequences, acknowledgements, and the batches kept until acknowledged.

```
 Peer.out --seal--> Kept (sequence, bytes) ... --send--> the peer       `sent`: how many of them on this link
                        ^------ acknowledged: forgotten, in order of sequences
```
Sequences count the batches with messages of QoS 1 or 2 that this node has sent to the peer since its own start (boot).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.routing.peer import RUN_OVERHEAD_BYTES

if TYPE_CHECKING:
    from flockmq.routing.peer import Peer

HELLO: Final = 1
BATCH: Final = 2
STATE: Final = 3
BATCH_HEAD: Final = struct.Struct("<BQQ")
"""Kind, boot of the sender, sequence (0: nothing in it is kept); parcels follow."""
HELLO_FORM: Final = struct.Struct("<BQQQQB")
"""Kind, boot of the sender, boot of the receiver as known, sequence taken of it, first sequence to come, flags."""
STATE_FORM: Final = struct.Struct("<BQQB")
"""Kind, boot of the receiver, sequence taken of it, flags."""
WAIT: Final = 1
"""The sender's subscribers can't keep up."""
ANSWER: Final = 2
"""The sender wants a HELLO back."""
AGAIN: Final = 4
"""The sender misses batches: the receiver sends again all that the sender has not taken."""
FLAGS: Final = 7
NO_PLACES: Final[list[int]] = []


class Kept:
    """A batch until it is acknowledged."""

    def __init__(self, sequence: int, body: bytes, cost: int, runs: int) -> None:
        self.sequence = sequence
        self.body = body
        """The part for sending again: without messages of QoS 0."""
        self.cost = cost
        """Bytes that the batch counts against the peer's bound."""
        self.runs = runs
        self.first: bytes | None = None
        """The part for the first sending, if it has messages of QoS 0; else None."""
        self.sent_at = 0


class Stream:
    """State of the conversation with one peer; it outlives links, and the peer's death."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.boot = 0
        """The boot of the peer; 0: not known."""
        self.up = False
        self.next_sequence = 1
        self.unacknowledged: list[Kept] = []
        self.sent = 0
        self.taken = 0
        """The last sequence that this node took from the peer."""
        self.told = 0
        self.told_wait = False
        self.asked_at = 0
        self.asks = 0
        """The last sequence sent before the peer was asked where it stands; 0: it was not asked."""
        self.repeated = 0
        """Batches that came once more and were dropped."""
        self.resent = 0
        """Batches sent once more."""
        self.missed = 0
        """Batches that the peer dropped, so that they never come."""
        self.given_up = 0
        """Runs that were kept for the peer when it died or started anew."""
        self.lost_shared = 0
        """Messages for a shared group that has no member any more."""

    def acknowledge(self, sequence: int) -> int:
        """Forget batches that the peer has; returns how many."""
        kept = self.unacknowledged
        count = 0
        freed = 0
        for batch in kept:
            if batch.sequence > sequence:
                break
            count += 1
            freed += batch.cost
        if count:
            del kept[:count]
            self.peer.kept_bytes -= freed
            self.sent = max(self.sent - count, 0)
        return count

    def seal(self, boot: int, pieces: list[bytes], keeps: bool, linked: bool) -> bytes | None:
        """Make a batch of runs (head and wire of each): the part to send at once, or None.

        None: with ``keeps`` there may be something to keep. Such a batch is added to what is unacknowledged, and sent
        from there. Or there is no link, and messages of QoS 0 are lost.
        """
        kept = [index for index in range(1, len(pieces), 2) if pieces[index][0] & 6] if keeps else NO_PLACES
        runs = len(kept)
        if not runs:
            return b"".join([BATCH_HEAD.pack(BATCH, boot, 0), *pieces]) if linked else None
        head = BATCH_HEAD.pack(BATCH, boot, self.next_sequence)
        whole = None
        if runs * 2 == len(pieces):
            body = b"".join([head, *pieces])
        else:
            body = head + b"".join([pieces[index - 1] + pieces[index] for index in kept])
            if linked:
                whole = b"".join([head, *pieces])
        cost = len(body) - BATCH_HEAD.size + runs * RUN_OVERHEAD_BYTES
        batch = Kept(self.next_sequence, body, cost, runs)
        batch.first = whole
        self.next_sequence += 1
        self.unacknowledged.append(batch)
        return None

    def first_to_come(self) -> int:
        """The oldest sequence that the peer will still be sent."""
        return self.unacknowledged[0].sequence if self.unacknowledged else self.next_sequence
