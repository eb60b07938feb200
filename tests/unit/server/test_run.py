from __future__ import annotations

import pytest

from flockmq.config.sections import LogConfig
from flockmq.server.run import make_log


@pytest.mark.parametrize(("format_", "start"), [("json", '{"time":'), ("console", "20"), ("auto", '{"time":')])
def test_the_format_follows_the_setting_and_the_terminal(
    format_: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = make_log(LogConfig(format=format_))
    log.start()
    log.event("info", "x")
    log.event("debug", "y")
    log.stop()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)
