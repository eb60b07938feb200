"""The standing of this node in its cluster, renewed every second: a probe reads it and asks no other node.

```
 every second   a node without a replica of group 0 asks those that have one which node leads
                a node that is alone calls those it knows of: why do they refuse it?
                was there a leader in the last 3 s? An election is no reason to send clients away
 every 5 s      how much room is on the disk
```
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

from flockmq.admin.readiness import ClusterFacts
from flockmq.drivers.links import HelloError
from flockmq.durable.state.group0 import GROUP
from flockmq.errors import FlockError
from flockmq.gossip.member import CORE, DEAD
from flockmq.wire import hello

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flockmq.peering.contact import Contact
    from flockmq.server.cluster import ClusterService

LOOK_S: Final = 1.0
DISK_S: Final = 5.0
CALL_S: Final = 5.0
"""How often a node that is alone calls others to hear why."""
CALLS_MAX: Final = 3
LEADER_GRACE_S: Final = 3.0
"""An election takes less: a probe that saw each of them would take the node out of service, and back."""
ROOM_BYTES_MIN: Final = 16 * 1024 * 1024
"""With less room than this on the disk the store may stop at any moment."""
_NO_REFUSALS: Final = frozenset({hello.UNREACHABLE, hello.DUPLICATE, hello.CLOSING, hello.SELF})


class Lately:
    """A condition that stays true for ``within_s`` after it was last seen true."""

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._clock = clock
        self._until = clock()

    def was(self, is_so: bool) -> bool:
        """Note whether the condition holds now; returns whether it held within ``within_s``."""
        now = self._clock()
        if is_so:
            self._until = now + self._within_s
        return now < self._until


class Standing:
    """See the module; ``run`` it as a task while the node is in its cluster."""

    def __init__(self, service: ClusterService, contacts: tuple[Contact, ...]) -> None:
        self._service = service
        self._contacts = contacts
        self._has_leader_elsewhere = False
        self._leader = Lately(LEADER_GRACE_S)
        self._refusal = ""
        self._room_problem = ""
        self._call_at = 0.0
        self._disk_at = 0.0

    async def run(self) -> None:
        """Renew the standing, every second."""
        while True:
            try:
                await self._look()
            except (FlockError, OSError) as error:
                self._service.log.event("debug", "standing_unknown", message=str(error))
            await asyncio.sleep(LOOK_S)

    def facts(self) -> ClusterFacts:
        """The standing as of the last look."""
        service = self._service
        node = service.node
        others = [one for one in node.swim.alive() if one.node_id != node.node_id]
        linked = service.linked()
        formation = node.formation
        return ClusterFacts(
            waits_for="" if formation.cluster_id else formation.decision.reason,
            refusal="" if others else self._refusal,
            is_current=service.is_current(),
            has_leader=self._has_leader(),
            away=tuple(
                sorted(one.name for one in node.swim.members.values() if one.state == DEAD and one.role == CORE)
            ),
            store_problem=self._store_problem(),
            unlinked=tuple(
                sorted(one.name for one in others if one.node_id not in linked or not node.maps.is_level(one.node_id))
            ),
        )

    def _has_leader(self) -> bool:
        status = self._service.durable.node.partitions.status(GROUP)
        return self._leader.was(bool(status.leader) if status is not None else self._has_leader_elsewhere)

    def _store_problem(self) -> str:
        service = self._service.durable
        engine = service.node.engine
        if engine.stopped or engine.store.down:
            return f"The store of this node takes no records: {engine.stopped or engine.store.down}"
        return service.trouble or self._room_problem

    async def _look(self) -> None:
        durable = self._service.durable.node
        if durable.partitions.status(GROUP) is None:
            self._has_leader_elsewhere = bool((await self._service.view.durable.deciders()).leader)
        self._has_leader()  # probes may come seldom
        now = time.monotonic()
        if now >= self._disk_at:
            self._disk_at = now + DISK_S
            self._room_problem = await asyncio.to_thread(room_problem, self._service.folder)
        is_alone = len(self._service.node.swim.alive()) < 2
        if not is_alone:
            self._refusal = ""
        elif now >= self._call_at:
            self._call_at = now + CALL_S
            await self._call_others()

    async def _call_others(self) -> None:
        for contact in self._contacts[:CALLS_MAX]:
            try:
                await self._service.links.call(contact.host, contact.port)
            except HelloError as error:
                if error.kind not in _NO_REFUSALS:
                    self._refusal = f"{contact} refuses this node: {error}"
                    return
        self._refusal = ""


def room_problem(folder: Path) -> str:
    """The sentence for a disk without room; empty when there is enough."""
    found = os.statvfs(folder)
    room = found.f_bavail * found.f_frsize
    if room >= ROOM_BYTES_MIN:
        return ""
    return f"The disk of {folder} is full: {room // 1024:,} KiB are left; make room, or give the node a larger disk."
