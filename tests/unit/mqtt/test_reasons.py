from __future__ import annotations

import pytest

from flockmq.mqtt import reasons


def test_every_code_has_a_name_and_every_name_a_code() -> None:
    constants = {value for key, value in vars(reasons).items() if key.isupper() and isinstance(value, int)}
    assert constants == set(reasons.NAMES)
    assert len(reasons.NAMES) == 43


def test_names_of_codes_that_do_not_exist() -> None:
    assert reasons.name(0x8E) == "Session taken over"
    assert reasons.name(0xFE) == "0xFE"


@pytest.mark.parametrize(
    ("reason", "code"),
    [(0x00, 0), (0x84, 1), (0x85, 2), (0x88, 3), (0x89, 3), (0x97, 3), (0x86, 4), (0x8C, 4), (0x87, 5), (0x8A, 5)],
)
def test_connack_codes_of_3_1_1(reason: int, code: int) -> None:
    assert reasons.connack_code_v3(reason) == code


def test_every_refusal_has_a_code_in_3_1_1() -> None:
    assert {reasons.connack_code_v3(reason) for reason in reasons.IN_CONNACK if reason} == {1, 2, 3, 4, 5}


def test_packets_carry_only_codes_that_exist() -> None:
    tables = [value for key, value in vars(reasons).items() if key.startswith("IN_") and not key.endswith("_V3")]
    assert len(tables) == 8
    for table in tables:
        assert table <= set(reasons.NAMES)
    assert reasons.IN_DISCONNECT_FROM_CLIENT < reasons.IN_DISCONNECT
