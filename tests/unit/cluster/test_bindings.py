from __future__ import annotations

import pytest

from flockmq.cluster.bindings import binding_text, parse_binding, parse_headers
from flockmq.cluster.commands import RefusedError
from flockmq.cluster.groups import Binding

CASES = {
    "t": Binding("t"),
    "t::k": Binding("t", "", "k"),
    "a:b": Binding("a:b"),
    "t:fanout": Binding("t", "fanout"),
    "a:b:direct:x:y": Binding("a:b", "direct", "x:y"),
    "t:topic:plant/+/#": Binding("t", "topic", "plant/+/#"),
    "t:headers:all:k=v,k2=v2": Binding("t", "headers", "all:k=v,k2=v2"),
    "t:direct": Binding("t", "direct"),
}


@pytest.mark.parametrize("text", CASES)
def test_bindings_are_read_and_written(text: str) -> None:
    assert parse_binding(text) == CASES[text]
    assert binding_text(CASES[text]) == text


def test_what_is_no_binding() -> None:
    with pytest.raises(RefusedError, match="TOPIC:direct:KEY"):
        parse_binding("")


def test_headers_are_names_with_values_or_without() -> None:
    assert parse_headers("any:a=1=2,b,c=") == (False, ((b"a", b"1=2"), (b"b", None), (b"c", b"")))
    assert parse_headers("all:a=1").is_all
