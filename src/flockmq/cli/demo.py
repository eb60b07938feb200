"""``flockmq demo``: a real broker, a simulated fleet, and what happens between them, live in the terminal.

```
 this process --- starts ---> broker   (flockmq start --allow-anonymous, on loopback)
      |    `----- starts ---> fleet    (200 devices and a control room) --- MQTT ---> broker
      `<--- a report a second ----'
```
It ends with a summary, and with exit code 0 only when every promise was kept: no message of QoS 1 or 2 lost, none
of QoS 2 doubled, every command answered, every will published, every retained status found.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.output import JsonOption, print_json
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.client.load.fleet.report import Plan, Report
    from flockmq.client.load.local import LocalBroker

PORTS: Final = {"--mqtt-port": 1883, "--ws-port": 8083, "--api-port": 18083}

Seconds = Annotated[float, typer.Option("--seconds", "-d", min=1, help="How long to run; Ctrl-C ends it earlier.")]
Devices = Annotated[int, typer.Option("--devices", "-n", min=1, max=5_000, help="Devices in the fleet.")]
Rate = Annotated[float, typer.Option("--rate", "-r", min=1, help="Messages a second of the whole fleet, about.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(*, seconds: Seconds = 30.0, devices: Devices = 200, rate: Rate = 1_000.0, as_json: JsonOption = False) -> None:
    """Start a broker and a simulated fleet on this machine, and watch them."""
    from flockmq.cli.demo_view import make_view
    from flockmq.client.load.fleet.report import Plan

    with _broker() as broker:
        plan = Plan(port=broker.ports["tcp"], devices=devices, seconds=seconds, rate=rate)
        view = make_view(plan, broker.ports, sys.stderr if as_json else sys.stdout)
        with view:
            last = None
            for report in _reports(plan):
                last = report
                view.show(report)
        if last is None or not last.last:
            raise FlockError(f"The fleet ended without a last report. The broker said:\n{broker.log_tail()}")
        if last.error:
            raise FlockError(f"The fleet gave up: {last.error}")
        code = broker.close()
    if as_json:
        print_json(last)
    else:
        view.summarize(last, broker_stopped=code == 0)
    if not last.flawless or code != 0:
        raise typer.Exit(1)


def _broker() -> LocalBroker:
    """A broker at the usual ports where they are free."""
    from flockmq.client.load.local import LocalBroker, port_or_zero

    arguments = ["--allow-anonymous", "--log-level=warning", "--set=mqtt.sys_interval_ms=1000"]
    usual = [f"{flag}={port_or_zero(port)}" for flag, port in PORTS.items()]
    try:
        return LocalBroker([*arguments, *usual]).start()
    except FlockError:  # somebody else may have taken a port in this moment; with free ones it is the broker's fault
        return LocalBroker(arguments).start()


def _reports(plan: Plan) -> Iterator[Report]:
    """Run the fleet; every report it gives. Ctrl-C lets it end early, a second one ends everything."""
    import msgspec

    from flockmq.client.load.fleet.report import Report

    process = subprocess.Popen(
        [sys.executable, "-m", "flockmq.client.load.fleet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None:
        raise FlockError("The fleet has no pipe")
    told = process.stdin
    told.write(msgspec.json.encode(plan) + b"\n")
    told.flush()

    def leave(_number: int, _frame: FrameType | None) -> None:
        if told.closed:
            raise KeyboardInterrupt
        told.close()

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for line in process.stdout:
            yield msgspec.json.decode(line, type=Report)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if not told.closed:
            told.close()
        process.stdout.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
