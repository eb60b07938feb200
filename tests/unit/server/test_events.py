from __future__ import annotations

import io
import json

import pytest

from flockmq.node.events import Event
from flockmq.server.events import log_events
from flockmq.server.log import Log, json_line


def test_a_stopped_replica_is_an_error() -> None:
    stream = io.StringIO()
    log = Log(stream, json_line)
    log_events(log, [Event("group_stopped", {"group": 1}), Event("safety_broken", {"group": 2})])
    log.start()
    log.stop()
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == ["error", "error"]


def test_what_strangers_can_cause_is_no_warning() -> None:
    stream = io.StringIO()
    log = Log(stream, json_line)
    events = [Event(kind, {"peer": "x"}) for kind in ("protocol_error", "connect_refused", "tls_handshake_failed")]
    log_events(log, [*events, Event("internal_error", {}), Event("will_published", {}), Event("something_new", {})])
    log.start()
    log.stop()
    found = [(line["event"], line["level"]) for line in map(json.loads, stream.getvalue().splitlines())]
    assert found == [
        ("protocol_error", "info"),
        ("connect_refused", "info"),
        ("tls_handshake_failed", "info"),
        ("internal_error", "error"),
        ("something_new", "info"),
    ]


@pytest.mark.parametrize(
    ("event", "fields", "level"),
    [
        ("node_dead", {"name": "n2"}, "warning"),
        ("node_conflict", {"name": "n2"}, "error"),
        ("link_refused", {"kind": "cookie"}, "warning"),
        ("link_refused", {"kind": "tls"}, "warning"),
        ("link_refused", {"kind": "cluster"}, "warning"),
        ("link_refused", {"kind": "not_ours"}, "info"),
        ("link_refused", {"kind": "timeout"}, "info"),
        ("node_joined", {"name": "n2"}, "info"),
    ],
)
def test_what_an_operator_must_look_at_is_no_info(event: str, fields: dict[str, object], level: str) -> None:
    stream = io.StringIO()
    log = Log(stream, json_line)
    log_events(log, [Event(event, fields)])
    log.start()
    log.stop()
    assert json.loads(stream.getvalue())["level"] == level
