"""Reads and writes durable topics over HTTP, from whichever node can serve: for the command line, Spark and programs.

```
 read(topic, shard, offset)
     metadata: partitions, replicas and where their nodes' APIs are   (kept, and fetched again when something fails)
         |--> the replica that answered last --> other replicas --> the servers named by the caller, which fetch
         |        `-- nobody there, behind, wrong token: the next one, then a pause and all of them again
         `--> Batches: bytes as they came, BatchViews over them
```
Offsets mean the same on all replicas, so a read goes on anywhere in the middle of a log. Nothing is done per record.
Synchronous and of the standard library alone. Not for several threads at once: give each its own.
"""

from __future__ import annotations

import base64
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.model import MessageProperties
from flockmq.client.durable_calls import DEFAULT_NAMESPACE, DurableCalls
from flockmq.client.log_batches import ORDERS, Batches, OffsetBeyondEndError, OffsetGoneError, ReadFrom, what_fits
from flockmq.client.log_sinks import LogSinks
from flockmq.client.transport import DEFAULT_SERVER_URL, AdminError, UnreachableError
from flockmq.errors import FlockError
from flockmq.wording import no_shard

FIRST_OFFSET: Final = "x-flockmq-first-offset"
END_OFFSET: Final = "x-flockmq-end-offset"
NEXT_OFFSET: Final = "x-flockmq-next-offset"
RETRY_S: Final = 30.0
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 2.0
METADATA_S: Final = 60.0
"""How long what is known of replicas is used without asking again."""
SERVERS_MAX: Final = 64
READ_BYTES: Final = 4 * 1024 * 1024
"""Asked for at once, unless the caller says how much: a request costs as much as the bytes of half a megabyte."""
_ASK_AGAIN: Final = frozenset({429, 503})
_NOT_FOR_US: Final = frozenset({401, 403, 421})
_TRY_ELSEWHERE: Final = frozenset({401, 403, 404, 421, 429, 500, 502, 503, 504})

__all__ = ["Batches", "LogClient", "OffsetBeyondEndError", "OffsetGoneError", "ReadFrom"]

T = TypeVar("T")


class LogClient(LogSinks):
    """See the module. ``token_of`` says which token goes to which server; ``token`` goes to all of them. Without either
    it is ``FLOCKMQ_TOKEN``, or what this user's credentials file has: as for the command line. With ``named_first`` the
    servers that were named are asked before replicas, whose addresses may mean nothing where the caller is."""

    def __init__(
        self,
        servers: str | Sequence[str] = DEFAULT_SERVER_URL,
        token: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token_of: Callable[[str], str | None] | None = None,
        timeout_s: float = 10.0,
        retry_s: float = RETRY_S,
        ssl_context: ssl.SSLContext | None = None,
        verify: bool = True,
        named_first: bool = False,
    ) -> None:
        self.namespace = namespace
        self._named = [servers] if isinstance(servers, str) else list(servers)
        if not self._named:
            raise FlockError(f"No server is named; name one like {DEFAULT_SERVER_URL}")
        self._token_of = token_of or (self._own_token if token is None else lambda _url: token)
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._ssl_context = ssl_context
        self._verify = verify
        self._named_first = named_first
        self._servers: dict[str, DurableCalls] = {}
        self._partitions: dict[str, tuple[float, list[model.Partition]]] = {}
        self._told: dict[str, None] = {}
        """Servers that answers named."""
        self._good: dict[tuple[str, int, ReadFrom], str] = {}
        """Who answered last, by topic, shard and whom the caller prefers."""
        self._jitter = random.Random()  # noqa: S311  (spreads retries)
        self._is_https = self._named[0].startswith("https://")

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def __enter__(self) -> LogClient:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # --- what there is ----------------------------------------------------------------------------------------------

    def topic(self, topic: str) -> model.DataTopic:
        """A topic as it was declared."""
        return self._anywhere(lambda server: server.topic(topic, namespace=self.namespace))

    def topics(self) -> list[model.DataTopic]:
        """All durable topics of the namespace."""
        return self._anywhere(lambda server: list(server.topics(namespace=self.namespace)))

    def metadata(self, topic: str, *, fresh: bool = False) -> list[model.Partition]:
        """The partitions of a topic, by shard: replicas, leaders, and where the APIs of their nodes are."""
        known = self._partitions.get(topic)
        if known is not None and not fresh and time.monotonic() - known[0] < METADATA_S:
            return known[1]
        return self._keep(topic, self._anywhere(partial(self._ask_partitions, topic)))

    def _ask_partitions(self, topic: str, server: DurableCalls) -> list[model.Partition]:
        return server.topic_partitions(topic, namespace=self.namespace)

    def _keep(self, topic: str, found: list[model.Partition]) -> list[model.Partition]:
        self._partitions[topic] = (time.monotonic(), found)
        for replica in (one for partition in found for one in partition.replicas):
            if replica.api is not None and self._is_safe(replica.api) and len(self._told) < SERVERS_MAX:
                self._told[replica.api] = None
        return found

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
        OffsetGoneError when retention removed them, OffsetBeyondEndError when the log ends before that offset (at its
        end there is nothing yet, which is no error); AdminError (code ``damaged``) when no
        replica can give these records back; FlockError when no replica could serve for ``retry_s``.
        """
        deadline = time.monotonic() + self._retry_s
        pause_s = PAUSE_S
        filters = what_fits(filters)
        while True:
            problem: FlockError | None = None
            for url in self._candidates(topic, shard, read_from):
                try:
                    found = self._read(url, topic, shard, offset, max_bytes, wait_ms, filters)
                except (UnreachableError, AdminError) as error:
                    problem = _elsewhere(error)
                    continue
                self._good[(topic, shard, read_from)] = url
                return found
            if isinstance(problem, AdminError) and problem.code == "damaged":
                raise problem  # the node asked all replicas: waiting does not bring records back
            if time.monotonic() >= deadline:
                raise FlockError(
                    f"No node could serve shard {shard} of topic {topic!r} from offset {offset} on for "
                    f"{self._retry_s:g} s; the last one said: {problem}"
                )
            self._partitions[topic] = (float("-inf"), self._partitions.get(topic, (0.0, []))[1])
            self._good.pop((topic, shard, read_from), None)
            time.sleep(pause_s * self._jitter.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _read(
        self, url: str, topic: str, shard: int, offset: int, max_bytes: int, wait_ms: int, filters: Sequence[str]
    ) -> Batches:
        answer = self._server(url).read_batches(
            topic,
            shard,
            offset=offset,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            filters=filters,
            namespace=self.namespace,
        )
        try:
            first = int(answer.headers[FIRST_OFFSET])
            end = int(answer.headers[END_OFFSET])
            following = int(answer.headers.get(NEXT_OFFSET, "0"))
            found = Batches(answer.body, offset, first, end, url, following)
            if self._verify:
                for view in found.views:
                    view.verify()
        except (KeyError, ValueError, FlockError) as error:
            raise UnreachableError(f"{url} answered with something that is no part of a log ({error!r})") from error
        return found

    def _candidates(self, topic: str, shard: int, read_from: ReadFrom) -> list[str]:
        """Whom to ask, best first. What was known before is better than nothing."""
        at, partitions = self._partitions.get(topic, (float("-inf"), []))
        if time.monotonic() - at >= METADATA_S:
            try:
                partitions = self._keep(topic, self._round(partial(self._ask_partitions, topic)))
                self._good.pop((topic, shard, read_from), None)  # another may lead by now
            except UnreachableError:
                pass
            except AdminError as error:
                if error.status not in _ASK_AGAIN:
                    raise
        if partitions and not 0 <= shard < len(partitions):
            raise FlockError(no_shard(topic, len(partitions), shard))
        good = self._good.get((topic, shard, read_from))
        urls = [good] if good is not None else []
        urls += self._named if self._named_first else []
        if partitions:
            replicas = sorted(partitions[shard].replicas, key=ORDERS[read_from])
            urls += [one.api for one in replicas if one.api is not None and self._is_safe(one.api)]
        return list(dict.fromkeys([*urls, *self._named]))

    def _is_safe(self, url: str) -> bool:
        """A token that was sent in TLS is not sent in the clear because some answer says so."""
        return url.startswith("https://") or not self._is_https

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
        ``retry_s``, and then it is an AdminError (503). When nobody can say what became of them, FlockError: publishing
        again may then double them. A node that could not be reached at all is no reason to give up.
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

        A cursor is over one topic. Who reads several makes one for each, named ``NAME.TOPIC``. With ``hold`` retention
        waits for it: up to four times the topic's ``retention_bytes``, or the nodes' ``store.held_bytes`` without that.
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

    # --- servers ----------------------------------------------------------------------------------------------------

    def _own_token(self, url: str) -> str | None:
        """The token that this user has for a server, else that for the one that was named: clusters share one."""
        from flockmq.client.tokens import token_for

        return token_for(url, self._ssl_context) or token_for(self._named[0], self._ssl_context)

    def _server(self, url: str) -> DurableCalls:
        server = self._servers.get(url)
        if server is None:
            if len(self._servers) >= SERVERS_MAX:
                self._servers.pop(next(iter(self._servers))).close()
            server = self._servers[url] = DurableCalls(
                url, self._token_of(url), timeout_s=self._timeout_s, ssl_context=self._ssl_context, keep=True
            )
        return server

    def _anywhere(self, ask: Callable[[DurableCalls], T], *, is_repeatable: bool = True) -> T:
        """Ask one server after the other until one answers; ``is_repeatable`` when asking twice does no harm."""
        deadline = time.monotonic() + self._retry_s
        pause_s = PAUSE_S
        while True:
            try:
                return self._round(ask, is_repeatable=is_repeatable)
            except (UnreachableError, AdminError) as error:
                is_final = isinstance(error, AdminError) and error.status not in _ASK_AGAIN
                is_sent = isinstance(error, UnreachableError) and not is_repeatable and not error.was_never_sent
                if is_final or is_sent or time.monotonic() >= deadline:
                    raise
            time.sleep(pause_s * self._jitter.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _round(self, ask: Callable[[DurableCalls], T], *, is_repeatable: bool = True) -> T:
        """Ask all servers once: those that were named, then those that they told of."""
        problem: UnreachableError | AdminError | None = None
        for url in list(dict.fromkeys([*self._named, *self._told])):
            try:
                return ask(self._server(url))
            except UnreachableError as error:
                if not is_repeatable and not error.was_never_sent:
                    raise
                problem = problem or error
            except AdminError as error:
                # The token of one node may be wrong on another: only those that were named are believed in that.
                if error.status not in _ASK_AGAIN and (url in self._named or error.status not in _NOT_FOR_US):
                    raise
                problem = error
        assert problem is not None
        raise problem


def _elsewhere(error: UnreachableError | AdminError) -> FlockError:
    """Go on with another server, or give up."""
    if isinstance(error, AdminError):
        if error.status == 410:
            raise OffsetGoneError(str(error), int(error.headers.get(FIRST_OFFSET, "0"))) from error
        if error.status == 416:
            raise OffsetBeyondEndError(str(error), int(error.headers.get(END_OFFSET, "0"))) from error
        if error.status not in _TRY_ELSEWHERE or error.code == "invalid_parameter":
            raise error
    return error
