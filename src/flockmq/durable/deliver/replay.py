"""History through MQTT: where a subscription wants to begin, and its SUBACK once that is known.

```
 flockmq-from: earliest | latest | offset:N | offset:SHARD=N,... | time:2026-01-31T12:00:00Z
 $replay/<the same>/FILTER

 SUBSCRIBE --> refusal: is there a log? --> entered: a StartRequest per partition --> the log here or its leader tells
                 SUBACK <--- all is known, or it took too long <--- hold              |  the offset --> Catchup.start
```
``log/starts.py`` reads these starts. An offset behind the end is the end. A start that is gone becomes the oldest
record that is left, and the SUBACK says so: user property ``flockmq-oldest: SHARD=OFFSET,...``. A subscription with
history gets no retained messages.

To ask again for the same filter begins anew. A position lives with its session, and moves with it to another node; with
a clean start it has to be asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flockmq.durable.deliver.catchup import UNKNOWN
from flockmq.durable.logs.locating import REPLICAS, Located
from flockmq.log.starts import LATEST, OFFSET, Start, parse_start
from flockmq.mqtt.properties import Properties
from flockmq.node.subscribing import answer

if TYPE_CHECKING:
    from flockmq.durable.deliver.log_readers import LogReaders
    from flockmq.durable.deliver.streams import Streams
    from flockmq.mqtt.packets import Suback
    from flockmq.node.state import NodeState
    from flockmq.routing.subscription import Subscription
    from flockmq.session.connection import Connection
    from flockmq.session.places import LogPlace
    from flockmq.session.session import Session
    from flockmq.tasks import Task

CLEAN_WAIT_MS: Final = 1_000
"""Longest wait for the SUBACK of a session that ends with its connection."""
WAIT_MS: Final = 30_000
PENDING_MAX: Final = 65_536
RETRY_MS: Final = 200
ASKS_MAX: Final = 256
"""Starts that are being looked up at once."""
OLDEST: Final = "flockmq-oldest"


@dataclass(slots=True, eq=False)
class StartRequest:
    """A subscription wants the history of one partition."""

    subscription: Subscription
    group: int
    shard: int
    start: Start
    is_done: bool = False
    is_asked: bool = False
    retry_at: int = 0
    oldest: int = UNKNOWN
    """The offset at which it begins instead, when its start is gone."""


@dataclass(slots=True, eq=False)
class Pending:
    """A SUBACK that waits until all streams and starts are known."""

    connection: Connection
    session: Session
    suback: Suback
    entered: list[Subscription]
    fresh: list[Subscription]
    requests: list[StartRequest]
    groups: list[int]
    deadline: int


class Replay:
    """The broker's ``node.logs``; see the module."""

    def __init__(self, node: NodeState, streams: Streams, readers: LogReaders) -> None:
        self.node = node
        self.streams = streams
        self.readers = readers
        self._requests: list[StartRequest] = []
        """Those whose start is not known yet."""
        self._made: list[StartRequest] = []
        """Those of the SUBSCRIBE that is being looked at."""
        self._pending: list[Pending] = []
        self._histories: dict[Subscription, dict[int, int]] = {}
        """By partition, where the history of a logged session begins, until its record is told (``take_history``)."""
        self._asking = 0

    # --- SUBSCRIBE ---

    def refusal(self, topic_filter: bytes, start: bytes) -> str:
        """Why this can't be replayed; empty: it can."""
        try:
            wanted = parse_start(start.decode("utf-8", "replace"))
        except ValueError as error:
            return str(error)
        topics = self.streams.interest.overlapping(topic_filter)
        if wanted.what == LATEST:
            return ""
        if not topics:
            return "No durable topic holds what this filter matches, so that there is no history"
        if wanted.what == OFFSET:
            if len(topics) > 1:
                return "This filter matches names of several durable topics; an offset means something in one only"
            return wanted.refusal(len(topics[0].groups))
        return ""

    def entered(self, subscription: Subscription, old: Subscription | None, start: bytes, now: int) -> None:
        """A subscription stands in the table."""
        interest = self.streams.interest
        steps = interest.steps
        topics = self.streams.notice(subscription.topic_filter, now)
        self.node.turns.work += interest.steps - steps + len(topics)
        wanted = parse_start(start.decode("utf-8", "replace")) if start else Start(LATEST)
        if wanted.what == LATEST and old is not None:
            self._replace(old, subscription)
            return
        if old is not None:
            self.left(old)
        for topic in topics:
            for shard in range(len(topic.groups)):
                group = topic.groups[shard]
                begin = Start(LATEST) if topic.is_capture else wanted.of_shard(shard)
                if begin.what == LATEST:
                    self._join(subscription, group)
                    continue
                self.readers.of(subscription.session).pause(subscription, group, self.streams.by_group[group].next)
                request = StartRequest(subscription, group, shard, begin)
                self._made.append(request)
                if not self._resolve(request, now):
                    self._requests.append(request)

    def _join(self, subscription: Subscription, group: int) -> None:
        catchup = self.readers.catching.get(subscription.session)
        if catchup is not None and group in catchup.positions:
            catchup.join(subscription, group, self.streams.by_group[group].next)

    def _replace(self, old: Subscription, subscription: Subscription) -> None:
        catchup = self.readers.catching.get(subscription.session)
        if catchup is not None:
            catchup.replace(old, subscription)
            for request in self._requests:
                if request.subscription is old:
                    request.subscription = subscription
        history = self._histories.pop(old, None)
        if history is not None:
            self._histories[subscription] = history

    def left(self, subscription: Subscription) -> None:
        """A subscription is no more; its session may go on without waiting for its start."""
        self._histories.pop(subscription, None)
        catchup = self.readers.catching.get(subscription.session)
        if catchup is None:
            return
        catchup.forget(subscription)
        left = [request for request in self._requests if request.subscription is subscription]
        if left:
            self._requests = [request for request in self._requests if request.subscription is not subscription]
            for request in left:
                request.is_done = True
                if not catchup.is_waiting(request.group):
                    catchup.unpause(request.group)

    # --- sessions that move ---

    def places(self, session: Session) -> list[LogPlace]:
        """Where a session stands in logs, for its next owner."""
        groups: dict[int, None] = {}
        for subscription in session.subscriptions.values():
            if not subscription.group:
                for topic in self.streams.interest.sources(subscription.topic_filter):
                    groups.update(dict.fromkeys(topic.groups))
        return self.readers.places(session, list(groups))

    def arrived(self, session: Session, now: int) -> None:
        """A session came from another node: before anything is delivered to it, it has to know where it stands."""
        for subscription in session.subscriptions.values():
            if not subscription.group:
                self.streams.notice(subscription.topic_filter, now)
        self.readers.arrive(session)

    def resumed(self, session: Session) -> None:
        """The client of a session is back, and takes what waits in logs."""
        self.readers.resume(session)

    def ended(self, session: Session) -> None:
        """A session is no more."""
        self.readers.end(session)
        for subscription in session.subscriptions.values():
            self._histories.pop(subscription, None)

    # --- where it begins ---

    def _resolve(self, request: StartRequest, now: int) -> bool:
        """Find out where a request begins; False when that takes a while."""
        stream = self.streams.by_group.get(request.group)
        if stream is None or request.is_done:
            request.is_done = True
            return True
        if stream.next == UNKNOWN or request.is_asked or now < request.retry_at or self._asking >= ASKS_MAX:
            return False
        here = self.streams.logs.located_here(request.group, request.start, REPLICAS)
        if here is not None and here.offset > here.first:  # else another replica may have an older beginning
            self._begin(request, here)
            return True
        self.streams.logs.tasks.start("start of a subscription", self._find(request))
        return request.is_done

    def _find(self, request: StartRequest) -> Task[None]:
        request.is_asked = True
        self._asking += 1
        try:
            found = (yield from self.streams.logs.locate([request.group], request.start, REPLICAS)).get(request.group)
        finally:
            request.is_asked = False
            self._asking -= 1
        request.retry_at = self.node.now + RETRY_MS
        if found is not None and not request.is_done:
            self._begin(request, found)

    def _begin(self, request: StartRequest, found: Located) -> None:
        request.is_done = True
        stream = self.streams.by_group.get(request.group)
        catchup = self.readers.catching.get(request.subscription.session)
        if stream is None or catchup is None or stream.next == UNKNOWN:
            return
        offset = found.offset
        if offset < found.first:
            offset = found.first
            request.oldest = found.first
        offset = min(offset, stream.next)
        if request.subscription.session.is_logged:
            self._histories.setdefault(request.subscription, {})[request.group] = offset
        catchup.start(request.subscription, request.group, offset)
        self.streams.logs.wake()

    def take_history(self, subscription: Subscription) -> dict[int, int]:
        """By partition, where the history begins that a subscription has just asked for; said once."""
        return self._histories.pop(subscription, {})

    # --- SUBACK ---

    def hold(
        self,
        connection: Connection,
        session: Session,
        suback: Suback,
        entered: list[Subscription],
        fresh: list[Subscription],
        now: int,
    ) -> bool:
        """Keep a SUBACK until all streams and starts are known; False when they are."""
        requests = self._made
        self._made = []
        groups: list[int] = []
        for subscription in entered:
            if not subscription.group:
                for topic in self.streams.interest.sources(subscription.topic_filter):
                    groups.extend(topic.groups)
        deadline = now + (WAIT_MS if session.expiry_s else CLEAN_WAIT_MS)
        pending = Pending(connection, session, suback, entered, fresh, requests, groups, deadline)
        if self._is_known(pending) or len(self._pending) >= PENDING_MAX:
            note_oldest(connection, suback, requests)
            return False
        self._pending.append(pending)
        return True

    def waiting(self) -> int:
        """How many SUBACKs wait."""
        return len(self._pending)

    def _is_known(self, pending: Pending) -> bool:
        for request in pending.requests:
            if not request.is_done:
                return False
        streams = self.streams.by_group
        for group in pending.groups:
            stream = streams.get(group)
            if stream is not None and stream.next == UNKNOWN:
                return False
        return True

    def look(self, now: int) -> None:
        """A start may be known now, or a SUBACK has waited for long enough."""
        if self._requests:
            self._requests = [request for request in self._requests if not self._resolve(request, now)]
        if not self._pending:
            return
        waiting: list[Pending] = []
        for pending in self._pending:
            is_gone = pending.session.connection is not pending.connection
            if is_gone or pending.deadline <= now or self._is_known(pending):
                note_oldest(pending.connection, pending.suback, pending.requests)
                answer(self.node, pending.connection, pending.session, pending.suback, pending.entered, pending.fresh)
            else:
                waiting.append(pending)
        self._pending = waiting


def note_oldest(connection: Connection, suback: Suback, requests: list[StartRequest]) -> None:
    """Say in a SUBACK where history begins that was asked for from before its beginning."""
    late = [f"{request.shard}={request.oldest}" for request in requests if request.oldest != UNKNOWN]
    if late and connection.version == 5 and connection.wants_problem_information:
        if suback.properties is None:
            suback.properties = Properties()
        suback.properties.user.append((OLDEST, ",".join(late)))
