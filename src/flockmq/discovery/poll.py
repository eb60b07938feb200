"""Asks a discovery again and again: every few seconds until the node belongs to a cluster, then slowly.

```
 start (again until it works) --> find --> on_listing(contacts, begun)   or   on_trouble(sentence), once per sentence
                                   ^----- interval, or `hurry()` -----'
```
A listing is only taken after this node has registered; the time given with it is when it was begun. Both matter to
`peering.formation`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from flockmq.discovery.ports import DiscoveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.discovery.ports import Discovery
    from flockmq.peering.contact import Contact

SEARCHING_MS: Final = 2_000
SETTLED_MS: Final = 30_000


class Poller:
    """Runs one discovery; ``settled`` says that the node belongs to a cluster."""

    def __init__(
        self,
        discovery: Discovery,
        me: Contact,
        on_listing: Callable[[list[Contact], int], None],
        on_trouble: Callable[[str], None],
        now_ms: Callable[[], int],
        *,
        searching_ms: int = SEARCHING_MS,
        settled_ms: int = SETTLED_MS,
    ) -> None:
        self.settled = False
        self._discovery = discovery
        self._me = me
        self._on_listing = on_listing
        self._on_trouble = on_trouble
        self._now_ms = now_ms
        self._searching_ms = searching_ms
        self._settled_ms = settled_ms
        self._trouble = ""
        self._registered = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin in the background."""
        self._task = asyncio.create_task(self._run())

    def hurry(self) -> None:
        """Ask again now; something changed."""
        self._wake.set()

    async def stop(self) -> None:
        """End asking, and deregister."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._discovery.stop()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self._ask()
            interval_ms = self._settled_ms if self.settled and not self._trouble else self._searching_ms
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), interval_ms / 1000)

    async def _ask(self) -> None:
        try:
            if not self._registered:
                await self._discovery.start(self._me)
                self._registered = True
            begun = self._now_ms()
            contacts = await self._discovery.find()
        except DiscoveryError as error:
            self._tell(str(error))
        except Exception as error:
            self._tell(f"The discovery plugin failed with {type(error).__name__}: {error}; please tell its author.")
        else:
            self._trouble = ""
            self._on_listing(contacts, begun)

    def _tell(self, sentence: str) -> None:
        if sentence != self._trouble:
            self._trouble = sentence
            self._on_trouble(sentence)
