"""Structured logs: one line an event, JSON or readable, on a thread of its own so that the broker never waits.

```
 broker.take_events() --+
 listeners, server -----+--> Log.event() -- level? rate? room? --> bounded queue --> writer thread --> stream
 asyncio, libraries ----'                          `--> dropped and counted; the count is a line of its own
```
Values that clients chose are escaped, values of fields that name a secret are never written.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Final

from flockmq.server.escape import as_text, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET_WORDS: Final = ("password", "secret", "token", "authorization", "cookie", "credential")
_COLORS: Final = {"debug": "\x1b[2m", "info": "\x1b[36m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_RESET: Final = "\x1b[0m"

Entry = tuple[float, str, str, "Mapping[str, object]"]


def json_line(entry: Entry) -> str:
    """One JSON object, ASCII only: also characters that no JSON reader minds but a terminal might are escaped."""
    seconds, level, event, fields = entry
    record: dict[str, object] = {"time": _moment(seconds), "level": level, "event": event}
    for name, value in _public(fields):
        record[name] = value if isinstance(value, (bool, int, float)) or value is None else _json_value(value)
    return json.dumps(record, separators=(",", ":")).replace("\x7f", "\\u007f")


def console_line(entry: Entry, *, color: bool = False) -> str:
    """``2026-03-01 12:00:00.000 INFO  event name=value name="two words"``."""
    seconds, level, event, fields = entry
    label = f"{level.upper():<7}"
    if color:
        label = f"{_COLORS[level]}{label}{_RESET}"
    parts = [_moment(seconds)[:23].replace("T", " "), label, event]
    parts += [f"{name}={_console_value(value)}" for name, value in _public(fields)]
    return " ".join(parts)


def _public(fields: Mapping[str, object]) -> list[tuple[str, object]]:
    return [
        (name, "(hidden)" if any(word in name for word in _SECRET_WORDS) and not name.endswith("_file") else value)
        for name, value in fields.items()
    ]


def _json_value(value: object) -> object:
    return [as_text(item) for item in value] if isinstance(value, (list, tuple)) else as_text(value)


def _console_value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(_console_value(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = as_text(value)
    if not text or not text.isprintable() or any(character in ' "=\\' for character in text):
        return '"' + printable(text).replace('"', '\\"') + '"'
    return text


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Log:
    """Takes events from anywhere and writes them when it can. ``event`` never blocks and never raises."""

    def __init__(
        self,
        stream: IO[str],
        line: Callable[[Entry], str],
        *,
        level: str = "info",
        queue_events_max: int = 10_000,
        events_per_s_max: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._line = line
        self._least = LEVELS[level]
        self._queue_max = queue_events_max
        self._rate_max = events_per_s_max
        self._clock = clock
        self._queue: deque[Entry] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._second = 0
        self._in_second = 0
        self.dropped = 0
        """Events dropped since the last line that said so."""

    def event(self, level: str, event: str, **fields: object) -> None:
        """Log one event; below the level it costs a comparison."""
        if LEVELS[level] >= self._least:
            self._put((self._clock(), level, event, fields))

    def _put(self, entry: Entry) -> None:
        with self._wake:
            if len(self._queue) >= self._queue_max or not self._within_rate(entry):
                self.dropped += 1
                return
            self._queue.append(entry)
            self._wake.notify()

    def _within_rate(self, entry: Entry) -> bool:
        if not self._rate_max:
            return True
        second = int(entry[0])
        if second != self._second:
            self._second = second
            self._in_second = 0
        self._in_second += 1
        return self._in_second <= self._rate_max or LEVELS[entry[1]] >= LEVELS["warning"]

    def start(self) -> None:
        """Start the writer thread."""
        self._thread = threading.Thread(target=self._write_until_stopped, name="flockmq-log", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Write what is waiting, for at most this long: a reader that hangs must not keep the broker from ending."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _write_until_stopped(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self.dropped and not self._stopping:
                    self._wake.wait()
                entries = list(self._queue)
                self._queue.clear()
                if self.dropped:
                    entries.append((self._clock(), "warning", "log_dropped", {"events": self.dropped}))
                    self.dropped = 0
                stopping = self._stopping
            self._write(entries)
            if stopping:
                return

    def _write(self, entries: list[Entry]) -> None:
        if not entries:
            return
        try:
            self._stream.write("".join(self._line(entry) + "\n" for entry in entries))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the log has no reader any more; the broker goes on


class LogHandler(logging.Handler):
    """Sends what libraries log through ``logging`` into the same stream, one line each, tracebacks escaped."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record of a library."""
        fields: dict[str, object] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = repr(record.exc_info[1])
            frames = traceback.extract_tb(record.exc_info[2])[-5:]
            fields["at"] = [f"{frame.filename}:{frame.lineno}:{frame.name}" for frame in frames]
        self._log.event("error" if record.levelno >= logging.ERROR else "warning", "library", **fields)
