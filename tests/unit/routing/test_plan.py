from __future__ import annotations

from flockmq.routing.plan import RoutePlan, Target, encode_identifiers
from routing_cases import session_of


def test_each_identifier_is_a_property_of_its_own() -> None:
    assert encode_identifiers((1, 127, 128, 268_435_455)) == b"\x0b\x01\x0b\x7f\x0b\x80\x01\x0b\xff\xff\xff\x7f"
    assert encode_identifiers(()) == b""


def test_a_target_carries_its_encoded_identifiers() -> None:
    target = Target(session_of("a"), 1, True, (7, 7), False, None)
    assert target.identifier_properties == b"\x0b\x07\x0b\x07"


def test_a_plan_is_not_current_before_the_table_keeps_it() -> None:
    assert not RoutePlan(b"a/b", [], [], []).current
