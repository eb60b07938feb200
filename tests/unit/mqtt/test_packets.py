from __future__ import annotations

import pytest

from codec_cases import with_properties
from flockmq.mqtt import packets as p


def test_packets_are_equal_by_value() -> None:
    assert p.Ack(p.PUBACK, 1) == p.Ack(p.PUBACK, 1)
    assert p.Ack(p.PUBACK, 1) != p.Ack(p.PUBREC, 1)
    assert p.Suback(1, [0]) != p.Unsuback(1, [0])
    assert p.Pingreq() == p.Pingreq()
    assert p.Pingreq() != p.Pingresp()
    assert p.Publish(b"a", b"") != p.Publish(b"a", b"", properties=with_properties(topic_alias=1))
    assert p.Pingreq() != "Pingreq"


def test_each_field_counts() -> None:
    will = p.Will(b"a", b"b", 1, True)
    entry = p.SubscribeEntry(b"a", 1, True, True, 2)
    for value in (
        p.Connect(5, "a", False, 1, with_properties(receive_maximum=1), will, "u", b"p"),
        p.Connack(True, 1, with_properties(maximum_qos=1)),
        p.Publish(b"a", b"b", 1, True, True, 1, with_properties(topic_alias=1)),
        p.Ack(p.PUBREL, 1, 1, with_properties(reason_string="a")),
        p.Subscribe(1, [entry], with_properties(user=[("a", "b")])),
        p.Suback(1, [1], with_properties(reason_string="a")),
        p.Unsubscribe(1, [b"a"], with_properties(user=[("a", "b")])),
        p.Unsuback(1, [1], with_properties(reason_string="a")),
        p.Disconnect(4, with_properties(reason_string="a")),
        p.Auth(0x18, with_properties(authentication_method="a")),
        will,
        entry,
    ):
        names = [name for name in dir(value) if not name.startswith("_") and name != "fields"]
        assert set(value.fields()) == set(names)


def test_packets_have_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(p.Pingreq())


def test_repr_shows_the_fields() -> None:
    assert repr(p.Pingreq()) == "Pingreq()"
    assert repr(p.Ack(p.PUBREL, 7)) == "Ack(kind='PUBREL', packet_id=7, reason=0, properties=None)"


def test_repr_keeps_passwords_secret() -> None:
    connect = p.Connect(4, "id", username="u", password=b"hunter2")
    assert "hunter2" not in repr(connect)
    assert "password=..." in repr(connect)
    assert "password=None" in repr(p.Connect(4, "id"))
