from __future__ import annotations

from flockmq.admin.callers import Callers


class Visitor:
    """A caller that notes its end."""

    def __init__(self) -> None:
        self.closed = False

    def give_way(self) -> None:
        self.closed = True


class Lobby:
    """Callers that leave when they must."""

    def __init__(self, places: int = 4, per_address: int = 10) -> None:
        self.callers = Callers(places, per_address)
        self.inside: list[Visitor] = []

    def come(self, address: str) -> Visitor | None:
        visitor = Visitor()
        if not self.callers.admit(visitor, address, len(self.inside)):
            return None
        self.inside = [one for one in self.inside if not one.closed]
        self.inside.append(visitor)
        return visitor


def test_the_oldest_of_the_address_with_the_most_gives_way() -> None:
    lobby = Lobby(places=4)
    quiet = lobby.come("b")
    first, second, third = (lobby.come("a") for _ in range(3))
    assert lobby.come("c") is not None
    assert [one is not None and one.closed for one in (quiet, first, second, third)] == [False, True, False, False]
    for _ in range(50):
        assert lobby.come("a") is not None
    assert quiet is not None
    assert not quiet.closed
    assert len(lobby.inside) == 4
    assert lobby.callers.gave_way == 51


def test_an_address_has_a_bound_of_its_own() -> None:
    lobby = Lobby(places=100, per_address=3)
    visitors = [lobby.come("a") for _ in range(5)]
    assert [one is not None and one.closed for one in visitors] == [True, True, False, False, False]


def test_who_is_trusted_stays_and_a_house_full_of_them_is_closed() -> None:
    lobby = Lobby(places=2)
    for _ in range(2):
        visitor = lobby.come("a")
        assert visitor is not None
        lobby.callers.forget(visitor)
    assert lobby.come("b") is None
    lobby.inside.pop()
    assert lobby.come("b") is not None


def test_to_forget_a_caller_twice_is_fine() -> None:
    lobby = Lobby()
    visitor = lobby.come("a")
    assert visitor is not None
    lobby.callers.forget(visitor)
    lobby.callers.forget(visitor)
    assert not visitor.closed
