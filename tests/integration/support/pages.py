"""Runs the commands of a page of the documentation as its reader would, in a machine of its own.

```
 ```sh blocks, in order ----> bash, in a network namespace with the usual ports free, in a home of its own
 flockmq start, sub -c none-> "terminals": they stay, and the next block goes on once they serve
 "Stop the broker with Ctrl-C", "Stop the subscriber with Ctrl-C", "Stop both with Ctrl-C" in the text ---> SIGINT
```
Lines that install are left out; `flockmq` is this one. Passwords that are asked for are ``PASSWORD``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.support.process import environment
from integration.support.programs import need, network

ROOT = Path(__file__).parents[3]
PASSWORD = "wonderland-7"
BLOCK_S_MAX = 90
READY = '"event":"ready"'
_PARTS = re.compile(r"^```sh\n(?P<shell>.*?)^```$|^```\w*\n.*?^```$", re.DOTALL | re.MULTILINE)
_STOP = re.compile(r"\bStop (the broker|the subscriber|both) with Ctrl-C")
_INSTALLS = re.compile(r"^(pip install|python3 -m venv|git clone|make) .*\n", re.MULTILINE)
_STAYS = re.compile(r"^(?:\w+=\S+ (?:\\\n)?)* *flockmq (start|sub)\b(?!.* -c \d)(?!.*&).*$", re.MULTILINE)
_SHIM = """#!/bin/sh
case " $* " in
*" --stdin "*) exec {python} -m flockmq "$@" ;;
*" --username "*) FLOCKMQ_PASSWORD={password} exec {python} -m flockmq "$@" ;;
*) exec {python} -m flockmq "$@" < {answers} ;;
esac
"""


class Terminal:
    """A command that stays in the foreground of a terminal until Ctrl-C."""

    def __init__(self, kind: str, process: subprocess.Popen[bytes], output: Path) -> None:
        self.kind = kind
        self.process = process
        self.output = output

    def ctrl_c(self) -> None:
        """What a terminal does: the signal goes to all processes in it."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(30)


class Reader:
    """Somebody who reads pages and types what they say. ``files`` is what stands for /etc/flockmq."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self._enter = [need("ip"), "netns", "exec", namespace]
        self.folder = folder
        self.files = folder / "etc"
        self.said = ""
        """All that commands said so far."""
        self._terminals: list[Terminal] = []
        programs = folder / "bin"
        for made in (self.files, programs, folder / "work"):
            made.mkdir()
        answers = folder / "answers"
        answers.write_text(f"{PASSWORD}\n" * 2)
        shim = programs / "flockmq"
        shim.write_text(_SHIM.format(python=sys.executable, password=PASSWORD, answers=answers))
        shim.chmod(0o755)
        python = programs / "python3"  # as in the virtual environment that FlockMQ is installed in
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        self._environment = environment(folder, PATH=f"{programs}:{os.environ['PATH']}", COLUMNS="120")
        del self._environment["XDG_DATA_HOME"], self._environment["XDG_CONFIG_HOME"]  # pages say ~/.local, ~/.config

    def read(self, text: str) -> None:
        """Do all that a text says."""
        at = 0
        for part in _PARTS.finditer(text):
            self._heed(text[at : part.start()])
            at = part.end()
            if part["shell"]:
                self.type(part["shell"])
        self._heed(text[at:])

    def type(self, block: str) -> str:
        """Type a block; what it said. Its last command may be one that stays."""
        block = _INSTALLS.sub("", block).replace("/etc/flockmq", str(self.files))
        stays = _STAYS.search(block)
        before = block[: stays.start()] if stays else block
        said = self._run(before) if before.strip() else ""
        if stays:
            assert not block[stays.end() :].strip(), f"a reader can't type on after {stays[0]}"
            self._open(stays[1], stays[0])
        return said

    def stop(self, kind: str) -> None:
        """Ctrl-C in all terminals with that command."""
        for terminal in [one for one in self._terminals if one.kind == kind]:
            terminal.ctrl_c()
            self._terminals.remove(terminal)

    def leave(self) -> None:
        """End all that still runs in the machine."""
        for terminal in self._terminals:
            terminal.process.kill()
            terminal.process.wait()
        name = self._enter[-1]
        pids = subprocess.run([need("ip"), "netns", "pids", name], capture_output=True, text=True, check=True).stdout
        for pid in pids.split():
            os.kill(int(pid), signal.SIGKILL)

    def _heed(self, prose: str) -> None:
        for what in _STOP.findall(" ".join(prose.split())):
            self.stop("sub" if what == "the subscriber" else "start")

    def _command(self, script: str) -> list[str]:
        return [*self._enter, "bash", "-e", "-c", script]

    def _run(self, script: str) -> str:
        output = self.folder / "output"
        with output.open("wb") as file:  # no pipe: what runs on in the background would keep it open
            done = subprocess.run(
                self._command(script),
                cwd=self.folder / "work",
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=BLOCK_S_MAX,
                start_new_session=True,
                check=False,
            )
        said = output.read_text()
        assert done.returncode == 0, f"{script}\n----\n{said}"
        self.said += said
        return said

    def _open(self, kind: str, command: str) -> None:
        output = self.folder / f"terminal-{time.monotonic_ns()}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._command(f"exec env {command}"),
                cwd=self.folder / "work",
                env=self._environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        terminal = Terminal(kind, process, output)
        self._terminals.append(terminal)
        until = time.monotonic() + BLOCK_S_MAX
        while not (READY in output.read_text() if kind == "start" else "#" in self._run("flockmq route list")):
            assert process.poll() is None, f"{command}\n----\n{output.read_text()}"
            assert time.monotonic() < until, f"{command}\n----\n{output.read_text()}"
            time.sleep(0.05)


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    """A reader with a machine."""
    with network(1) as (namespace,):
        one = Reader(namespace, folder)
        try:
            yield one
        finally:
            one.leave()


def page(name: str) -> str:
    """The text of a page, by its path in the repository."""
    return (ROOT / name).read_text("utf-8")


def section(text: str, title: str) -> str:
    """A part of a page: from a heading to the next of its level."""
    level = title.partition(" ")[0]
    begin = text.index(f"{title}\n")
    end = text.find(f"\n{level} ", begin)
    return text[begin : end if end > 0 else None]
