"""``flockmq demo``: a real cluster, a simulated fleet, and what happens between them, live in the terminal.

```
 this process --- starts ---> three nodes (flockmq start, on loopback), kills one of them, starts it again
      |    `----- starts ---> fleet       (200 devices and a control room) --- MQTT ---> all nodes
      `<--- a report a second ----'
```
What devices measure at QoS 1 and 2 goes into a durable topic of three shards, on all nodes. In the end it is read back
from the second node. Exit code 0 only when every promise was kept: no message of QoS 1 or 2 lost, neither on its way to
subscribers nor in the log, none of QoS 2 doubled, every command answered, every will published, every retained status
found. Commands that waited for a device in the node that is killed are told apart: no other node had them.
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

KILL_AT: Final = 0.35
BACK_AT: Final = 0.65
"""When the last node is killed and when it is started again, as shares of the whole time."""

Seconds = Annotated[float, typer.Option("--seconds", "-d", min=1, help="How long to run; Ctrl-C ends it earlier.")]
Devices = Annotated[int, typer.Option("--devices", "-n", min=1, max=5_000, help="Devices in the fleet.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, max=9, help="Nodes of the cluster.")]
Kill = Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a node on the way, and start it again.")]
Rate = Annotated[float, typer.Option("--rate", "-r", min=1, help="Messages a second of the whole fleet, about.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    *,
    seconds: Seconds = 30.0,
    devices: Devices = 200,
    rate: Rate = 1_000.0,
    nodes: Nodes = 3,
    kill: Kill = True,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster and a simulated fleet on this machine, and watch them lose a node."""
    from flockmq.cli.demo_cluster import TOPIC, DemoCluster
    from flockmq.cli.demo_view import make_view
    from flockmq.client.load.fleet.report import Plan

    with DemoCluster(nodes) as cluster:
        cluster.create_topic()
        plan = Plan(
            ports=cluster.mqtt_ports,
            devices=devices,
            seconds=seconds,
            rate=rate,
            topic=TOPIC,
            api_urls=cluster.api_urls,
            tokens=cluster.tokens(),
        )
        view = make_view(plan, cluster.headline(), sys.stderr if as_json else sys.stdout)
        with view:
            last = None
            for report in _reports(plan):
                last = report
                if kill and nodes > 1 and not report.last:
                    report.events += cluster.go_on(report.seconds / seconds, KILL_AT, BACK_AT)
                view.show(report, cluster.states())
        if last is None or not last.last:
            raise FlockError(f"The fleet ended without a last report. The first node said:\n{cluster.log_tail()}")
        if last.error:
            raise FlockError(f"The fleet gave up: {last.error}")
        orderly = cluster.close()
    if as_json:
        print_json(last)
    else:
        view.summarize(last, broker_stopped=orderly)
    if not last.flawless or not orderly:
        raise typer.Exit(1)


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
