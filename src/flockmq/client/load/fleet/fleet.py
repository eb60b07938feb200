"""Runs a whole fleet against a broker for a while and proves at the end that nothing was lost.

```
 control room first --> devices connect --> measuring, commands, drop-offs --> publishing stops --> what is under way
                                               |  a report every second                            arrives, or is lost
                                                                                  --> the durable topic is read back
```
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from flockmq.client.load.fleet.catalogue import METRICS, machine
from flockmq.client.load.fleet.control import ControlRoom, count_retained
from flockmq.client.load.fleet.device import Device
from flockmq.client.load.fleet.ledger import Ledger
from flockmq.client.load.fleet.read_back import read_back
from flockmq.client.load.fleet.report import Plan, Report
from flockmq.client.load.histogram import Histogram
from flockmq.client.mqtt import Options

REPORT_INTERVAL_S: Final = 1.0
COMMAND_INTERVAL_S: Final = 0.1
DROP_INTERVAL_S: Final = 1.5
CALM_S: Final = 3.0
"""How long before the end the last device drops off: it should be seen coming back."""
SETTLE_S: Final = 10.0
CONNECTING_MAX: Final = 50

Say = Callable[[Report], None]


class Fleet:
    """Devices, control room and ledger."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._rng = random.Random(plan.seed)  # noqa: S311 - a simulation, repeatable on purpose
        self._ledger = Ledger()
        self._options = Options(host=plan.host, port=plan.ports[0], version=5)
        interval_s = plan.devices * len(METRICS) / plan.rate
        self._devices = [
            Device(machine(index, self._rng), self._ledger, self._options, plan.ports, interval_s, plan.seed + index)
            for index in range(plan.devices)
        ]
        self._stop = asyncio.Event()
        self._started = time.monotonic()
        self._all = Histogram()

    def stop(self) -> None:
        """End early, in order."""
        self._stop.set()

    async def run(self) -> Report:
        """The whole story; returns the last report."""
        room = await ControlRoom.open(replace(self._options, client_id="control-room"), self._ledger)
        gate = asyncio.Semaphore(CONNECTING_MAX)
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(room.listen())
            lives = [tasks.create_task(device.run(gate)) for device in self._devices]
            others = [tasks.create_task(work) for work in self._others(room)]
            await self._wait(self._plan.seconds)
            for task in others[1:]:
                task.cancel()
            await self._until_all_are_back()
            retained = await count_retained(
                replace(self._options, client_id="late-comer"), "plant/+/+/+/status", self._plan.devices
            )
            for device in self._devices:
                device.stop()
            await asyncio.gather(*lives)
            await self._settle()
            others[0].cancel()
            await room.close()
            await asyncio.gather(listening, return_exceptions=True)
        self._all.add(room.latency)
        room.latency = self._all
        report = self._report(room, retained=retained, last=True)
        if self._plan.topic:
            confirmed = self._ledger.confirmed()
            report.stored, report.unstored = await asyncio.to_thread(read_back, self._plan, confirmed)
        return report

    def _others(self, room: ControlRoom) -> list[Coroutine[Any, Any, None]]:
        return [self._tell(room), self._command(room), self._trouble()]

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _tell(self, room: ControlRoom) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            self._say(self._report(room))
            self._all.add(room.latency)
            room.latency = Histogram()
            room.topics.clear()
            room.events.clear()

    async def _command(self, room: ControlRoom) -> None:
        """Send commands, also to devices that are away: theirs wait for them."""
        while True:
            await asyncio.sleep(COMMAND_INTERVAL_S)
            device = self._rng.choice(self._devices)
            if device.met:
                await room.command(device, self._rng)

    async def _trouble(self) -> None:
        """Make devices drop off, now and then; at least one, however long they took to come."""
        until = self._started + self._plan.seconds - CALM_S
        has_dropped = False
        while time.monotonic() < until or not has_dropped:
            await asyncio.sleep(DROP_INTERVAL_S)
            online = [device for device in self._devices if device.online]
            if online:
                self._rng.choice(online).drop()
                has_dropped = True

    async def _until_all_are_back(self) -> None:
        await self._until(lambda: all(device.online for device in self._devices))

    async def _settle(self) -> None:
        await self._until(self._ledger.settled)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; give up when nothing has arrived for a while."""
        last, moved = -1, time.monotonic()
        while not condition():
            arrived = sum(self._ledger.received) + self._ledger.answers + self._ledger.wills_seen
            if arrived != last:
                last, moved = arrived, time.monotonic()
            if time.monotonic() - moved > SETTLE_S:
                return
            await asyncio.sleep(0.02)

    def _report(self, room: ControlRoom, *, retained: int = 0, last: bool = False) -> Report:
        ledger = self._ledger
        return Report(
            seconds=time.monotonic() - self._started,
            devices=len(self._devices),
            online=sum(device.online for device in self._devices),
            published=list(ledger.published),
            received=list(ledger.received),
            repeated=list(ledger.repeated),
            latency_us_p50=room.latency.quantile(0.5) / 1_000,
            latency_us_p99=room.latency.quantile(0.99) / 1_000,
            commands=ledger.commands_sent,
            answers=ledger.answers,
            command_us_p50=room.command_latency.quantile(0.5) / 1_000,
            wills_due=ledger.wills_due,
            wills_seen=ledger.wills_seen,
            missing=ledger.missing(),
            per_node=[
                sum(device.online and device.node == node for device in self._devices)
                for node in range(len(self._plan.ports))
            ],
            nodes_lost=ledger.nodes_lost,
            excused=ledger.excused,
            top=room.topics.most_common(5),
            events=list(room.events),
            broker=dict(room.broker),
            retained=retained,
            last=last,
        )
