"""A session that is a member of consumer groups: what of its messages is acknowledged, refused, or to be taken back.

```
 group --run--> session.deliver(source) --> Outbound: Delivery.group is the source
 PUBACK -> Outbound.settle -> source.acked(place)        PUBACK >= 0x80 -> refuse -> source.refused(place)
 the member leaves: take_back --> nothing of the source is sent any more, and its packet ids are free
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.session.outbound import Outbound
from flockmq.session.sources import MemberSource

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run
    from flockmq.session.session import Session


def offer(session: Session, run: Run, properties: bytes, source: MemberSource, now: int) -> bool:
    """Queue messages of a group at QoS 1, and send what the window allows; False: there is no room for all of them."""
    outbound = session.outbound
    if outbound is None:
        outbound = session.outbound = Outbound(session.queue_messages_max, session.queue_bytes_max)
    outbound.offer(run, 1, False, properties, source, now)
    last = outbound.queue[-1] if outbound.queue_head < len(outbound.queue) else None
    if last is None or last.group is not source or last.high - last.low < run.count:
        take_back(outbound, source, False)
        return False
    connection = session.connection
    if connection is not None and outbound.inflight < session.window:
        session.dropped += session.pump(now)
    return True


def refuse(outbound: Outbound, packet_id: int, reason: int) -> bool:
    """PUBACK with an error for a message of a group: its group hears of it. False: it is none of a group."""
    flight = outbound.flight_of(packet_id)
    source = None if flight is None else flight.group
    if flight is None or not isinstance(source, MemberSource):
        return False
    place = flight.skipped + flight.low + packet_id - flight.first
    source.is_refusing = True
    if outbound.settle(packet_id, 1):
        outbound.inflight -= 1
    source.is_refusing = False
    source.queue.refused(source, place, reason)
    return True


def take_back(outbound: Outbound, source: MemberSource | None, with_flights: bool) -> None:
    """Send nothing of a source (None: of any group) any more; ``with_flights``: not again either."""
    waiting = outbound.queue[outbound.queue_head :]
    left = []
    for delivery in waiting:
        if isinstance(delivery.group, MemberSource) and (source is None or delivery.group is source):
            outbound.held -= delivery.held
            outbound.queued -= delivery.high - delivery.low
        else:
            left.append(delivery)
    outbound.queue = left
    outbound.queue_head = 0
    for flight in outbound.flights[outbound.flights_head :] if with_flights else ():
        of = flight.group
        if not isinstance(of, MemberSource) or (source is not None and of is not source):
            continue
        of.is_refusing = True
        for place in flight.unsettled():
            if outbound.settle(flight.first + place, 1):
                outbound.inflight -= 1
        of.is_refusing = False
