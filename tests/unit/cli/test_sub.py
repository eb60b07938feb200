from __future__ import annotations

from flockmq.cli.sub import as_dict, replays
from flockmq.client.mqtt import Message
from flockmq.mqtt.properties import Properties


def test_a_message_for_programs() -> None:
    properties = Properties()
    properties.user = [("a", "1"), ("a", "2")]
    properties.correlation_data = b"\xff"
    properties.subscription_identifiers = [7]
    assert as_dict(Message("t", "ü".encode(), 1, True, False, properties)) == {
        "topic": "t",
        "payload": "ü",
        "qos": 1,
        "retain": True,
        "duplicate": False,
        "properties": {"user": [["a", "1"], ["a", "2"]], "correlation_data": "\\xff", "subscription_identifiers": [7]},
    }


def test_a_payload_that_is_no_text() -> None:
    assert as_dict(Message("t", b"\xff\x00", 0, False, False, None))["payload_base64"] == "/wA="


def test_how_mqtt_3_1_1_asks_for_history() -> None:
    assert replays(("a/#", "b"), "offset:7") == ("$replay/offset:7/a/#", "$replay/offset:7/b")
