"""Names inside the broker and outside."""

from __future__ import annotations

import pytest

from flockmq.mqtt.namespaces import (
    inside_client_id,
    outside_topic,
    qualified,
    split_client_id,
    split_filter,
    split_topic,
    topic_prefix,
    unqualified,
)


@pytest.mark.parametrize("topic", [b"a", b"/", b"a/b/c", "é/#".encode()])
def test_topics_there_and_back(topic: bytes) -> None:
    for namespace in ("default", "acme"):
        inside = topic_prefix(namespace) + topic
        assert split_topic(inside) == (namespace, topic)
        assert outside_topic(inside) == topic
        assert split_filter(b"$share/g/" + inside) == (namespace, b"$share/g/" + topic)


@pytest.mark.parametrize("client_id", ["c", "", "a/b", "$x"])
def test_client_ids_there_and_back(client_id: str) -> None:
    for namespace in ("default", "acme"):
        assert split_client_id(inside_client_id(namespace, client_id)) == (namespace, client_id)


def test_user_names_there_and_back() -> None:
    assert qualified("default", "bob") == "bob"
    assert qualified("acme", "bob") == "acme/bob"
    assert unqualified("acme", "acme/bob") == "bob"
    assert unqualified("default", "a/b") == "a/b"
