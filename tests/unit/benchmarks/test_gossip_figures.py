from __future__ import annotations

import pytest
from benchmarks import gossip

from flockmq.gossip.settings import LAN


def test_a_small_run_passes_and_says_what_it_saw(capsys: pytest.CaptureFixture[str]) -> None:
    assert gossip.main(["--nodes", "12", "--hours", "0.05", "--deaths", "2", "--join-seconds", "1"]) == 0
    said = capsys.readouterr().out
    assert "deaths       2: known to the first after" in said
    assert "wrong deaths 0 in 0.05 h" in said


def test_a_cluster_that_loses_all_datagrams_fails(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "4", "--hours", "0.02", "--deaths", "1", "--loss", "1", "--join-seconds", "0"]
    assert gossip.main(words) == 1
    assert "FAILED" in capsys.readouterr().out


def test_bandwidth_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert gossip.main(["--bandwidth", "3,6"]) == 0
    assert capsys.readouterr().out.count("B/s by datagrams") == 2


def test_the_bound_grows_with_the_logarithm() -> None:
    small, large = gossip.bound_ms(LAN, 10), gossip.bound_ms(LAN, 10_000)
    assert small < large < 3 * small
