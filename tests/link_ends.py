"""Ends of links for tests: nodes that are nothing but links, on loopback, with all that they heard."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvloop

from callee import serving
from flockmq.drivers.links import LinkIdentity, Links, LinkSettings, PeerInfo
from flockmq.errors import FlockError
from flockmq.security.link_tls import LinkTls, LinkTlsSettings, is_loopback

COOKIE = b"0123456789abcdef0123456789abcdef"
OTHER_COOKIE = COOKIE[::-1]
SCENARIO_S_MAX = 60
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
Run = Callable[[Coroutine[Any, Any, None]], None]


def runner(loop: str) -> Run:
    """Runs a coroutine to its end on this kind of loop; what the loop complains of is a failure, too."""

    def run_one(scenario: Coroutine[Any, Any, None]) -> None:
        complaints: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[loop]) as one:
            one.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
            one.run(asyncio.wait_for(scenario, SCENARIO_S_MAX))
        assert not complaints, complaints

    return run_one


async def until(condition: Callable[[], bool]) -> None:
    """Come back when the condition holds; the test's time limit is the end of waiting."""
    while not condition():  # noqa: ASYNC110  (conditions of other people's objects have no event)
        await asyncio.sleep(0.002)


class End:
    """One node's end of its links."""

    def __init__(
        self,
        node: int,
        settings: LinkSettings | None = None,
        *,
        cookie: bytes = COOKIE,
        boot: int = 1,
        cluster_id: int = 0,
        tls: LinkTlsSettings | None = None,
    ) -> None:
        self.node = node
        self.heard: list[tuple[int, bytes]] = []
        self.told: list[tuple[str, int]] = []
        """up, down, writable, full: as they were told."""
        self.infos: dict[int, PeerInfo] = {}
        identity = LinkIdentity(
            node_id=node, boot=boot, cookie=cookie, name=f"n{node}@here", cluster_id=cluster_id, version="9.9"
        )
        self.links = Links(
            identity, self._on_up, self._on_down, self._on_frame, self._on_writable, random.Random(node), settings,
            LinkTls(tls, cookie, node) if tls is not None else None,
        )  # fmt: skip
        self.port = 0

    def _on_up(self, peer: int, info: PeerInfo) -> None:
        self.infos[peer] = info
        self.told.append(("up", peer))

    def _on_down(self, peer: int) -> None:
        self.told.append(("down", peer))

    def _on_frame(self, peer: int, frame: bytes) -> None:
        if frame == b"nonsense":
            raise FlockError("This frame can't be read.")
        if frame == b"bug":
            raise KeyError("a mistake of ours")
        self.heard.append((peer, frame))

    def _on_writable(self, peer: int, is_writable: bool) -> None:
        self.told.append(("writable" if is_writable else "full", peer))

    def meet(self, other: End, host: str = "127.0.0.1") -> None:
        self.links.set_peer(other.node, host, other.port)

    def sees(self, *peers: int) -> bool:
        return sorted(self.links.connected()) == sorted(peers)

    def reasons(self) -> list[str]:
        """Why somebody was refused, since this was last asked."""
        return [str(event.fields["reason"]) for event in self.links.events.take() if event.kind == "link_refused"]


@asynccontextmanager
async def ends(*nodes: int, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[list[End]]:
    """Nodes that listen."""
    made = [End(node, **options) for node in nodes]
    async with listening(*made, host=host):
        yield made


@asynccontextmanager
async def listening(*made: End, host: str = "127.0.0.1") -> AsyncIterator[None]:
    for end in made:
        end.port = await end.links.listen(host)
    try:
        yield
    finally:
        for end in made:
            await end.links.close()
            assert end.links.connected() == []
            assert end.links.unproven == 0


async def heard_after(sender: End, receiver: End, frame: bytes) -> list[bytes]:
    """Send a frame until it arrives; what else arrived from this sender."""

    def arrived() -> bool:
        sender.links.send(receiver.node, frame)
        return (sender.node, frame) in receiver.heard

    await until(arrived)
    return [one for peer, one in receiver.heard if peer == sender.node and one != frame]


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def own_address() -> str:
    """An address of this machine that is not loopback, empty when there is none. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        found = str(one.getsockname()[0])
    return "" if is_loopback(found) else found


class Relay:
    """Sits between two nodes: passes bytes on, keeps them, or stands still."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.by_caller: list[bytes] = []
        """What each caller said, one entry a connection."""
        self.by_callee: list[bytes] = []
        self.passes = True
        """False: whatever comes is swallowed, both ways; connections stay."""
        self._exit = AsyncExitStack()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Relay:
        self.port = await self._exit.enter_async_context(serving(self._serve))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await self._exit.aclose()

    async def ended(self) -> None:
        """Wait until one side of the last connection is gone, and the other does not know."""
        await until(self._writers[-1].transport.is_closing)

    def cut(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, back]
        number = len(self.by_caller)
        self.by_caller.append(b"")
        self.by_callee.append(b"")
        try:
            await asyncio.gather(
                self._pass(reader, writer, back, self.by_caller, number),
                self._pass(there, back, writer, self.by_callee, number),
            )
        finally:
            back.transport.abort()

    async def _pass(
        self,
        source: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
        sink: asyncio.StreamWriter,
        kept: list[bytes],
        number: int,
    ) -> None:
        try:
            while data := await source.read(65_536):
                kept[number] += data
                if self.passes:
                    if sink.transport.is_closing():  # as a machine does that knows nothing of such a connection
                        answers.transport.abort()
                        return
                    sink.write(data)
        except ConnectionError:
            pass
        if self.passes:
            sink.transport.abort()
        else:
            answers.transport.abort()
