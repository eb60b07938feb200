"""QoS 2 runs of persistent sessions that wait until their partitions may be published into, in their order.

```
 append --> open already? --yes--> lanes
               `--no--> Opening.hold: not read meanwhile --ReleasePort.open--> OPENED: into the lanes, then the next one
                                                                       |-----> FULL: refused, all that wait
                                                                       `-----> LOST: closed, all that wait come again
```
Once per session and partition, until the session has released all its ids there and is idle.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.publish.entering import places_of
from flockmq.durable.publish.pausing import Stopped
from flockmq.durable.publish.releasing import FULL, OPENED
from flockmq.mqtt import reasons

if TYPE_CHECKING:
    from flockmq.durable.publish.answers import PublishAnswer
    from flockmq.durable.publish.appending import Appending
    from flockmq.durable.publish.lanes import HeldRun
    from flockmq.durable.publish.releasing import ReleasePort
    from flockmq.routing.durable import DurableTopic
    from flockmq.session.session import Session

WHY_FULL: Final = "This client publishes exactly once into as many partitions as it may; nothing was stored"
WHY_NO_TOPIC: Final = "The durable topic was deleted; nothing was stored"


class _Unopened:
    """A run, and the answer that waits for it."""

    def __init__(self, topic: DurableTopic, held: HeldRun, answer: PublishAnswer) -> None:
        self.topic = topic
        self.held = held
        self.answer = answer


class Opening:
    """See the module."""

    def __init__(self, owner: Appending, port: ReleasePort) -> None:
        self._owner = owner
        self._port = port
        self._lines: dict[int, list[_Unopened]] = {}
        """Waiting runs, by identity of their session."""
        self._stopped = Stopped()

    def must_wait(self, session: Session, groups: list[int]) -> bool:
        """Whether a run can't go into its partitions at once."""
        return id(session) in self._lines or not self._port.is_open(session, groups)

    def hold(self, topic: DurableTopic, held: HeldRun, answer: PublishAnswer) -> None:
        """Keep a run until its partitions are open."""
        self._stopped.stop(answer.connection)
        line = self._lines.get(id(answer.session))
        if line is not None:
            line.append(_Unopened(topic, held, answer))
            return
        self._lines[id(answer.session)] = [_Unopened(topic, held, answer)]
        self._go_on(answer.session)

    def _go_on(self, session: Session) -> None:
        line = self._lines[id(session)]
        while line:
            one = line[0]
            topic = self._owner.node.table.topics.topics.get(one.topic.id)
            epoch = one.held.whole().renew(self._owner, self._port.tag(session))
            if topic is not None and epoch >= 0:
                groups = places_of(topic, one.held.run, one.held.client)
                if not self._port.is_open(session, groups):
                    self._port.open(session, groups, partial(self._opened, session))
                    return
                one.held.epoch = epoch
            del line[0]
            if topic is None:
                one.held.whole().refuse(self._owner, WHY_NO_TOPIC)
            elif epoch < 0:
                one.held.whole().abandon(self._owner)
            else:
                self._owner.admit(topic, one.held)
            self._stopped.let_go(self._owner.node, one.answer.connection)
        del self._lines[id(session)]

    def _opened(self, session: Session, code: int) -> None:
        if code == OPENED:
            self._go_on(session)
            return
        for one in self._lines.pop(id(session)):
            share = one.held.whole()
            if code == FULL:
                share.refuse(self._owner, WHY_FULL, reasons.QUOTA_EXCEEDED)
            else:
                share.abandon(self._owner)
            self._stopped.let_go(self._owner.node, one.answer.connection)
