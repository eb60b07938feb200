"""``python -m flockmq.testing.processes.server``: a bare node, Raft groups behind a tiny protocol for clients.

```
 clients (protocol.py) --> Client --> RaftDriver <--> Links <--> other nodes
                                          `--> store in --data
```
Everything on loopback. The process ends by itself when its standard input does, that is with its parent. A node whose
disk failed goes on running, answers its clients with refusals and says why in its status.

An empty store means the first start of all: never remove a node's data and start it again under the same number.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import signal
import struct
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import uvloop

from flockmq.drivers.boot import next_boot
from flockmq.drivers.clock import now_ms
from flockmq.drivers.journal import open_disk
from flockmq.drivers.links import LinkIdentity, Links, PeerInfo
from flockmq.log.settings import StoreSettings
from flockmq.raft.appends import COMMITTED, REFUSED, OpenBatch, Outcome
from flockmq.raft.configuration import Configuration
from flockmq.raft.engine import REPLAY_BYTES_MAX
from flockmq.raft.host import RaftHost
from flockmq.raft.replicas import bootstrap
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import HEALTH_NAMES, ROLE_NAMES
from flockmq.server.run import GC_THRESHOLDS
from flockmq.testing.processes.driver import RaftDriver
from flockmq.testing.processes.protocol import (
    APPEND,
    APPEND_BYTES,
    FRAME_BYTES_MAX,
    READ,
    RECORD,
    STATUS,
    counts_frame,
    outcome_frame,
    read_record,
    status_frame,
)
from flockmq.wire.frames import FrameReader

if TYPE_CHECKING:
    from flockmq.drivers.disk import FileDisk
    from flockmq.log.store import Store
    from flockmq.raft.ready import Ready

HOST: Final = "127.0.0.1"
COOKIE: Final = b"the well-known cookie of all test processes"
TOPIC: Final = b"test"
SMALL_STORE: Final = StoreSettings(
    journal_bytes=1 << 21, commit_bytes=1 << 19, segment_bytes=1 << 18, index_bytes=4_096, cache_bytes=1 << 18
)
"""Files so small that a test of seconds sees many of them come and go."""
SMALL_RAFT: Final = RaftSettings(
    tick_ms=20,
    heartbeat_ms=60,
    election_ms=400,
    append_bytes_max=1 << 16,
    entry_bytes_max=1 << 18,
    write_bytes_max=1 << 16,
    window_bytes_max=1 << 17,
    tail_bytes_max=1 << 17,
    quiet_after_ms=300,
)
"""Windows to go with it, and elections soon after a death."""
SMALL_REPLAY_BYTES: Final = 1 << 18
STATE: Final = struct.Struct("<Q")
"""What a checkpoint holds of a group: the offset behind its last applied record."""


class Client(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._engine = server.driver.engine
        self._appends = server.driver.engine.appends
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._name = b""
        self._counts = [0, 0, 0]
        """Committed, refused, unknown."""
        self._numbered: dict[OpenBatch, list[tuple[int, int]]] = {}
        """(position in the batch, number) of records that are answered each for itself."""
        self._out: list[bytes] = []
        self._will_write = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client calls."""
        self._transport = cast("asyncio.Transport", transport)
        self._name = b"%d" % transport.get_extra_info("peername")[1]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (how it was lost changes nothing)
        """The client is gone."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Requests, as many as fit into a read; messages of it for one group are one run."""
        now = int(time.time() * 1_000)
        runs: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for body in self._reader.feed(data):
            if body[0] == APPEND:
                runs[body[:APPEND_BYTES]].append(body[APPEND_BYTES:])
            else:
                self._take(body, now)
        if runs and not self._engine.stopped:
            self._append(runs, now)

    def _take(self, body: bytes, now: int) -> None:
        """Anything but a message without a number, of which there are many."""
        kind = body[0]
        if kind == RECORD and not self._engine.stopped:
            group, number, payload = read_record(body)
            batch = self._appends.open_batch(group)
            self._numbered.setdefault(batch, []).append((batch.builder.count, number))
            batch.builder.add(TOPIC, self._name, now, 1, payload)
            batch.waiting[self] = 0
        elif kind == READ:
            group, number, _ = read_record(body)
            self._engine.read(group, partial(self._answer_read, group, number), now_ms())
        elif kind == STATUS and self._transport is not None:
            self._transport.write(status_frame(self._server.status()))
        elif self._transport is not None:
            self._transport.abort()

    def _append(self, runs: dict[bytes, list[bytes]], now: int) -> None:
        for head, payloads in runs.items():
            batch = self._appends.open_batch(int.from_bytes(head[1:], "little"))
            batch.builder.add_run(TOPIC, self._name, now, 1, payloads)
            batch.waiting[self] = batch.waiting.get(self, 0) + len(payloads)

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        """Some messages have an outcome; the answer leaves at the end of the turn."""
        kind = outcome.kind
        if count:
            self._counts[0 if kind == COMMITTED else 1 if kind == REFUSED else 2] += count
        for position, number in self._numbered.pop(batch, ()):
            offset = outcome.offset + position if kind == COMMITTED else -1
            self._out.append(outcome_frame(number, kind, offset))
        self._write_soon()

    def _answer_read(self, group: int, number: int, is_certain: bool) -> None:
        offset = self._server.ends.get(group, 0)
        self._out.append(outcome_frame(number, COMMITTED if is_certain else REFUSED, offset))
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._will_write:
            self._will_write = True
            self._engine.after_turn.append(self._write)

    def _write(self) -> None:
        self._will_write = False
        if self._counts != [0, 0, 0]:
            self._out.append(counts_frame(*self._counts))
            self._counts = [0, 0, 0]
        if self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out = []


class Server:
    """One node."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.node: int = options.node
        self._peers = {int(node): int(port) for node, port in (one.split(":") for one in options.peers.split(","))}
        self._voters = tuple(sorted(self._peers))
        self._client_port: int = options.client_port
        self.ends: dict[int, int] = {}
        """Group -> offset behind its last applied record."""
        folder = Path(options.data)
        rng = random.SystemRandom()
        store, disk = open_disk(folder, SMALL_STORE if options.small else StoreSettings())
        is_new = not store.groups and not store.notes
        if is_new:
            self._bootstrap(store, disk, options.groups)
        boot = next_boot(folder, int(time.time() * 1_000))
        settings = SMALL_RAFT if options.small else RaftSettings()
        self.host = RaftHost(self.node, boot, settings, rng, now_ms())
        identity = LinkIdentity(node_id=self.node, boot=boot, cookie=COOKIE)
        self.links = Links(identity, self._up, self._down, self._receive, self._writable, rng)
        self.driver = RaftDriver(
            self.host,
            store,
            disk,
            self.links,
            self._applied,
            self._state_of,
            self._stopped,
            SMALL_REPLAY_BYTES if options.small else REPLAY_BYTES_MAX,
        )
        for group in range(options.groups):
            self._open(group)

    def _bootstrap(self, store: Store, disk: FileDisk, groups: int) -> None:
        """Begin all groups, durably, before any other node hears of this one."""
        for group in range(groups):
            bootstrap(store.create(group), Configuration(self._voters))
        commit = store.take_commit()
        assert commit is not None, "a new store has room for this"
        commit.perform(disk)
        store.committed(commit)

    def _open(self, group: int) -> None:
        """Run a group. One that is not there though others are was lost with a part of the journal."""
        self.driver.engine.open(group, preferred=self._voters[group % len(self._voters)])
        self._restore(group)

    async def run(self, ending: asyncio.Event) -> None:
        """Serve until the end."""
        loop = asyncio.get_running_loop()
        await self.links.listen(HOST, self._peers[self.node])
        for node, port in self._peers.items():
            if node != self.node:
                self.links.set_peer(node, HOST, port)
        self.driver.start()
        server = await loop.create_server(lambda: Client(self), HOST, self._client_port)
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await ending.wait()
        server.close()
        await self.driver.close()
        await self.links.close()

    def status(self) -> dict[str, Any]:
        """What tests and benchmarks want to know."""
        driver = self.driver
        return {
            "node": self.node,
            "boot": self.host.boot,
            "stopped": driver.engine.stopped,
            "broken": {str(group): str(error) for group, error in self.host.broken.items()},
            "notes": driver.engine.store.notes,
            "cpu_s": time.process_time(),
            "turns": driver.engine.turns,
            "commits": driver.journal.commits,
            "dropped": self.links.dropped,
            "replay_bytes": driver.engine.replay.bytes,
            "groups": [self._group_status(group) for group in sorted(self.host.groups)],
        }

    def _group_status(self, group: int) -> dict[str, Any]:
        state = self.host.groups[group].state
        return {
            "role": ROLE_NAMES[state.role],
            "leader": state.leader,
            "term": state.term,
            "commit": state.commit,
            "applied": state.applied,
            "last": state.log.last_index,
            "health": HEALTH_NAMES[state.health],
            "quiet": state.quiet,
        }

    def _up(self, peer: int, info: PeerInfo) -> None:
        """Consensus hears by ``_writable`` whom it can talk to."""

    def _down(self, peer: int) -> None:
        """The same."""

    def _receive(self, peer: int, frame: bytes) -> None:
        self.driver.receive(peer, frame)

    def _writable(self, peer: int, is_writable: bool) -> None:
        self.driver.writable(peer, is_writable)

    def _applied(self, group: int, ready: Ready) -> None:
        """There is no state but how far the log reaches."""
        if ready.restores:
            self._restore(group)
        if ready.committed:
            self.ends[group] = ready.committed[-1].next_offset

    def _state_of(self, group: int) -> bytes:
        return STATE.pack(self.ends.get(group, 0))

    def _restore(self, group: int) -> None:
        content = self.driver.engine.replicas[group].checkpoints.content()
        if content is not None:
            self.ends[group] = STATE.unpack(content.state)[0]

    def _stopped(self, reason: str) -> None:
        say(reason)
        for kind, fields in self.driver.engine.events:
            say(f"{kind} {fields}")


def say(text: str) -> None:
    """Write a line to this process's log."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m flockmq.testing.processes.server", description="A bare node.")
    parser.add_argument("--node", type=int, required=True, help="its number, from 1 on")
    parser.add_argument("--peers", required=True, help="number:port of all nodes, with commas; links between nodes")
    parser.add_argument("--client-port", type=int, required=True, help="where clients call")
    parser.add_argument("--data", required=True, help="folder of its store")
    parser.add_argument("--groups", type=int, default=6, help="how many groups there are (default 6)")
    parser.add_argument("--small", action="store_true", help="small files and windows, quick elections")
    return parser.parse_args(words)


async def serve(options: argparse.Namespace) -> None:
    """Run a node until it is told to stop, or its starter is gone."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_reader(sys.stdin.fileno(), ending.set)
    await Server(options).run(ending)


if __name__ == "__main__":
    uvloop.run(serve(parse()))
