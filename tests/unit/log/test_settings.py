from __future__ import annotations

from typing import Any

import pytest

from flockmq.errors import ConfigError
from flockmq.log.settings import Retention, StoreSettings


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"journal_bytes": 100_000}, "multiple of 4,096"),
        ({"journal_bytes": 8192, "commit_bytes": 10}, "at least four times"),
        ({"segment_bytes": 2**31}, "1 GiB at most"),
        ({"journal_bytes": 2**31}, "1 GiB at most"),
        ({"journal_bytes": 65536, "commit_bytes": 40_000}, "at least two group commits"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        StoreSettings(**fields)


def test_the_defaults_keep_a_replay_within_64_mib() -> None:
    assert 2 * StoreSettings().journal_bytes <= 64 * 1024 * 1024


def test_the_bound_is_the_last_resort() -> None:
    with pytest.raises(ConfigError, match="last resort"):
        Retention(bytes=100, bytes_bound=99)
    assert Retention(bytes=100, bytes_bound=100).bytes_bound == 100
