"""A cluster as one server: asks one node after the other until one answers, for as long as the caller is patient.

```
 _anywhere(ask) --> servers named by the caller --> servers that answers told of --> a pause, and all of them again
 metadata(topic) --> partitions, replicas and where the APIs of their nodes are; kept for METADATA_S
```
Synchronous and of the standard library alone. Not for several threads at once: give each its own.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

from flockmq.admin import durable_model as model
from flockmq.client.topic_calls import DEFAULT_NAMESPACE, TopicCalls
from flockmq.client.transport import DEFAULT_SERVER_URL, UnreachableError
from flockmq.errors import ApiError, FlockError
from flockmq.wording import no_shard

RETRY_S: Final = 30.0
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 2.0
METADATA_S: Final = 60.0
"""How long what is known of replicas is used without asking again."""
SERVERS_MAX: Final = 64
ASK_AGAIN: Final = frozenset({429, 503})
NOT_FOR_US: Final = frozenset({401, 403, 421})
_JITTER: Final = random.Random()  # noqa: S311  (spreads retries)

T = TypeVar("T")
Order = Callable[[model.Replica], Any]
"""Which replicas come first: those with the least."""


class Patience:
    """How long a caller goes on trying, with pauses that grow."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._pause_s = PAUSE_S
        self.renew()

    def renew(self) -> None:
        """Something moved: the time starts anew."""
        self._deadline_s = time.monotonic() + self._retry_s

    def is_over(self) -> bool:
        """Whether to give up."""
        return time.monotonic() >= self._deadline_s

    def pause(self) -> None:
        """Wait before the next round."""
        time.sleep(self._pause_s * _JITTER.uniform(0.5, 1.0))
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


class Failover:
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
        self._servers: dict[str, TopicCalls] = {}
        self._partitions: dict[str, tuple[float, list[model.Partition]]] = {}
        """When a topic's partitions were asked for, and the answer."""
        self._told: dict[str, None] = {}
        """Servers that answers named."""
        self._good: dict[tuple[str, int, str], str] = {}
        """The server that answered a read last, by topic, shard and which replicas the caller prefers."""
        self._is_https = self._named[0].startswith("https://")

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def metadata(self, topic: str, *, fresh: bool = False) -> list[model.Partition]:
        """The partitions of a topic, by shard: replicas, leaders, and where the APIs of their nodes are."""
        known = self._partitions.get(topic)
        if known is not None and not fresh and time.monotonic() - known[0] < METADATA_S:
            return known[1]
        return self._anywhere(partial(self._learn, topic))

    def _learn(self, topic: str, server: TopicCalls) -> list[model.Partition]:
        found = server.topic_partitions(topic, namespace=self.namespace)
        self._partitions[topic] = (time.monotonic(), found)
        for replica in (one for partition in found for one in partition.replicas):
            if replica.api is not None and self._is_safe(replica.api) and len(self._told) < SERVERS_MAX:
                self._told[replica.api] = None
        return found

    def _holders(self, topic: str, shard: int, partitions: Sequence[model.Partition], order: Order) -> list[str]:
        """The APIs of the nodes that hold a replica of a shard, best first."""
        if not 0 <= shard < len(partitions):
            raise FlockError(no_shard(topic, len(partitions), shard))
        replicas = sorted(partitions[shard].replicas, key=order)
        return [one.api for one in replicas if one.api is not None and self._is_safe(one.api)]

    def _is_safe(self, url: str) -> bool:
        """A token that was sent in TLS is not sent in the clear because some answer says so."""
        return url.startswith("https://") or not self._is_https

    def _own_token(self, url: str) -> str | None:
        """The token that this user has for a server, else that for the one that was named: clusters share one."""
        from flockmq.client.tokens import token_for

        return token_for(url, self._ssl_context) or token_for(self._named[0], self._ssl_context)

    def _server(self, url: str) -> TopicCalls:
        server = self._servers.get(url)
        if server is None:
            if len(self._servers) >= SERVERS_MAX:
                self._servers.pop(next(iter(self._servers))).close()
            server = self._servers[url] = TopicCalls(
                url, self._token_of(url), timeout_s=self._timeout_s, ssl_context=self._ssl_context, keep=True
            )
        return server

    def _anywhere(self, ask: Callable[[TopicCalls], T], *, is_repeatable: bool = True) -> T:
        """Ask one server after the other until one answers; ``is_repeatable`` when asking twice does no harm."""
        patience = Patience(self._retry_s)
        while True:
            try:
                return self._round(ask, is_repeatable=is_repeatable)
            except UnreachableError as error:
                if patience.is_over() or not (is_repeatable or error.was_never_sent):
                    raise
            except ApiError as error:
                if patience.is_over() or error.status not in ASK_AGAIN:
                    raise
            patience.pause()

    def _round(self, ask: Callable[[TopicCalls], T], *, is_repeatable: bool = True) -> T:
        """Ask all servers once: those that were named, then those that they told of."""
        problem: UnreachableError | ApiError | None = None
        for url in list(dict.fromkeys([*self._named, *self._told])):
            try:
                return ask(self._server(url))
            except UnreachableError as error:
                if not is_repeatable and not error.was_never_sent:
                    raise
                problem = problem or error
            except ApiError as error:
                # The token of one node may be wrong on another, and a node that has just started may not know it yet.
                if error.status not in ASK_AGAIN and error.status not in NOT_FOR_US:
                    raise
                if error.status in NOT_FOR_US and self._named == [url]:
                    raise
                problem = error
        assert problem is not None
        raise problem
