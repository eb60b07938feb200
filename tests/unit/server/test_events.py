from __future__ import annotations

import io
import json

from flockmq.node.events import Event
from flockmq.server.events import log_events
from flockmq.server.log import Log, json_line


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
