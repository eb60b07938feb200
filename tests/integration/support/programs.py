"""Other people's servers and network namespaces for tests: on free loopback ports, ended by their process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from flockmq.testing.ports import free_port

WAIT_S = 30
_names = count(1)


def need(program: str) -> str:
    """Path of a program that CI installs; on other machines its absence skips the test, and says so."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is missing; .ci/run installs it")
        pytest.skip(f"{program} is not installed")
    return found


class Server:
    """A program that serves a port; its output is in a file, for when it does not."""

    def __init__(self, folder: Path, command: list[str], port: int) -> None:
        self.command = command
        self.port = port
        self.output = folder / "output"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until the port is served."""
        with self.output.open("ab") as file:
            self.process = subprocess.Popen(self.command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        end = time.monotonic() + WAIT_S
        while not self.serves():
            assert self.process.poll() is None, f"{self.command[0]} ended: {self.output.read_text()[-2000:]}"
            assert time.monotonic() < end, f"{self.command[0]} does not serve: {self.output.read_text()[-2000:]}"
            time.sleep(0.02)

    def serves(self) -> bool:
        """Whether somebody accepts connections there."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        """End it; nothing when it has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def etcd(folder: Path, *arguments: str, scheme: str = "http") -> Iterator[Server]:
    """A real etcd of one member."""
    program = need("etcd")
    for attempt in range(5):
        port, peer_port = free_port(), free_port()
        client, peer = f"{scheme}://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        server = Server(
            folder,
            [
                *(program, "--data-dir", str(folder / f"data{attempt}"), "--name", "default"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}"),
                *("--heartbeat-interval", "20", "--election-timeout", "200", *arguments),
            ],
            port,
        )
        try:
            server.start()
        except AssertionError as error:  # somebody took one of the ports meanwhile
            server.stop()
            if "address already in use" not in str(error) or attempt == 4:
                raise
            continue
        try:
            yield server
        finally:
            server.stop()
        return


@contextmanager
def dnsmasq(folder: Path, hosts: Path, *arguments: str) -> Iterator[Server]:
    """A real DNS server that answers from a hosts file, which it reads again on SIGHUP."""
    program = need("dnsmasq")
    port = free_port()
    server = Server(
        folder,
        [
            *(program, "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--no-resolv"),
            *("--no-hosts", "--local-service", "--listen-address=127.0.0.1", "--bind-interfaces"),
            *(f"--port={port}", f"--addn-hosts={hosts}", "--local=/test/", "--user=", "--group=", *arguments),
            f"--pid-file={folder / 'pid'}",  # by default all that run on a machine share one
        ],
        port,
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()


def run_ip(*arguments: str) -> None:
    """One `ip` command."""
    done = subprocess.run([need("ip"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextmanager
def network(hosts: int) -> Iterator[list[str]]:
    """So many network namespaces, each with an ``eth0``, on one bridge in a namespace of its own; needs root."""
    need("ip")
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("network namespaces need root")
        pytest.skip("network namespaces need root")
    base = f"flock{os.getpid()}x{next(_names)}"
    names = [f"{base}n{number}" for number in range(hosts)]
    switch = f"{base}s"
    made: list[str] = []
    try:
        for name in [switch, *names]:
            run_ip("netns", "add", name)
            made.append(name)
            run_ip("-n", name, "link", "set", "lo", "up")
        run_ip("-n", switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        run_ip("-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(names):
            run_ip("-n", switch, "link", "add", f"p{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run_ip("-n", switch, "link", "set", f"p{number}", "master", "br0", "up")
            run_ip("-n", name, "addr", "add", f"10.9.0.{number + 1}/24", "dev", "eth0")
            run_ip("-n", name, "addr", "add", f"fd09::{number + 1}/64", "dev", "eth0", "nodad")
            run_ip("-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for name in made:
            run_ip("netns", "del", name)


def plug(names: list[str], number: int, *, into: bool) -> None:
    """Pull a host's cable out of the switch, or put it back."""
    switch = f"{names[0].rpartition('n')[0]}s"
    run_ip("-n", switch, "link", "set", f"p{number}", "up" if into else "down")


def python_in(namespace: str, *arguments: str) -> list[str]:
    """The command that runs this Python in a network namespace."""
    return [need("ip"), "netns", "exec", namespace, sys.executable, *arguments]
