"""``flockmq demo``: a real cluster, a simulated fleet, and what happens between them, live in the terminal.

```
 this process --- starts ---> three nodes (flockmq start, on loopback), kills one of them, starts it again
      |    |----- starts ---> fleet       (200 devices and a control room) --- MQTT ---> all nodes
      |    `----- starts ---> Spark       (rollup, see demo_spark) --- reads ---> the durable topic
      `<--- a report a second ----'
```
What devices measure at QoS 1 and 2 goes into a durable topic of three shards, on all nodes. In the end it is read back
from the second node, and Spark must have counted just that. Exit code 0 only when every promise was kept: no message of
QoS 1 or 2 lost, neither on its way to subscribers nor in the log nor in what Spark computed, none of QoS 2 doubled,
every command answered, every will published, every retained status found. Commands that waited for a device in the node
that is killed are told apart: no other node had them.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from flockmq.cli.output import JsonOption, print_json
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.cli.demo_cluster import DemoCluster
    from flockmq.cli.demo_spark import DemoSpark
    from flockmq.cli.demo_view import View
    from flockmq.client.load.fleet.report import Plan, Report

KILL_AT: Final = 0.35
BACK_AT: Final = 0.65
"""When the last node is killed and when it is started again, as shares of the whole time."""

Seconds = Annotated[float, typer.Option("--seconds", "-d", min=1, help="How long to run; Ctrl-C ends it earlier.")]
Devices = Annotated[int, typer.Option("--devices", "-n", min=1, max=5_000, help="Devices in the fleet.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, max=9, help="Nodes of the cluster.")]
Kill = Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a node on the way, and start it again.")]
Spark = Annotated[bool, typer.Option("--spark/--no-spark", help="Let Spark compute on what is kept, beside it all.")]
Rate = Annotated[float, typer.Option("--rate", "-r", min=1, help="Messages a second of the whole fleet, about.")]


def demo(
    *,
    seconds: Seconds = 30.0,
    devices: Devices = 200,
    rate: Rate = 1_000.0,
    nodes: Nodes = 3,
    kill: Kill = True,
    spark: Spark = True,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster, a simulated fleet and Spark on this machine, and watch them lose a node."""
    from flockmq.cli.demo_cluster import TOPIC, DemoCluster
    from flockmq.cli.demo_view import make_view
    from flockmq.client.load.fleet.report import Plan

    output = sys.stderr if as_json else sys.stdout
    problem = _no_spark() if spark else ""
    if problem:
        print(problem, file=output)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(DemoCluster(nodes))
        cluster.create_topic()
        beside = stack.enter_context(_start_spark(cluster)) if spark and not problem else None
        plan = Plan(
            ports=cluster.mqtt_ports,
            devices=devices,
            seconds=seconds,
            rate=rate,
            topic=TOPIC,
            api_urls=cluster.api_urls,
            tokens=cluster.tokens(),
        )
        view = make_view(plan, cluster.headline(), output)
        with view:
            last = _watch(plan, cluster, view, beside, kill=kill and nodes > 1)
            if beside is not None and last.flawless:
                _finish_spark(beside, cluster, view)
        orderly = cluster.close()
        result = beside.outcome() if beside is not None and last.flawless else None
    if as_json:
        print_json({**_fields(last), "spark": _fields(result)})
    else:
        view.summarize(last, broker_stopped=orderly, result=result)
    from flockmq.cli.demo_spark_view import is_complete

    if not last.flawless or not orderly or (result is not None and not is_complete(last, result)):
        raise typer.Exit(1)


def _fields(value: object) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _watch(plan: Plan, cluster: DemoCluster, view: View, beside: DemoSpark | None, *, kill: bool) -> Report:
    """Show what the fleet tells until it is done, and kill a node on the way; its last report."""
    last = None
    for report in _reports(plan):
        last = report
        if kill and not report.last:
            report.events += cluster.go_on(report.seconds / plan.seconds, KILL_AT, BACK_AT)
        view.show(report, cluster.states(), beside.line() if beside is not None else "")
    if last is None or not last.last:
        raise FlockError(f"The fleet ended without a last report. The first node said:\n{cluster.log_tail()}")
    if last.error:
        raise FlockError(f"The fleet gave up: {last.error}")
    return last


def _no_spark() -> str:
    from flockmq.cli.demo_spark import why_not

    return why_not()


def _start_spark(cluster: DemoCluster) -> DemoSpark:
    from flockmq.cli.demo_cluster import TOPIC
    from flockmq.cli.demo_spark import DemoSpark

    return DemoSpark(TOPIC, {"server": ",".join(cluster.api_urls), "token": cluster.token})


def _finish_spark(beside: DemoSpark, cluster: DemoCluster, view: View) -> None:
    """Let Spark write its last windows: one more record says that their time is over."""
    from flockmq.cli.demo_spark import CLOSED_AFTER_S, RESULT_S_MAX

    tick_s = time.monotonic() + CLOSED_AFTER_S
    until_s = tick_s + RESULT_S_MAX
    is_told = False
    while not beside.is_over and time.monotonic() < until_s:
        if not is_told and time.monotonic() >= tick_s:
            beside.finish(cluster.tick())
            is_told = True
        view.wait(f"{beside.line()}; its last windows close in a moment")
        time.sleep(0.2)


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
