from __future__ import annotations

import asyncio
from itertools import count

from flockmq.discovery.poll import Poller
from flockmq.discovery.ports import DiscoveryError
from flockmq.peering.contact import Contact

ME, OTHER = Contact("me", 1), Contact("other", 1)


class Scripted:
    """Answers as it is told; an exception in the list is raised."""

    lists_peers = True

    def __init__(self, starts: list[Exception | None], finds: list[Exception | list[Contact]]) -> None:
        self.starts = starts
        self.finds = finds
        self.done: list[str] = []

    async def start(self, me: Contact) -> None:
        self.done.append("start")
        failure = self.starts.pop(0)
        if failure is not None:
            raise failure

    async def find(self) -> list[Contact]:
        self.done.append("find")
        found = self.finds.pop(0) if self.finds else []
        if isinstance(found, Exception):
            raise found
        return found

    async def stop(self) -> None:
        self.done.append("stop")


class Asker:
    def __init__(self, discovery: Scripted, searching_ms: int = 1, settled_ms: int = 1) -> None:
        self.listings: list[list[Contact]] = []
        self.begun: list[int] = []
        self.troubles: list[str] = []
        self.news = asyncio.Event()
        ticks = count()
        self.poller = Poller(
            discovery,
            ME,
            self.listed,
            self.troubles.append,
            lambda: next(ticks),
            searching_ms=searching_ms,
            settled_ms=settled_ms,
        )

    def listed(self, contacts: list[Contact], begun: int) -> None:
        self.listings.append(contacts)
        self.begun.append(begun)
        self.news.set()

    async def next(self) -> None:
        await self.news.wait()
        self.news.clear()


async def test_nobody_is_listed_before_this_node_is_registered() -> None:
    down = DiscoveryError("It is down.")
    discovery = Scripted([down, down, None], [[OTHER]])
    asker = Asker(discovery)
    asker.poller.start()
    await asker.next()
    await asker.poller.stop()
    assert discovery.done[:4] == ["start", "start", "start", "find"]
    assert discovery.done[-1] == "stop"
    assert asker.troubles == ["It is down."]  # said once
    assert (asker.listings[0], asker.begun[0]) == ([OTHER], 0)


async def test_trouble_is_told_again_when_it_is_new() -> None:
    down, other = DiscoveryError("It is down."), ValueError("a bug")
    discovery = Scripted([None], [down, down, other, [OTHER], down, [OTHER]])
    asker = Asker(discovery)
    asker.poller.start()
    await asker.next()
    await asker.next()
    await asker.poller.stop()
    assert asker.troubles[0] == asker.troubles[2] == "It is down."
    assert "ValueError: a bug" in asker.troubles[1]
    assert asker.listings[:2] == [[OTHER], [OTHER]]


async def test_settled_nodes_ask_rarely_and_hurry_when_told() -> None:
    asker = Asker(Scripted([None], []), settled_ms=3_600_000)
    asker.poller.settled = True
    asker.poller.start()
    await asker.next()
    asker.poller.hurry()
    await asker.next()
    assert len(asker.listings) == 2
    await asker.poller.stop()


async def test_stopping_without_starting() -> None:
    discovery = Scripted([], [])
    await Asker(discovery).poller.stop()
    assert discovery.done == ["stop"]
