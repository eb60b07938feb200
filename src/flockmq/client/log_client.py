"""Reads and writes durable topics over HTTP, from whichever node can serve: for the command line, Spark and programs.

```
 read(topic, shard, offset)
         |--> the replica that answered last --> other replicas --> the servers named by the caller, which fetch
         |        `-- no answer, behind, wrong token: the next one, then a pause and all of them again
         `--> Batches: bytes as they came, BatchViews over them
```
Offsets mean the same on all replicas, so a read goes on anywhere in the middle of a log. Nothing is done per record.
Synchronous and of the standard library alone. Not for several threads at once: give each its own.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal
from urllib.parse import urlencode

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.model import MessageProperties
from flockmq.client.calls import v1
from flockmq.client.failover import ASK_AGAIN, METADATA_S, NOT_FOR_US, RETRY_S, Order, Patience
from flockmq.client.log_sinks import LogSinks
from flockmq.client.topic_calls import BATCHES
from flockmq.client.transport import Answer, UnreachableError
from flockmq.errors import END_OFFSET, FIRST_OFFSET, NEXT_OFFSET, ApiError, Damaged, FlockError
from flockmq.log.batch import BatchView

READ_BYTES: Final = 4 * 1024 * 1024
"""Asked for at once, unless the caller says how much: a request costs as much as the bytes of half a megabyte."""
FILTER_BYTES_MAX: Final = 4_096
"""Filters that are sent with a read, as a URL has room for."""
_TRY_ELSEWHERE: Final = ASK_AGAIN | NOT_FOR_US | {404, 500, 502, 504}

__all__ = ["RETRY_S", "Batches", "LogClient", "ReadFrom"]

ReadFrom = Literal["any", "leader", "follower"]


class Batches:
    """Part of a partition's log: whole batches end to end. The first may begin before the offset that was asked for."""

    def __init__(
        self, data: bytes, offset: int, first_offset: int, end_offset: int, server_url: str, next_offset: int = 0
    ) -> None:
        self.data = data
        self.offset = offset
        """The offset that was asked for."""
        self.first_offset = first_offset
        """The oldest record of the partition."""
        self.end_offset = end_offset
        """End of what was committed when the server read it."""
        self.server_url = server_url
        """The server that answered."""
        self.views: list[BatchView] = []
        position = 0
        while position < len(data):
            self.views.append(BatchView(data, position))
            position = self.views[-1].end
        self.next_offset = max(next_offset, self.views[-1].next_offset if self.views else offset)
        """Where to read on; further than the last batch when others were left out behind it."""

    @classmethod
    def of(cls, answer: Answer, offset: int, server_url: str, *, verify: bool) -> Batches:
        """What a server answered; UnreachableError when that is no part of a log."""
        try:
            first = int(answer.headers[FIRST_OFFSET.lower()])
            end = int(answer.headers[END_OFFSET.lower()])
            following = int(answer.headers.get(NEXT_OFFSET.lower(), "0"))
            found = cls(answer.body, offset, first, end, server_url, following)
            if verify:
                for view in found.views:
                    view.verify()
        except (KeyError, ValueError, FlockError) as error:
            raise UnreachableError(
                f"{server_url} answered with something that is no part of a log ({error!r})"
            ) from error
        return found

    def __iter__(self) -> Iterator[BatchView]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


class LogClient(LogSinks):
    """See the module; for its parameters ``Failover``."""

    # --- what there is ----------------------------------------------------------------------------------------------

    def topic(self, topic: str) -> model.DataTopic:
        """A topic as it was declared."""
        return self._anywhere(lambda server: server.topic(topic, namespace=self.namespace))

    def topics(self) -> list[model.DataTopic]:
        """All durable topics of the namespace."""
        return self._anywhere(lambda server: list(server.topics(namespace=self.namespace)))

    def heads(self, topic: str, *, after: str | None = None, wait_ms: int = 0) -> model.Heads:
        """How far the partitions reach; with ``after`` (of an earlier answer) it waits until one reaches further."""
        return self._anywhere(
            lambda server: server.heads(topic, after=after, wait_ms=wait_ms, namespace=self.namespace)
        )

    def offsets_at(self, topic: str, moment: str | int) -> list[int]:
        """For each shard, the first offset whose record came at that time (ISO 8601, or ms since 1970) or later."""
        return self._anywhere(lambda server: server.offsets_at(topic, moment, namespace=self.namespace))

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        shard: int,
        offset: int,
        *,
        max_bytes: int = READ_BYTES,
        wait_ms: int = 0,
        filters: Sequence[str] = (),
        read_from: ReadFrom = "any",
    ) -> Batches:
        """Committed batches from an offset on; empty when there is nothing within ``wait_ms``.

        With ``filters`` (of MQTT) batches without a name that one of them matches may be left out, so the answer may be
        empty and ``next_offset`` further on; rows of other names are still among those that come. ``read_from`` says
        which replicas are asked first: the leader, followers, or any; the others stand in for them.

        OffsetGone: retention removed the records. BeyondEnd: the log ends before that offset (at its end there is
        nothing yet, which is no error). Damaged: no replica can give these records back. Other FlockErrors: no replica
        could serve for ``retry_s``.
        """
        path = v1(
            *("topics", topic, "partitions", shard, "records"),
            namespace=self.namespace,
            offset=offset,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
        )
        if filters and fit(filters):
            path += "&" + urlencode([("filter", one) for one in filters])
        patience = Patience(self._retry_s)
        while True:
            problem: FlockError | None = None
            for url in self._candidates(topic, shard, read_from):
                try:
                    answer = self._server(url).transport.request("GET", path, accept=BATCHES, wait_s=wait_ms / 1000)
                    found = Batches.of(answer, offset, url, verify=self._verify)
                except UnreachableError as error:
                    problem = error
                except ApiError as error:
                    if error.status not in _TRY_ELSEWHERE:
                        raise
                    problem = error
                else:
                    self._good[(topic, shard, read_from)] = url
                    return found
            if isinstance(problem, Damaged):
                raise problem  # the node asked all replicas: waiting does not bring records back
            if patience.is_over():
                raise FlockError(
                    f"No node could serve shard {shard} of topic {topic!r} from offset {offset} on for "
                    f"{self._retry_s:g} s; the last one said: {problem}"
                )
            self._partitions[topic] = (float("-inf"), self._partitions.get(topic, (0.0, []))[1])
            self._good.pop((topic, shard, read_from), None)
            patience.pause()

    def _candidates(self, topic: str, shard: int, read_from: ReadFrom) -> Iterator[str]:
        """Servers to ask, best first. What was known before is better than nothing."""
        at, partitions = self._partitions.get(topic, (float("-inf"), []))
        if time.monotonic() - at >= METADATA_S:
            try:
                partitions = self._round(partial(self._learn, topic))
                self._good.pop((topic, shard, read_from), None)  # another may lead by now
            except UnreachableError:
                pass
            except ApiError as error:
                if error.status not in ASK_AGAIN:
                    raise
        good = self._good.get((topic, shard, read_from))
        if good is not None:
            yield good
        first = self._named if self._named_first else []
        holders = self._holders(topic, shard, partitions, ORDERS[read_from]) if partitions else []
        yield from [url for url in dict.fromkeys([*first, *holders, *self._named]) if url != good]

    # --- writing ----------------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        messages: Sequence[tuple[str, bytes] | tuple[str, bytes, MessageProperties]],
        *,
        client: str = "",
    ) -> list[model.Placed | None]:
        """Append messages (topic name, payload, maybe properties) in order; where each of them is after commit.

        None stands for one that is certainly not in the log, while others are. Where none is, they are sent again for
        ``retry_s``, and then it is an ApiError (503). When no node can say what became of them, OutcomeUnknown or
        UnreachableError: publishing again may then double them. A node that could not be reached at all is no reason to
        give up.
        """
        records = [
            model.RecordToPublish(
                topic=message[0],
                payload_base64=base64.b64encode(message[1]).decode("ascii"),
                properties=message[2] if len(message) == 3 else None,
            )
            for message in messages
        ]
        request = model.PublishRecords(records=records, client=client)
        return self._anywhere(
            lambda server: server.publish_records(topic, request, namespace=self.namespace).placed, is_repeatable=False
        )

    # --- cursors ----------------------------------------------------------------------------------------------------

    def create_cursor(
        self, name: str, topic: str, *, hold: bool | None = None, start: str = "earliest"
    ) -> tenants.ReadCursor:
        """Create a cursor; one of this name over this topic that is there stays where it stands, and holds retention or
        not as before unless ``hold`` says otherwise.

        A cursor is over one topic. A reader of several makes one for each, named ``NAME.TOPIC``. With ``hold``
        retention waits for it: up to four times the topic's ``retention_bytes``, or the nodes' ``store.held_bytes``
        without that.
        """
        request = tenants.CursorRequest(name=name, topic=topic, namespace=self.namespace, hold=hold, start=start)
        return self._anywhere(lambda server: server.create_cursor(request))

    def cursor(self, name: str) -> tenants.ReadCursor:
        """Where a cursor stands, and how far it is behind. While a shard has no leader its position is not ``known``:
        offset and lag are None there, and ``problem`` says why."""
        return self._anywhere(lambda server: server.cursor(name, namespace=self.namespace))

    def commit(self, name: str, positions: Mapping[int, int]) -> None:
        """Say how far a reader has come, by shard: the next offset that it will read. Returns after commit.

        A cursor only goes forwards by this: an offset before the one where it stands is ignored, without an error. To
        put it back use ``flockmq cursor reset``, or ``AdminClient.reset_cursor``.
        """
        self._anywhere(lambda server: server.commit_cursor(name, positions, namespace=self.namespace))


def fit(filters: Sequence[str]) -> bool:
    """Whether a request has room for these filters; otherwise all batches come."""
    size = sum(3 * len(one.encode()) + 8 for one in filters)
    return len(filters) <= model.FILTERS_PER_READ_MAX and size <= FILTER_BYTES_MAX


def _is_late(replica: model.Replica) -> bool:
    return replica.lag is None or replica.lag > 0


ORDERS: Final[dict[ReadFrom, Order]] = {
    "any": _is_late,
    "leader": lambda one: (one.role != "leader", _is_late(one)),
    "follower": lambda one: (one.role == "leader", _is_late(one)),
}
"""Which replicas come first: by what the caller prefers, and whether they are behind."""
