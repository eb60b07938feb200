"""Commands are applied once and in order, wherever they come from."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import SetSetting, encode_envelope
from flockmq.durable.state.ledger import RECENT_MAX, Ledger
from flockmq.errors import FlockError


def command(number: int) -> bytes:
    return encode_envelope(1, 1, number, 0, SetSetting("a", number))


def fed(count: int) -> Ledger:
    ledger = Ledger()
    for number in range(1, count + 1):
        assert ledger.feed(number, command(number)) is not None
    return ledger


def test_known_commands_are_skipped_and_gaps_are_not_jumped_over() -> None:
    ledger = fed(3)
    assert ledger.feed(2, command(9)) is None
    assert ledger.feed(5, command(5)) is None
    assert ledger.state.settings["a"] == 3
    result = ledger.feed(4, command(4))
    assert result is not None
    assert result.ok
    assert ledger.index == 4


def test_refused_commands_count() -> None:
    ledger = Ledger()
    result = ledger.feed(1, b"nonsense")
    assert result is not None
    assert not result.ok
    assert ledger.index == 1


def test_recent_commands_are_kept_and_bounded() -> None:
    ledger = fed(RECENT_MAX + 10)
    assert ledger.oldest == 10
    assert len(ledger.commands_after(10, 1 << 30)) == RECENT_MAX
    assert ledger.commands_after(RECENT_MAX + 8, 1 << 30) == [command(RECENT_MAX + 9), command(RECENT_MAX + 10)]
    assert ledger.commands_after(RECENT_MAX + 8, 1) == [command(RECENT_MAX + 9)]
    assert ledger.commands_after(RECENT_MAX + 10, 1) == []
    with pytest.raises(FlockError, match="whole state"):
        ledger.commands_after(9, 1)


def test_a_whole_state_takes_the_place_only_if_it_is_newer() -> None:
    ledger = fed(3)
    old = fed(2).state.encode()
    new = fed(7).state.encode()
    assert not ledger.replace(old)
    assert ledger.replace(new)
    assert ledger.index == 7
    assert ledger.oldest == 7
    assert ledger.jumps == 1
    assert ledger.feed(8, command(8)) is not None


def test_a_whole_state_is_good_as_long_as_all_later_commands_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.state.ledger.RECENT_MAX", 4)
    ledger = fed(3)
    index, first = ledger.whole()
    assert index == 3
    ledger.feed(4, command(4))
    assert ledger.whole() == (3, first)
    for number in range(5, 9):
        ledger.feed(number, command(number))
    assert ledger.whole()[0] == 8
