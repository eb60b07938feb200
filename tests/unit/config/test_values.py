from __future__ import annotations

from flockmq.config.sources import DEFAULT, Origin
from flockmq.config.values import Value, Values


def test_everything_lists_each_key_once_with_where_it_came_from() -> None:
    given: dict[tuple[str, ...], Value] = {
        ("listeners", "tcp", "x", "limits", "receive_max"): Value(5, Origin("env", "X"))
    }
    everything = Values(given).everything()
    assert everything["node", "name"] == Value("", DEFAULT)
    assert everything["listeners", "tcp", "default", "bind"] == Value((":1883",), DEFAULT)
    assert everything["listeners", "tcp", "x", "enabled"] == Value(True, DEFAULT)
    assert everything["listeners", "tcp", "x", "limits", "receive_max"].origin == Origin("env", "X")
    assert ("listeners", "tcp", "x", "limits", "inflight_max") not in everything


def test_flags_are_named_as_the_origin_of_an_address() -> None:
    values = Values({})
    values.apply_ports("::1", {"tcp": 7})
    assert values.value(("listeners", "tcp", "default", "bind")) == Value(
        ("[::1]:7",), Origin("flag", "--host --mqtt-port")
    )
    assert values.value(("admin", "bind")) == Value(("[::1]:18083",), Origin("flag", "--host"))
