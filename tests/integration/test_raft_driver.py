"""Whole nodes, without MQTT: driver, links, journal and host of three nodes on one event loop, with real files."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flockmq.drivers.boot import next_boot
from flockmq.drivers.clock import now_ms
from flockmq.drivers.direct import DirectFile
from flockmq.drivers.disk import FileDisk
from flockmq.drivers.links import LinkIdentity, Links, PeerInfo
from flockmq.errors import FlockError
from flockmq.log.batch import BatchView
from flockmq.log.errors import DamageError
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.raft.appends import COMMITTED, REFUSED, UNKNOWN, OpenBatch, Outcome
from flockmq.raft.codec import encode_frame
from flockmq.raft.configuration import Configuration
from flockmq.raft.host import RaftHost
from flockmq.raft.messages import Append, Message
from flockmq.raft.ready import Ready
from flockmq.raft.replicas import bootstrap
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import LEADER
from flockmq.testing.processes.driver import RaftDriver
from integration.support.node import Run, until

STORE = StoreSettings(journal_bytes=1 << 22, commit_bytes=1 << 20)
QUICK = RaftSettings(tick_ms=20, heartbeat_ms=60, election_ms=300, quiet_after_ms=200)
GROUPS = (0, 1)
NODES = (1, 2, 3)


class FailingDisk(FileDisk):
    """Fails on demand."""

    fails = False

    def following(self, path: str, position: int) -> DirectFile | None:
        return None if self.fails else super().following(path, position)

    def write_through(self, path: str, position: int, data: bytes) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        super().write_through(path, position, data)


class Node:
    """One node, as a server would put it together."""

    def __init__(self, number: int, folder: Path, replay_bytes_max: int) -> None:
        self.number = number
        rng = random.Random(number)
        self.disk = FailingDisk(folder)
        store = open_store(self.disk, STORE, rng)
        if not store.groups:
            for group in GROUPS:
                bootstrap(store.create(group), Configuration(NODES))
        boot = next_boot(folder, 1)
        self.host = RaftHost(number, boot, QUICK, rng, now_ms())
        identity = LinkIdentity(node_id=number, boot=boot, cookie=b"the cookie of these tests")
        self.links = Links(identity, self._up, self._down, self._receive, self._writable, rng)
        self.driver = RaftDriver(
            self.host, store, self.disk, self.links, self._applied, self._state_of, self._stopped, replay_bytes_max
        )
        self.payloads: dict[int, list[bytes]] = {group: [] for group in GROUPS}
        for group in GROUPS:
            replica = self.driver.engine.open(group, preferred=1)
            self.payloads[group] = [one for one in replica.state.split(b"\n") if one]
        self.applied_again = 0
        self.reasons: list[str] = []
        self.port = 0

    def _up(self, peer: int, info: PeerInfo) -> None:
        """Consensus hears by ``_writable`` whom it can talk to."""

    def _down(self, peer: int) -> None:
        """The same."""

    def _receive(self, peer: int, frame: bytes) -> None:
        self.driver.receive(peer, frame)

    def _writable(self, peer: int, is_writable: bool) -> None:
        self.driver.writable(peer, is_writable)

    def _applied(self, group: int, ready: Ready) -> None:
        for entry in ready.committed:
            self.applied_again += 1
            self.payloads[group] += (
                [record.payload for record in BatchView(entry.data).records()] if entry.count else []
            )

    def _state_of(self, group: int) -> bytes:
        return b"\n".join(self.payloads[group])

    def _stopped(self, reason: str) -> None:
        self.reasons.append(reason)

    def leads(self, group: int) -> bool:
        return self.host.groups[group].state.role == LEADER

    async def listen(self, port: int = 0) -> None:
        self.port = await self.links.listen(port=port)

    def meet(self, others: list[Node]) -> None:
        for other in others:
            if other is not self:
                self.links.set_peer(other.number, "127.0.0.1", other.port)
        self.driver.start()

    async def close(self) -> None:
        await self.driver.close()
        await self.links.close()

    async def append(self, group: int, *payloads: bytes) -> Outcome:
        """Records in one batch; what became of it."""
        waiter = Waiter()
        batch = self.driver.engine.appends.open_batch(group)
        for payload in payloads:
            batch.builder.add(b"topic", b"client", 0, 0, payload)
        batch.waiting[waiter] = len(payloads)
        return await waiter.outcome

    async def read(self, group: int) -> bool:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.driver.engine.read(group, answer.set_result, now_ms())
        return await answer


class Waiter:
    def __init__(self) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        assert batch.waiting[self] == count
        self.outcome.set_result(outcome)


@asynccontextmanager
async def cluster(folder: Path, replay_bytes_max: int = 1 << 25) -> AsyncIterator[list[Node]]:
    """Three nodes; the first one leads everything."""
    nodes = [Node(number, folder / str(number), replay_bytes_max) for number in NODES]
    for node in nodes:
        await node.listen()
    for node in nodes:
        node.meet(nodes)
    try:
        await until(lambda: all(nodes[0].leads(group) for group in GROUPS))
        yield nodes
    finally:
        for node in nodes:
            await node.close()


def test_records_of_a_turn_share_an_entry_and_are_applied_everywhere(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            before = nodes[0].host.groups[0].state.log.last_index
            results = await asyncio.gather(*(nodes[0].append(0, b"%d" % number, b"more") for number in range(10)))
            assert {outcome.kind for outcome in results} == {COMMITTED}
            assert {outcome.offset for outcome in results} == {0}, "the batch is theirs together"
            assert nodes[0].host.groups[0].state.log.last_index == before + 1
            expected = [word for number in range(10) for word in (b"%d" % number, b"more")]
            await until(lambda: all(node.payloads[0] == expected for node in nodes))

    run(scenario())


def test_any_node_takes_records_and_the_leader_gets_them(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            for number, node in enumerate(nodes):
                outcome = await node.append(1, b"from %d" % node.number)
                assert (outcome.kind, outcome.offset) == (COMMITTED, number)
            await until(lambda: all(node.payloads[1] == [b"from 1", b"from 2", b"from 3"] for node in nodes))

    run(scenario())


def test_a_read_at_the_leader_sees_everything_others_send_away(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            assert (await nodes[2].append(0, b"seen")).kind == COMMITTED
            assert await nodes[0].read(0)
            assert nodes[0].payloads[0] == [b"seen"]
            assert not await nodes[1].read(0)
            assert not await nodes[0].read(99)

    run(scenario())


def test_a_failed_disk_stops_the_node_and_only_that(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            first, second, third = nodes
            assert (await first.append(0, b"before")).kind == COMMITTED
            first.disk.fails = True
            lost = await first.append(0, b"during")
            assert lost.kind == UNKNOWN, "the others may have it"
            assert "The disk failed" in first.reasons[0]
            with pytest.raises(FlockError, match="no more"):
                first.driver.engine.appends.open_batch(0)
            assert not await first.read(0)
            await until(lambda: second.leads(0) or third.leads(0))
            assert (await second.append(0, b"after")).kind == COMMITTED
            await until(lambda: second.payloads[0][-1] == b"after")
            assert second.payloads[0] in ([b"before", b"after"], [b"before", b"during", b"after"])

    run(scenario())


def test_a_group_that_can_not_go_on_leaves_the_others_alone(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            nodes[0].host.break_group(0, DamageError("Entry 7 can't be read."))
            await until(lambda: nodes[1].leads(0) or nodes[2].leads(0))
            assert (await nodes[0].append(0, b"forwarded")).kind == COMMITTED
            assert (await nodes[0].append(1, b"unharmed")).kind == COMMITTED
            expected = ("group_stopped", {"group": 0, "reason": "Entry 7 can't be read."})
            assert nodes[0].driver.engine.events == [expected]
            assert nodes[0].reasons == []

    run(scenario())


def test_a_broken_rule_of_raft_is_an_alarm_and_stops_the_replica(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            assert (await nodes[0].append(0, b"before")).kind == COMMITTED
            leader = next(node for node in nodes if node.leads(0))
            me, term = leader.host.node_id, leader.host.groups[0].state.term
            other = next(node.host for node in nodes if node is not leader)
            forged: list[Message] = [Append(0, other.node_id, me, term, 0, 0, [], 0, 0, 0)]
            frame = encode_frame(other.node_id, other.boot, me, leader.host.boot, 99_999, forged)
            leader.driver.engine.receive(frame)
            await until(lambda: bool(leader.driver.engine.events))
            [(kind, fields)] = leader.driver.engine.events
            assert (kind, fields["group"]) == ("safety_broken", 0)
            assert "Election safety is broken" in str(fields["reason"])
            others = [node for node in nodes if node is not leader]
            await until(lambda: any(node.leads(0) for node in others))
            assert not leader.driver.engine.is_leader(0)

    run(scenario())


def test_a_restart_begins_with_the_checkpoint(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, replay_bytes_max=20_000) as nodes:
            for number in range(100):
                assert (await nodes[0].append(0, b"%d" % number)).kind == COMMITTED
            await until(lambda: all(len(node.payloads[0]) == 100 for node in nodes))
            await until(lambda: nodes[2].driver.engine.replay.bytes <= 20_000)
            port = nodes[2].port
            await nodes[2].close()
            again = nodes[2] = Node(3, tmp_path / "3", 20_000)
            assert again.payloads[0], "there was a checkpoint"
            await again.listen(port)
            again.meet(nodes)
            await until(lambda: len(again.payloads[0]) == 100)
            assert again.payloads[0] == [b"%d" % number for number in range(100)]
            assert again.applied_again < 100

    run(scenario())


def test_what_waits_when_a_node_stops_is_told_so(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as nodes:
            await nodes[1].close()
            await nodes[2].close()
            stuck = asyncio.create_task(nodes[0].append(0, b"without a majority"))
            await until(lambda: nodes[0].host.groups[0].state.log.last_index > nodes[0].host.groups[0].state.commit)
            opened, _ = await asyncio.gather(nodes[0].append(1, b"never sent"), nodes[0].close())
            assert (await stuck).kind == UNKNOWN
            assert opened.kind == REFUSED

    run(scenario())
