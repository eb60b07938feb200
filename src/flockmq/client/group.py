"""A member of a consumer group, for programs: records one after the other, each settled by the program.

```
 with GroupConsumer("work") as consumer:
     for record in consumer:      fetched in batches, from whichever node answers
         handle(record.payload)
         record.ack()             or nack(), reject(), extend()
```
Acks travel with the next request: at the latest when the next record is taken, 50 ms after the first of them. A batch
is as large as the program handles in a second or two, so that its last record does not expire while it waits.
Synchronous and of the standard library alone. Not for several threads at once: give each its own.
"""

from __future__ import annotations

import base64
import os
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from flockmq.admin import durable_groups_model as model
from flockmq.client.failover import RETRY_S, Failover, Patience
from flockmq.client.topic_calls import DEFAULT_NAMESPACE, TopicCalls
from flockmq.client.transport import DEFAULT_SERVER_URL
from flockmq.errors import Conflict

BATCH_FIRST: Final = 10
BATCH_S: Final = 1.5
"""How long handling a batch may take."""
ACK_S: Final = 0.05
"""How old an unsent ack may be when the next record is taken."""
ACKS_MAX: Final = 1_000
WAIT_S: Final = 15.0
"""How long one request waits for records."""
FRESH: Final = 0.75
"""Part of ``ack_wait`` after which a record that waits in the batch is left to others."""


class GroupRecord:
    """A record that this member holds."""

    def __init__(self, consumer: GroupConsumer, message: model.GroupMessage) -> None:
        self._consumer = consumer
        self._message = message
        encoded = message.payload_base64
        self.payload = (message.payload or "").encode() if encoded is None else base64.b64decode(encoded)
        self.topic = message.topic
        """The topic name that it was published to."""
        self.deliveries = message.deliveries
        """1: it is delivered for the first time."""
        self.durable_topic = message.durable_topic
        self.shard = message.shard
        self.offset = message.offset
        self.key = message.key
        self.client = message.client
        self.timestamp_at = message.timestamp_at
        self.user_properties = [(one.name, one.value) for one in message.user_properties]
        self.token = message.token or ""

    def __repr__(self) -> str:
        place = f"{self.durable_topic}/{self.shard} offset {self.offset}"
        return f"GroupRecord({self.topic!r}, {len(self.payload)} bytes, {place}, delivery {self.deliveries})"

    def ack(self) -> None:
        """The record is done; it is not delivered again."""
        self._consumer.settle(self.token)

    def nack(self, delay_s: float | None = None, reason: str = "") -> None:
        """Deliver the record again: after a delay, or after the group's backoff."""
        self._consumer.give_up(self.token, delay_s, reason)

    def reject(self, reason: str = "") -> None:
        """Make the record a dead letter at once."""
        self._consumer.give_up(self.token, None, reason, dead=True)

    def extend(self, seconds: float) -> None:
        """Hold the record so much longer, from now on. Conflict: it is no longer this member's."""
        self._consumer.extend(self.token, seconds)


class GroupConsumer(Failover):
    """See the module. ``batch`` bounds how many records it takes at once; with ``idle_s`` the iteration ends when no
    record came for so long. ``servers``, ``token`` and the rest are those of ``LogClient``."""

    def __init__(
        self,
        group: str,
        servers: str | Sequence[str] = DEFAULT_SERVER_URL,
        token: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        member: str | None = None,
        batch: int = 500,
        idle_s: float | None = None,
        timeout_s: float = 10.0,
        retry_s: float = RETRY_S,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            servers,
            token,
            namespace=namespace,
            timeout_s=timeout_s,
            retry_s=retry_s,
            ssl_context=ssl_context,
        )
        self.group = group
        self.member = member or f"{os.uname().nodename[:64]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.refused = 0
        """Acks that changed nothing: the record had expired, or the group was reset."""
        self._batch = max(1, min(batch, model.FETCH_MAX))
        self._idle_s = idle_s
        self._records: deque[GroupRecord] = deque()
        self._taken_at = 0.0
        self._ack_wait_s = 0.0
        self._acks: list[str] = []
        self._acks_since = 0.0
        self._record_s = BATCH_S / BATCH_FIRST
        """How long handling one record takes, about."""

    def close(self) -> None:
        """Send acks, give records back that the program has not seen, and close all connections."""
        try:
            self.flush()
            if self._records:
                waiting = [one.token for one in self._records]
                self._records.clear()
                self._nack(waiting, 0, "The member closed before it looked at the record.", dead=False)
        finally:
            super().close()

    def __iter__(self) -> Iterator[GroupRecord]:
        quiet_since = time.monotonic()
        while True:
            self._take(quiet_since)
            is_quiet = not self._records
            while self._records:
                record = self._records.popleft()
                now = time.monotonic()
                if self._ack_wait_s and now - self._taken_at > FRESH * self._ack_wait_s:
                    self._give_back(record)
                    break
                if self._acks and now - self._acks_since > ACK_S:
                    self.flush()
                yield record
                quiet_since = time.monotonic()
                self._record_s += 0.2 * (quiet_since - now - self._record_s)
            if is_quiet and self._idle_s is not None and time.monotonic() - quiet_since >= self._idle_s:
                self.flush()
                return

    def flush(self) -> None:
        """Send the acks that wait; answered after commit."""
        if self._acks:
            acks, self._acks = self._acks, []
            self._settle(acks, lambda tokens, server: server.ack_records(self.group, tokens, namespace=self.namespace))

    # --- what records call ------------------------------------------------------------------------------------------

    def settle(self, token: str) -> None:
        """Acknowledge a record, with the next request."""
        if not self._acks:
            self._acks_since = time.monotonic()
        self._acks.append(token)
        if len(self._acks) >= ACKS_MAX:
            self.flush()

    def give_up(self, token: str, delay_s: float | None, reason: str, *, dead: bool = False) -> None:
        """Nack a record, or make it a dead letter."""
        self._nack([token], None if delay_s is None else round(delay_s * 1_000), reason, dead=dead)

    def extend(self, token: str, seconds: float) -> None:
        """Hold a record longer."""
        ms = max(round(seconds * 1_000), 1)
        self._anywhere(lambda server: server.extend_records(self.group, [token], ms, namespace=self.namespace))

    # --- requests ---------------------------------------------------------------------------------------------------

    def _take(self, quiet_since: float) -> None:
        """Send acks and wait for records."""
        if not self._ack_wait_s:
            found = self._anywhere(lambda server: server.group(self.group, namespace=self.namespace))
            self._ack_wait_s = found.ack_wait_ms / 1_000
        wait_s = WAIT_S
        if self._idle_s is not None:
            wait_s = min(max(self._idle_s - (time.monotonic() - quiet_since), 0.0), WAIT_S)
        acks, self._acks = self._acks, []
        request = model.FetchRequest(
            max=max(1, min(self._batch, int(BATCH_S / max(self._record_s, 1e-6)))),
            wait_ms=round(wait_s * 1_000),
            member=self.member,
            ack=acks,
        )
        try:
            fetch = self._anywhere(partial(_fetch, self.group, request, self.namespace))
        except BaseException:
            self._acks = acks + self._acks
            raise
        again = [one.token for one in fetch.refused if one.retry]
        self.refused += len(fetch.refused) - len(again)
        self._acks = again + self._acks
        self._taken_at = time.monotonic()
        self._records = deque([GroupRecord(self, one) for one in fetch.messages])

    def _give_back(self, record: GroupRecord) -> None:
        """Leave a record, and all that came with it, to members that are faster."""
        late = [record.token, *[one.token for one in self._records]]
        self._records.clear()
        self._nack(late, 0, "The member was too slow to begin with the record.", dead=False)

    def _nack(self, tokens: list[str], delay_ms: int | None, reason: str, *, dead: bool) -> None:
        self._settle(
            tokens,
            lambda some, server: server.nack_records(
                self.group, some, delay_ms=delay_ms, reason=reason[:256], dead=dead, namespace=self.namespace
            ),
        )

    def _settle(self, tokens: list[str], ask: Callable[[list[str], TopicCalls], model.Settled]) -> None:
        """Settle records; those whose leader did not answer again and again."""
        patience = Patience(self._retry_s)
        while tokens:
            try:
                refused = self._anywhere(partial(ask, tokens)).refused
            except Conflict:
                self.refused += len(tokens)
                return
            again = [one.token for one in refused if one.retry]
            self.refused += len(refused) - len(again)
            if again and patience.is_over():
                self.refused += len(again)
                return
            if again:
                patience.pause()
            tokens = again


def _fetch(group: str, request: model.FetchRequest, namespace: str, server: TopicCalls) -> model.Fetch:
    return server.fetch_records(group, request, namespace=namespace)
