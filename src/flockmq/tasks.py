"""Waiting, written top to bottom: generator tasks on a pure scheduler. Time comes in; there is no event loop.

```
 def confirm(self) -> Task[None]:
     while True:
         body = yield from self._calls.ask(self._leader(), META_HEAD, b"")      # a Promise: goes on with its value
         if body is not None:
             self._index = decode_number(body)
             return
         yield Sleep(500)

 tick(now) ----------> sleeps and timeouts that are over --.
 promise.set(value) --> tasks that wait for it ------------+--> ready, in this order --> a step each until none is
```
A ready task runs before the call that made it ready returns, or, when that call came from a task, right after that
task's step. So tasks never run inside each other, and the same calls give the same order of steps.

A task that fails passes its error to the task that waits for it. Without one, ``tick`` or ``set`` raises the error once
all ready tasks had their step: it reaches the place where faults of a tick or of a frame are reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeAlias, TypeVar

from flockmq.errors import FlockError

TASKS_MAX: Final = 100_000
"""More than all bounded flows of a node can start: an error here would end what the caller does."""
VOID_TIMERS: Final = 64
"""Timers of waits that are over are forgotten when they are more than this, and more than half of all."""

T = TypeVar("T")


class Sleep:
    """What a task yields to go on at the first tick after ``ms``."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms


class _Within(Sleep):
    """What ``within`` yields: a promise with a timeout."""

    __slots__ = ("promise",)

    def __init__(self, promise: Promise[Any], ms: int) -> None:
        super().__init__(ms)
        self.promise = promise


class _Then:
    """A plain function that waits for a promise."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self._callback = callback

    def resume(self, promise: Promise[Any]) -> bool:
        if promise.error is not None:
            return False
        self._callback(promise.value)
        return True


class Promise(Generic[T]):
    """A value that comes once. A task waits with ``value = yield from promise``; other code uses ``then``."""

    __slots__ = ("_waiting", "error", "is_set", "value")

    def __init__(self) -> None:
        self.is_set = False
        self.value: Any = None
        self.error: Exception | None = None
        self._waiting: dict[_Then | Running[Any], None] = {}

    def set(self, value: T) -> None:
        """Give the value. A promise that has one already keeps it."""
        if not self.is_set:
            self.value = value
            self._settle()

    def fail(self, error: Exception) -> None:
        """Raise an error in the tasks that wait; raised here when there is no such task."""
        if not self.is_set:
            self.error = error
            if not self._settle():
                raise error

    def then(self, callback: Callable[[T], None]) -> None:
        """Call back with the value; at once when it is there."""
        if not self.is_set:
            self._waiting[_Then(callback)] = None
        elif self.error is None:
            callback(self.value)

    def _settle(self) -> bool:
        self.is_set = True
        waiting, self._waiting = self._waiting, {}
        is_heard = False
        failure: Exception | None = None
        for one in waiting:
            try:
                is_heard = one.resume(self) or is_heard
            except Exception as error:  # of this one alone: the others still get the value
                failure = failure or error
        if failure is not None:
            raise failure
        return is_heard

    def leave(self, task: Running[Any]) -> None:
        """A task waits no more."""
        self._waiting.pop(task, None)

    def join(self, task: Running[Any]) -> None:
        """A task waits; for the scheduler alone."""
        if self.is_set:
            task.resume(self)
        else:
            self._waiting[task] = None

    def __iter__(self) -> Generator[Promise[T], T, T]:
        return (yield self)


Task: TypeAlias = Generator[Sleep | Promise[Any], Any, T]
"""What a generator function that waits returns. Another task runs it with ``yield from``, ``Tasks.start`` beside it."""


class Running(Promise[T]):
    """A started task: a promise of what its generator returns."""

    __slots__ = ("_generator", "_tasks", "name", "number", "waits_for")

    def __init__(self, tasks: Tasks, name: str, generator: Task[T]) -> None:
        super().__init__()
        self.name = name
        self.number = 0
        """Counts what the task waited for: a timer of an earlier wait is void."""
        self.waits_for: Promise[Any] | None = None
        self._tasks = tasks
        self._generator = generator

    def resume(self, promise: Promise[Any]) -> bool:
        """What the task waits for has come."""
        self._tasks.wake(self, promise.value, promise.error)
        return True

    def cancel(self) -> None:
        """End the task where it waits: its ``finally`` blocks run, its promise is never set. Not from within itself."""
        if self._tasks.drop(self):
            self._generator.close()

    def step(self, value: object, error: Exception | None) -> Sleep | Promise[Any]:
        """Run to the next wait; for the scheduler alone."""
        return self._generator.send(value) if error is None else self._generator.throw(error)


class Signal:
    """Happens again and again: ``yield from signal.next()`` waits for the next time."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: Promise[None] = Promise()

    def next(self) -> Promise[None]:
        """The next time."""
        return self._next

    def fire(self) -> None:
        """Now."""
        now, self._next = self._next, Promise()
        now.set(None)


def promised(value: T) -> Promise[T]:
    """A value that is there already, where a promise is wanted."""
    promise: Promise[T] = Promise()
    promise.set(value)
    return promise


def within(promise: Promise[T], ms: int) -> Task[T | None]:
    """Wait for a promise, but not longer than ``ms``; None when the time is over."""
    found: T | None = yield _Within(promise, ms)
    return found


def all_of(promises: Iterable[Promise[T]]) -> Task[list[T]]:
    """Wait for all promises."""
    found: list[T] = []
    for promise in promises:
        value = yield from promise
        found.append(value)
    return found


def any_of(*promises: Promise[Any]) -> Promise[None]:
    """Set as soon as one of the promises is."""
    first: Promise[None] = Promise()
    for promise in promises:
        promise.then(lambda _value: first.set(None))
    return first


class Tasks:
    """The tasks of one node. ``now`` is the present: every entry point of the node sets it."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self._running: dict[Running[Any], None] = {}
        self._timers: list[tuple[int, int, int, Running[Any]]] = []
        """(due at, order, number of the wait, task)."""
        self._order = 0
        self._ready: deque[tuple[Running[Any], Any, Exception | None]] = deque()
        self._is_stepping = False
        self._failures: list[Exception] = []

    def __len__(self) -> int:
        return len(self._running)

    def start(self, name: str, task: Task[T]) -> Running[T]:
        """Run a task beside others; its first step is done when this returns, unless another task called."""
        if len(self._running) >= TASKS_MAX:
            task.close()
            raise FlockError(f"{TASKS_MAX:,} tasks wait on this node already; try again.")
        running = Running(self, name, task)
        self._running[running] = None
        self.wake(running, None, None)
        return running

    def repeat(self, name: str, make: Callable[[], Task[bool | None]], pause_ms: int) -> Running[None]:
        """Run a task again and again, ``pause_ms`` after it ended or failed, until it returns True."""
        return self.start(name, self._repeated(make, pause_ms))

    def every(self, name: str, ms: int, work: Callable[[], bool | None]) -> Running[None]:
        """Call a function, first at the next tick and then every ``ms``, until it returns True."""
        return self.start(name, self._called_every(ms, work))

    def _called_every(self, ms: int, work: Callable[[], bool | None]) -> Task[None]:
        is_over: bool | None = False
        yield Sleep(0)
        while not is_over:
            try:
                is_over = work()
            except Exception as error:
                self._failures.append(error)
            yield Sleep(ms)

    def _repeated(self, make: Callable[[], Task[bool | None]], pause_ms: int) -> Task[None]:
        while True:
            try:
                if (yield from make()):
                    return
            except Exception as error:
                self._failures.append(error)
            yield Sleep(pause_ms)

    def tick(self, now: int) -> None:
        """Time passes: wake the tasks whose sleep or timeout is over."""
        self.now = now
        due: list[Running[Any]] = []
        while self._timers and self._timers[0][0] <= now:
            _, _, number, task = heappop(self._timers)
            if task.number == number and task in self._running:
                due.append(task)
        for task in due:
            self._leave(task)
            self._ready.append((task, None, None))
        self._run()

    def wake(self, task: Running[Any], value: object, error: Exception | None) -> None:
        """Let a task go on; for promises alone."""
        if task in self._running:
            self._leave(task)
            self._ready.append((task, value, error))
            self._run()

    def drop(self, task: Running[Any]) -> bool:
        """Forget a task; False when it has ended. For ``Running.cancel`` alone."""
        if task not in self._running:
            return False
        self._leave(task)
        del self._running[task]
        return True

    def _drop_void_timers(self) -> None:
        """Forget timers of waits that are over: they keep in memory what their tasks returned."""
        self._timers = [one for one in self._timers if one[3].number == one[2] and one[3] in self._running]
        heapify(self._timers)

    def _leave(self, task: Running[Any]) -> None:
        task.number += 1
        if task.waits_for is not None:
            task.waits_for.leave(task)
            task.waits_for = None

    def _run(self) -> None:
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._ready:
                task, value, error = self._ready.popleft()
                if task in self._running:
                    self._step(task, value, error)
        finally:
            self._is_stepping = False
        if self._failures:
            failures, self._failures = self._failures, []
            raise failures[0]

    def _step(self, task: Running[Any], value: object, error: Exception | None) -> None:
        try:
            wanted = task.step(value, error)
        except StopIteration as end:
            self._end(task, end.value, None)
        except Exception as failure:
            failure.add_note(f"In the task {task.name!r}.")
            self._end(task, None, failure)
        else:
            self._park(task, wanted)

    def _end(self, task: Running[Any], value: object, error: Exception | None) -> None:
        del self._running[task]
        try:
            if error is None:
                task.set(value)
            else:
                task.fail(error)
        except Exception as unheard:
            self._failures.append(unheard)

    def _park(self, task: Running[Any], wanted: Sleep | Promise[Any]) -> None:
        if isinstance(wanted, Sleep):
            self._order += 1
            heappush(self._timers, (self.now + wanted.ms, self._order, task.number, task))
            if len(self._timers) > 2 * len(self._running) + VOID_TIMERS:
                self._drop_void_timers()
        promise = wanted.promise if isinstance(wanted, _Within) else wanted
        if isinstance(promise, Promise):
            task.waits_for = promise
            promise.join(task)
