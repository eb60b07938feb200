"""Acknowledgements that can't be given yet, in the order of the messages that they are for.

```
 PUBLISH 1 (durable) --> PendingAck, waits             outcome of 2 --> ready, but 1 is before it
 PUBLISH 2 (durable) --> PendingAck, waits             outcome of 1 --> ready: 1, 2 and 3 leave together
 PUBLISH 3 (plain)   --> its bytes, behind the others
```
A client gets its PUBACKs, and its PUBRECs, in the order of its messages [MQTT-4.6.0-2], [MQTT-4.6.0-3], whatever order
the logs have them committed in. As long as nothing waits there is no queue, and nothing costs anything.
"""

from __future__ import annotations

from typing import Final

ACK_BYTES: Final = 4
PUBACK_FIRST: Final = 0x40


class PendingAck:
    """Answers to one run of messages: four bytes each, unless one of them needs more words."""

    def __init__(self, data: bytes, count: int) -> None:
        self.data = data
        """What is sent when all goes well."""
        self.count = count
        self.left = count
        """Messages without an outcome."""
        self.answers: list[bytes] | None = None
        """One for each message, where ``data`` would not do."""

    def packet_id(self, position: int) -> int:
        """Of the message at a position."""
        at = position * ACK_BYTES + 2
        return self.data[at] << 8 | self.data[at + 1]

    def answer(self, position: int, data: bytes) -> None:
        """Say this to the message at a position."""
        answers = self.answers
        if answers is None:
            whole = self.data
            answers = [whole[at : at + ACK_BYTES] for at in range(0, len(whole), ACK_BYTES)]
            self.answers = answers
        answers[position] = data

    def words(self) -> bytes:
        """All bytes."""
        return self.data if self.answers is None else b"".join(self.answers)


class AckQueue:
    """What waits for one connection, and how much of what it sent is under way."""

    def __init__(self) -> None:
        self.messages = 0
        """Of QoS 1, whose PUBACK has not left: they count against the receive maximum. [MQTT-3.3.4-9]"""
        self.held_messages = 0
        self.held_bytes = 0
        """Sent by the client, QoS 0 too, and without an outcome."""
        self.is_broken = False
        """The connection ended because of a message that was not stored, or may not be: the client will send that one
        and all later ones again, and none of those should be stored before it."""
        self._queue: list[PendingAck] = []
        self._head = 0

    def is_waiting(self) -> bool:
        """Whether an acknowledgement would overtake another one."""
        return self._head < len(self._queue)

    def add(self, pending: PendingAck) -> None:
        """Behind all others."""
        self._queue.append(pending)
        if pending.data[0] == PUBACK_FIRST:
            self.messages += pending.count

    def say(self, data: bytes) -> None:
        """Queue an answer that is ready, behind earlier answers that are not."""
        self._queue.append(PendingAck(data, 0))

    def take(self) -> bytes:
        """What can leave now."""
        queue = self._queue
        head = self._head
        parts: list[bytes] = []
        while head < len(queue) and not queue[head].left:
            pending = queue[head]
            parts.append(pending.words())
            if pending.count and pending.data[0] == PUBACK_FIRST:
                self.messages -= pending.count
            head += 1
        if head == len(queue):
            self._queue = []
            head = 0
        elif head > 64:
            del queue[:head]
            head = 0
        self._head = head
        return b"".join(parts)
