"""How far the topics of a query reach: asked once for a batch, followed by long polls for a stream.

```
 HeadsWatch:  threads, each with its own client --long poll--> cluster
                  `--> latest: topic -> heads      <-- latest(), called a hundred times a second, asks no node
              topics of a pattern are listed every LIST_S; a new one is followed from then on
```
A cluster that is away is asked again and again; only when it was silent for all retries the query hears of it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from typing import Final

from flockmq.admin.durable_model import Head
from flockmq.client.log_client import LogClient
from flockmq.errors import FlockError, NotFound
from flockmq.spark.options import ReadOptions
from flockmq.spark.servers import RETRY_S
from flockmq.wording import no_shard

WAIT_MS: Final = 10_000
LIST_S: Final = 2.0
ROUND_S: Final = 0.1
"""Pause between rounds of a thread that follows several topics."""
PAUSE_S: Final = 0.2
THREADS_MAX: Final = 8
TOPICS_MAX: Final = 1_000


def topics_of(options: ReadOptions, client: LogClient) -> list[str]:
    """The topics that a query reads now."""
    if options.assigned:
        return sorted(options.assigned)
    if options.topics:
        return sorted(options.topics)
    pattern = re.compile(options.pattern)
    found = [topic.name for topic in client.topics() if pattern.fullmatch(topic.name)]
    if len(found) > TOPICS_MAX:
        raise FlockError(
            f"subscribePattern={options.pattern!r} fits {len(found):,} topics; a query reads at most {TOPICS_MAX:,}"
        )
    return sorted(found)


def heads_now(options: ReadOptions, client: LogClient) -> dict[str, list[Head]]:
    """How far everything reaches at this moment."""
    return {topic: _selected(options, topic, client.heads(topic).heads) for topic in topics_of(options, client)}


def _selected(options: ReadOptions, topic: str, heads: Sequence[Head]) -> list[Head]:
    """The shards that are read."""
    wanted = options.assigned.get(topic)
    if wanted is None:
        return sorted(heads, key=lambda head: head.shard)
    by_shard = {head.shard: head for head in heads}
    for shard in wanted:
        if shard not in by_shard:
            raise FlockError(no_shard(topic, len(heads), shard))
    return [by_shard[shard] for shard in wanted]


class HeadsWatch:
    """See the module. Threads are daemons: Spark ends their process without a word."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._heads: dict[str, list[Head]] = {}
        self._followed: list[list[str]] = []
        """By thread."""
        self._gone: set[str] = set()
        self._problems: dict[str, tuple[float, FlockError]] = {}
        """Since when no node answers about a topic (empty: about the list of topics), and the last error."""
        self._has_ended = threading.Event()

    def start(self) -> dict[str, list[Head]]:
        """Ask once, then follow."""
        found = heads_now(self._options, self._options.servers.client())
        with self._lock:
            self._heads = dict(found)
        for topic in found:
            self._follow(topic)
        if self._options.pattern:
            threading.Thread(target=self._list, name="flockmq-topics", daemon=True).start()
        return found

    def stop(self) -> None:
        """Ask no more; threads end when their polls do."""
        self._has_ended.set()

    def latest(self) -> tuple[dict[str, list[Head]], set[str]]:
        """What is known, and the topics that were there and are no more; FlockError when the cluster has been silent
        for all retries."""
        patience_s = self._options.servers.retries * RETRY_S
        with self._lock:
            for topic, (since, error) in self._problems.items():
                away_s = time.monotonic() - since
                if away_s > patience_s:
                    raise FlockError(_away(self._options, topic, away_s, error))
            return dict(self._heads), set(self._gone)

    # --- following --------------------------------------------------------------------------------------------------

    def _follow(self, topic: str) -> None:
        """Give a topic to a thread: one of its own, as long as there are few."""
        if len(self._followed) < THREADS_MAX:
            topics = [topic]
            self._followed.append(topics)
            threading.Thread(target=self._run, args=(topics,), name=f"flockmq-heads-{topic}", daemon=True).start()
        else:
            min(self._followed, key=len).append(topic)

    def _run(self, topics: list[str]) -> None:
        after: dict[str, str] = {}
        with self._options.servers.new_client(retry_s=0.0) as client:
            while not self._has_ended.is_set():
                is_alone = len(topics) == 1
                is_well = True
                for topic in list(topics):
                    is_well &= self._ask(client, topic, after, WAIT_MS if is_alone else 0)
                if not is_well or not is_alone:
                    self._has_ended.wait(ROUND_S if is_well else PAUSE_S)

    def _ask(self, client: LogClient, topic: str, after: dict[str, str], wait_ms: int) -> bool:
        try:
            answer = client.heads(topic, after=after.get(topic), wait_ms=wait_ms)
            heads = _selected(self._options, topic, answer.heads)
        except FlockError as error:
            # The next question does not wait: a node where too many wait already answers those that don't.
            after.pop(topic, None)
            if isinstance(error, NotFound):
                self._lost(topic)
            else:
                self._failed(topic, error)
            return False
        after[topic] = answer.after
        with self._lock:
            self._problems.pop(topic, None)
            self._gone.discard(topic)
            self._heads[topic] = heads
        return True

    def _list(self) -> None:
        with self._options.servers.new_client(retry_s=0.0) as client:
            while not self._has_ended.wait(LIST_S):
                try:
                    found = topics_of(self._options, client)
                except FlockError as error:
                    self._failed("", error)
                    continue
                with self._lock:
                    self._problems.pop("", None)
                    known = {topic for topics in self._followed for topic in topics}
                for topic in found:
                    if topic not in known:
                        self._follow(topic)

    def _failed(self, topic: str, error: FlockError) -> None:
        with self._lock:
            since = self._problems.get(topic, (time.monotonic(), error))[0]
            self._problems[topic] = (since, error)

    def _lost(self, topic: str) -> None:
        with self._lock:
            self._problems.pop(topic, None)
            if self._heads.pop(topic, None) is not None:
                self._gone.add(topic)


def _away(options: ReadOptions, topic: str, away_s: float, error: FlockError) -> str:
    about = f"topic {topic!r}" if topic else "its topics"
    return (
        f"No node at {', '.join(options.servers.urls)} could say for {away_s:.0f} s how far {about} reaches; start the "
        f"query again when the cluster is back, it goes on where it was (the last answer: {error})"
    )
