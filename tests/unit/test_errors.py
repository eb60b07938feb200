"""One class per meaning: what a broker raises is what a client raises."""

from __future__ import annotations

import pytest

from flockmq.errors import (
    CATALOGUE,
    UNAVAILABLE,
    ApiError,
    Behind,
    BeyondEnd,
    Conflict,
    Damaged,
    NoAnswer,
    NoLeader,
    NoReplica,
    NotFound,
    NotReady,
    OffsetGone,
    OutcomeUnknown,
    Refused,
    TooLarge,
    TryAgain,
    decode,
)

RAISED = [
    OffsetGone(40, "Offset 3 of partition group 7"),
    BeyondEnd(90, "Offset 95", "partition group 7"),
    Damaged(5, 9, "partition group 7"),
    OutcomeUnknown("Look first."),
    Refused("The namespace is full."),
    Conflict("Stage it again."),
    NotFound("There is no topic 'x'."),
    Behind(12, 20, "partition group 7"),
    NoReplica((1, 2), "partition group 7"),
    NoLeader.of(7),
    NotReady("This node starts."),
    NoAnswer(),
    TooLarge(),
]


def across(error: ApiError) -> ApiError:
    """As HTTP carries it: header names in lower case."""
    return decode(error.status, error.code, str(error), {name.lower(): text for name, text in error.headers.items()})


@pytest.mark.parametrize("raised", RAISED, ids=lambda error: error.code)
def test_the_client_raises_what_the_broker_raised(raised: ApiError) -> None:
    told = across(raised)
    assert type(told) is type(raised)
    assert (told.status, told.code, str(told)) == (raised.status, raised.code, str(raised))
    assert raised.kind in CATALOGUE


def test_offsets_cross_the_api() -> None:
    gone, beyond, damaged = (across(error) for error in RAISED[:3])
    behind = across(Behind(12, 20))
    assert isinstance(gone, OffsetGone)
    assert isinstance(beyond, BeyondEnd)
    assert isinstance(damaged, Damaged)
    assert isinstance(behind, Behind)
    assert (gone.first, beyond.end, damaged.first, damaged.end, behind.end) == (40, 90, 5, 9, 12)


def test_what_helps_to_ask_again_is_one_family() -> None:
    again = [error.code for error in RAISED if isinstance(error, TryAgain)]
    assert again == ["behind", "no_replica", "no_leader", "not_ready", "no_answer", "too_large"]
    assert all(error.headers["Retry-After"] for error in RAISED if isinstance(error, TryAgain))


def test_codes_without_a_class_of_their_own() -> None:
    told = across(ApiError(UNAVAILABLE, "It is switched off."))
    assert type(told) is ApiError
    assert (told.status, told.code, str(told)) == (503, "unavailable", "It is switched off.")
    assert decode(418, "gone", "A proxy says so.", {}).status == 418


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (Damaged(5, 6, "group 7"), "Offset 5 of group 7 is damaged, and no other replica that could be asked has it"),
        (Damaged(5, 9, "group 7"), "Offsets 5 to 8 of group 7 are damaged, and no other replica that could be asked"),
        (OffsetGone(9, "Offset 5"), "Offset 5 is gone; the oldest one is 9: read from there."),
        (Behind(9), "This replica of the log is committed up to offset 9. Wait, or ask another one."),
    ],
)
def test_sentences(error: ApiError, sentence: str) -> None:
    assert str(error).startswith(sentence)
