"""Where the next record is that filters match: the replica here tells, or another one is asked."""

from __future__ import annotations

from functools import partial

from delivery_world import World
from flockmq.durable.logs.seeking import FILTERS_MAX, QUESTIONS_MAX, Seek, Sought, is_askable
from flockmq.peering.kinds import SEEK
from flockmq.tasks import Sleep, Task


def a_world(on: tuple[int, ...] = (1,)) -> World:
    """Two nodes; offsets 0 to 9 are named `plant/N`, one batch each."""
    world = World(2)
    world.create("plant", 5, on=on)
    for number in range(10):
        world.commit(5, (b"plant/%d" % number, b""))
    world.settle()
    return world


def sought(world: World, number: int, *questions: Seek) -> list[tuple[int, int] | None]:
    asked = world[number].logs.seek(list(questions))
    world.run(2_000)
    answers: list[list[Sought | None]] = []
    asked.then(answers.append)
    return [None if one is None else (one.low, one.high) for one in answers[0]]


def told(answer: bytes, peer: int, question: bytes) -> Task[bytes | None]:
    assert peer == 1
    assert question
    yield Sleep(0)
    return answer


def test_the_replica_here_tells_at_once() -> None:
    world = a_world()
    assert sought(world, 1, Seek(5, 2, (b"plant/4", b"plant/7")), Seek(5, 5, (b"x",))) == [(4, 5), (10, 10)]


def test_another_replica_is_asked_in_one_call() -> None:
    world = a_world()
    questions = [Seek(5, number % 10, (b"plant/+",)) for number in range(QUESTIONS_MAX + 20)]
    found = sought(world, 2, *questions)
    assert found == [(number % 10, number % 10 + 1) for number in range(QUESTIONS_MAX + 20)]
    assert world[1].replicas.seeks == len(questions)


def test_no_replica_can_tell() -> None:
    world = a_world()
    world.create("other", 6, on=(1,))
    assert sought(world, 2, Seek(5, 10, (b"#",)), Seek(6, 0, (b"#",)), Seek(5, 9, (b"#",))) == [None, None, (9, 10)]
    world[1].replicas.kept[5] = 3
    assert sought(world, 2, Seek(5, 2, (b"#",)), Seek(5, 3, (b"#",))) == [None, (3, 4)]
    assert sought(world, 1, Seek(5, 2, (b"#",))) == [None]


def test_an_answer_that_makes_no_sense_is_none() -> None:
    world = a_world()
    for body in (b"", b"\1", b"\1" + bytes(32)):
        world.create("other", 6, on=(2,))
        world[2].calls.serve_task(SEEK, partial(told, body))
        assert sought(world, 1, Seek(6, 0, (b"#",))) == [None]


def test_sessions_with_very_many_filters_are_not_asked_about() -> None:
    assert is_askable((b"a",) * FILTERS_MAX)
    assert not is_askable((b"a",) * (FILTERS_MAX + 1))
    assert not is_askable((b"a" * 60_000, b"b" * 6_000))


def test_a_session_without_an_answer_reads_on() -> None:
    world = a_world()
    history = world[2].logs.history
    assert history.seek(5, 3, (b"plant/4",)) is None
    world.settle()
    found = history.seek(5, 3, (b"plant/4",))
    assert found is not None
    assert (found.low, found.high) == (4, 5)
    world.create("other", 6, on=(1,))
    assert history.seek(6, 3, (b"plant/4",)) is None
    world.settle()
    unknown = history.seek(6, 3, (b"plant/4",))
    assert unknown is not None
    assert unknown.low == 3 < unknown.high
    many = history.seek(5, 0, tuple([b"%d" % number for number in range(2_000)]))
    assert many is not None
    assert many.low == 0
