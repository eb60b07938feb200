from __future__ import annotations

import os
import sys

import pytest

from flockmq.client.load.usage import cpu_seconds, memory_kb

linux = pytest.mark.skipif(sys.platform != "linux", reason="the process table is read as Linux has it")


@linux
def test_this_process_has_used_time_and_memory() -> None:
    used = cpu_seconds([os.getpid()])
    memory = memory_kb([os.getpid()])
    assert used is not None
    assert used > 0
    assert memory is not None
    assert memory > 1_000


def test_nobody_named_means_nothing_measured() -> None:
    assert cpu_seconds([]) is None
    assert memory_kb([]) is None


def test_a_process_that_is_gone_is_not_an_error() -> None:
    assert cpu_seconds([2**30]) is None
    assert memory_kb([2**30]) is None
