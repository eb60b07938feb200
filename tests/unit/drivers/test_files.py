"""How many clients the file limit leaves room for."""

from __future__ import annotations

import pytest

from flockmq.drivers.files import connections_within, file_limit


@pytest.mark.parametrize(
    ("files", "connections"), [(0, 0), (64, 32), (256, 128), (1_024, 768), (65_536, 57_344), (1_048_576, 1_032_192)]
)
def test_the_store_and_other_nodes_keep_theirs(files: int, connections: int) -> None:
    assert connections_within(files) == connections


def test_this_process_has_some() -> None:
    assert file_limit() >= 0
