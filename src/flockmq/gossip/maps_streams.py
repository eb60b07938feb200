"""What is on its way to a peer: which map, from where on, and how much may be under way.

```
 PULL --> Stream at (boot, version) ---- log leads on ----------------> segments until the map's version --.
                |                                                           ^        |  own map: stays, follows
                '--- it does not --> Snapshot, window_chunks at a time -----'        '--> another's: ends
                                         ^ PROGRESS
```
"""

from __future__ import annotations

from flockmq.gossip.maps_log import Snapshot
from flockmq.gossip.maps_ports import Outbox
from flockmq.gossip.maps_replica import OwnerMap
from flockmq.gossip.maps_settings import MapsSettings


class Stream:
    """One map on its way to one peer."""

    def __init__(self, source: OwnerMap, follows: bool, boot: int, version: int) -> None:
        self.source = source
        self.follows = follows
        """The peer gets what changes later too (the own map); otherwise it ends when the peer is level."""
        self.boot = boot
        self.version = version
        """What the peer has once it has got all that was sent."""
        self.sent_bytes = 0
        self._sent_end = 0
        self._acknowledged_end = 0
        """How far the peer gets with all that was sent, and how far it said it got, on the scale of the log."""
        self._owed_version = 0
        """A whole map was sent, and the peer has not said yet that it has it. 0: it owes no answer."""
        self._snapshot: Snapshot | None = None
        self._next_index = 0
        self._answered = 0

    def close(self) -> None:
        """Nothing more is sent."""
        snapshot = self._snapshot
        if snapshot is not None:
            self._snapshot = None
            self.source.return_snapshot(snapshot)

    def restart(self) -> None:
        """The map's boot is another one now: nothing that was sent is of use."""
        self.close()
        self.boot = 0
        self._owed_version = 0
        self._go_on_from(0)

    def on_progress(self, boot: int, version: int, index: int) -> None:
        """A piece has arrived."""
        snapshot = self._snapshot
        if snapshot is not None and snapshot.boot == boot and snapshot.version == version:
            self._answered = max(self._answered, min(index + 1, self._next_index))

    def on_stop(self, boot: int, version: int) -> bool:
        """The peer needs no more of this whole map: it has it, or knows newer. False: all is said."""
        self._owed_version = 0
        snapshot = self._snapshot
        if snapshot is None or snapshot.boot != boot or snapshot.version != version:
            return True  # about pieces that are all sent
        self.close()
        self.boot = boot
        self._go_on_from(version)
        return self.follows

    def on_have(self, version: int) -> None:
        """The peer has applied this version of the own map."""
        if self._snapshot is not None:
            return
        if version >= self._owed_version:
            self._owed_version = 0
        if version == self.version:
            self._acknowledged_end = self._sent_end
        elif version < self.version:
            # What the log has forgotten stays in the window until something newer is acknowledged.
            self._acknowledged_end = max(self._acknowledged_end, self.source.log.end_at(version))
        elif self.source.leads_on(self.boot, version):
            self._go_on_from(version)  # it got it elsewhere

    def serve(self, peer: int, channel: int, outbox: Outbox, settings: MapsSettings) -> bool:
        """Send what may be sent now. False: the stream has ended."""
        source = self.source
        while True:
            if self._snapshot is not None and not self._send_pieces(peer, channel, outbox, settings):
                return True
            if self.boot == source.boot and self.version == source.version:
                return self.follows
            if not source.leads_on(self.boot, self.version):
                if self._owed_version or not self._may_send(settings):
                    return True
                self._snapshot = source.borrow_snapshot(settings.chunk_bytes_max)
                self._next_index = 0
                self._answered = 0
                continue
            return self._send_segments(peer, channel, outbox, settings)

    def _send_pieces(self, peer: int, channel: int, outbox: Outbox, settings: MapsSettings) -> bool:
        """Whether the last piece was sent."""
        snapshot = self._snapshot
        assert snapshot is not None
        if snapshot.boot != self.source.boot:
            self.restart()
            return True
        while self._next_index - self._answered < settings.window_chunks:
            index = self._next_index
            chunk = snapshot.chunk(index)
            outbox.send(peer, channel, chunk)
            self.sent_bytes += len(chunk)
            self._next_index += 1
            if snapshot.is_last(index):
                self.close()
                self.boot = snapshot.boot
                self._go_on_from(snapshot.version)
                self._owed_version = snapshot.version
                return True
        return False

    def _send_segments(self, peer: int, channel: int, outbox: Outbox, settings: MapsSettings) -> bool:
        segments = self.source.log.segments
        index = self.source.log.index_of(self.version)
        if self._sent_end == 0:
            self._go_on_from(self.version)
        while index < len(segments):
            if not self._may_send(settings):
                return True  # its answer opens the window again
            segment = segments[index]
            outbox.send(peer, channel, segment.body)
            self.sent_bytes += len(segment.body)
            self._sent_end = segment.end
            self.version = segment.last
            index += 1
        return self.follows

    def _may_send(self, settings: MapsSettings) -> bool:
        """Whether the window is open; what a third node passes on is little, and not acknowledged to it."""
        return not self.follows or self._sent_end - self._acknowledged_end < settings.window_bytes

    def _go_on_from(self, version: int) -> None:
        """The peer has this version, or will; what comes next begins with an open window."""
        self.version = version
        end = max(self.source.log.end_at(version), 0)
        self._sent_end = end
        self._acknowledged_end = end


class Peer:
    """What we know of a node as a listener to our maps."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.up = False
        self.acknowledged = 0
        """Of the own map."""
        self.repair_at = 0
        """Before that no further look at buckets with this peer."""
        self.streams: dict[int, Stream] = {}

    def open(self, stream: Stream) -> None:
        """The peer asked for this map, from here on."""
        self.close(stream.source.owner)
        self.streams[stream.source.owner] = stream

    def close(self, owner: int) -> None:
        """Nothing more of this map."""
        stream = self.streams.pop(owner, None)
        if stream is not None:
            stream.close()

    def close_all(self) -> None:
        """The link is gone."""
        for stream in self.streams.values():
            stream.close()
        self.streams = {}

    def serve(self, channel: int, outbox: Outbox, settings: MapsSettings) -> bool:
        """Send what may be sent now, of all maps it asked for. True: there is more for the next turn."""
        ended: list[int] = []
        room = settings.window_bytes
        for owner, stream in self.streams.items():
            if room <= 0:
                break  # many maps at once are paced, so that a frame stays of reasonable size
            before = stream.sent_bytes
            if not stream.serve(self.node_id, channel, outbox, settings):
                ended.append(owner)
            room -= stream.sent_bytes - before
        for owner in ended:
            self.close(owner)
        return room <= 0
