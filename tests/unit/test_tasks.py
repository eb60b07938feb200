"""Tasks: steps in order, sleeps, timeouts, cancelling, and where errors go."""

from __future__ import annotations

import weakref

import pytest

from flockmq import tasks as module
from flockmq.errors import FlockError
from flockmq.tasks import Promise, Signal, Sleep, Task, Tasks, all_of, promised, within


def test_a_task_sleeps_until_its_time_has_come() -> None:
    tasks = Tasks(now=1_000)
    steps: list[int] = []

    def sleep_twice() -> Task[str]:
        steps.append(tasks.now)
        yield Sleep(100)
        steps.append(tasks.now)
        yield Sleep(50)
        steps.append(tasks.now)
        return "awake"

    running = tasks.start("sleeper", sleep_twice())
    for now in range(1_000, 1_300, 30):
        tasks.tick(now)
    assert steps == [1_000, 1_120, 1_180]
    assert running.value == "awake"
    assert len(tasks) == 0


def test_a_promise_resumes_all_that_wait_in_order() -> None:
    tasks = Tasks()
    promise: Promise[int] = Promise()
    heard: list[tuple[str, int]] = []

    def wait(name: str) -> Task[None]:
        value = yield from promise
        heard.append((name, value))

    tasks.start("one", wait("one"))
    promise.then(lambda value: heard.append(("then", value)))
    tasks.start("two", wait("two"))
    promise.set(7)
    promise.set(8)
    tasks.start("late", wait("late"))
    assert heard == [("one", 7), ("then", 7), ("two", 7), ("late", 7)]


def test_tasks_never_run_inside_each_other() -> None:
    tasks = Tasks()
    promise: Promise[None] = Promise()
    steps: list[str] = []

    def listener() -> Task[None]:
        yield from promise
        steps.append("listener")

    def speaker() -> Task[None]:
        promise.set(None)
        steps.append("speaker goes on")
        yield Sleep(1)

    tasks.start("listener", listener())
    tasks.start("speaker", speaker())
    assert steps == ["speaker goes on", "listener"]


def test_a_timeout_ends_a_wait_and_a_late_value_changes_nothing() -> None:
    tasks = Tasks()
    promise: Promise[int] = Promise()
    found: list[int | None] = []

    def wait() -> Task[None]:
        found.append((yield from within(promise, 100)))
        yield Sleep(1_000)
        found.append((yield from within(promise, 100)))

    tasks.start("waits", wait())
    tasks.tick(99)
    assert found == []
    tasks.tick(100)
    promise.set(5)
    assert found == [None]
    tasks.tick(1_100)
    assert found == [None, 5]
    tasks.tick(2_000)
    assert found == [None, 5]


def test_a_value_in_time_makes_the_timer_void() -> None:
    tasks = Tasks()
    promise: Promise[int] = Promise()
    steps: list[object] = []

    def wait() -> Task[None]:
        steps.append((yield from within(promise, 100)))
        yield Sleep(500)
        steps.append("slept")

    tasks.start("waits", wait())
    promise.set(3)
    tasks.tick(100)
    assert steps == [3]
    tasks.tick(500)
    assert steps == [3, "slept"]


def test_a_void_timer_does_not_keep_what_a_task_returned() -> None:
    tasks = Tasks()
    kept: weakref.WeakSet[Promise[None]] = weakref.WeakSet()

    class Piece(Promise[None]):
        """A value that a test can find in memory."""

    def bring(asked: Promise[Piece]) -> Task[Piece]:
        piece = yield from within(asked, 60_000)
        assert piece is not None
        return piece

    for _ in range(1_000):
        asked: Promise[Piece] = Promise()
        tasks.start("brings", bring(asked))
        piece = Piece()
        kept.add(piece)
        asked.set(piece)
    assert len(kept) < 100


def test_a_task_waits_for_others() -> None:
    tasks = Tasks()

    def double(value: int) -> Task[int]:
        yield Sleep(value)
        return value * 2

    def gather() -> Task[list[int]]:
        parts = [tasks.start("double", double(value)) for value in (30, 10, 20)]
        return (yield from all_of(parts))

    running = tasks.start("gather", gather())
    for now in (10, 20, 30):
        tasks.tick(now)
    assert running.value == [60, 20, 40]


def test_cancelling_runs_finally_and_frees_the_place() -> None:
    tasks = Tasks()
    promise: Promise[None] = Promise()
    ends: list[str] = []

    def wait() -> Task[None]:
        try:
            yield from within(promise, 100)
            ends.append("went on")
        finally:
            ends.append("closed")

    running = tasks.start("waits", wait())
    running.cancel()
    running.cancel()
    promise.set(None)
    tasks.tick(1_000)
    assert ends == ["closed"]
    assert len(tasks) == 0
    assert not running.is_set


def test_an_error_reaches_the_task_that_waits() -> None:
    tasks = Tasks()
    seen: list[str] = []

    def fail() -> Task[None]:
        yield Sleep(10)
        raise FlockError("broken")

    def watch() -> Task[None]:
        try:
            yield from tasks.start("fails", fail())
        except FlockError as error:
            seen.append(str(error))

    tasks.start("watches", watch())
    tasks.tick(10)
    assert seen == ["broken"]


def test_an_error_that_no_task_waits_for_is_raised_after_all_steps() -> None:
    tasks = Tasks()
    steps: list[str] = []

    def fail() -> Task[None]:
        yield Sleep(10)
        raise FlockError("broken")

    def work() -> Task[None]:
        yield Sleep(10)
        steps.append("worked")

    tasks.start("fails", fail())
    tasks.start("works", work())
    with pytest.raises(FlockError, match="broken") as caught:
        tasks.tick(10)
    assert caught.value.__notes__ == ["In the task 'fails'."]
    assert steps == ["worked"]
    tasks.tick(20)


def test_an_error_of_one_listener_does_not_keep_the_value_from_others() -> None:
    promise: Promise[int] = Promise()
    heard: list[int] = []

    def broken(_value: int) -> None:
        raise FlockError("broken")

    promise.then(broken)
    promise.then(heard.append)
    with pytest.raises(FlockError):
        promise.set(1)
    assert heard == [1]


def test_a_repeated_task_goes_on_after_an_error_until_it_returns_true() -> None:
    tasks = Tasks()
    rounds: list[int] = []

    def work() -> Task[bool]:
        rounds.append(tasks.now)
        yield from promised(None)
        if len(rounds) == 2:
            raise FlockError("once")
        return len(rounds) == 3

    tasks.repeat("works", work, 100)
    with pytest.raises(FlockError, match="once"):
        tasks.tick(100)
    for now in (150, 200, 300, 400):
        tasks.tick(now)
    assert rounds == [0, 100, 200]
    assert len(tasks) == 0


def test_a_function_is_called_again_and_again_until_it_returns_true() -> None:
    tasks = Tasks()
    calls: list[int] = []

    def work() -> bool:
        calls.append(tasks.now)
        if len(calls) == 2:
            raise FlockError("once")
        return len(calls) == 3

    tasks.every("works", 100, work)
    assert calls == []
    tasks.tick(10)
    with pytest.raises(FlockError, match="once"):
        tasks.tick(110)
    for now in (200, 210, 310, 410):
        tasks.tick(now)
    assert calls == [10, 110, 210]
    assert len(tasks) == 0


def test_a_signal_is_heard_each_time_it_fires() -> None:
    tasks = Tasks()
    signal = Signal()
    heard: list[int] = []

    def listen() -> Task[None]:
        while True:
            yield from signal.next()
            heard.append(tasks.now)

    tasks.start("listens", listen())
    for now in (1, 2, 3):
        tasks.now = now
        signal.fire()
    assert heard == [1, 2, 3]


def test_the_number_of_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASKS_MAX", 2)
    tasks = Tasks()

    def wait() -> Task[None]:
        yield Sleep(1)

    tasks.start("one", wait())
    tasks.start("two", wait())
    with pytest.raises(FlockError, match="try again"):
        tasks.start("three", wait())
    tasks.tick(1)
    tasks.start("three", wait())
