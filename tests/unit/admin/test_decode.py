from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.admin.decode import decode_body, decode_query, decode_text
from flockmq.admin.durable_model import ReadQuery, TopicRequest
from flockmq.admin.durable_sinks_model import DropQuery
from flockmq.admin.durable_tenants_model import AccessRequest
from flockmq.admin.model import BanRequest, ConnectionQuery, PublishRequest, SessionQuery
from flockmq.errors import INVALID_BODY, INVALID_PARAMETER, ApiError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT, st.integers(1, 1000))
def test_a_query_comes_through_as_it_was_meant(client_id: str, limit: int) -> None:
    query = decode_query(f"client_id={quote(client_id, safe='')}&limit={limit}", ConnectionQuery)
    assert query == ConnectionQuery(client_id=client_id, limit=limit)


@pytest.mark.parametrize("text", ["null", "1", "true", ""])
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert decode_query(f"username={text}", ConnectionQuery).username == text


def test_a_plus_is_a_blank_and_an_escaped_plus_is_a_plus() -> None:
    assert decode_query("client_id=a+b%2Bc", ConnectionQuery).client_id == "a b+c"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_booleans(text: str, value: bool) -> None:
    assert decode_query(f"connected={text}", SessionQuery).connected is value


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=1e3", "limit"),
        ("limit=" + "9" * 5_000, "limit"),
        ("limit=١", "limit"),
        ("limit=", "limit"),
        ("clientid=a", "clientid"),
        ("client_id=a&client_id=b", "client_id"),
        ("client_id=%ff", "client_id"),
        ("&".join(f"x{number}=1" for number in range(100)), "96"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(query: str, named: str) -> None:
    with pytest.raises(ApiError) as refused:
        decode_query(query, ConnectionQuery)
    assert named in str(refused.value)
    assert refused.value.kind.status == 400


def test_a_boolean_takes_no_other_spelling() -> None:
    with pytest.raises(ApiError) as refused:
        decode_query("connected=yes", SessionQuery)
    assert refused.value.kind is INVALID_PARAMETER
    assert "true or false" in str(refused.value)


@given(st.text(max_size=60))
def test_no_query_does_more_than_be_refused(raw: str) -> None:
    with suppress(ApiError):
        assert isinstance(decode_query(raw, ConnectionQuery), ConnectionQuery)


@given(st.binary(max_size=80))
def test_no_body_does_more_than_be_refused(raw: bytes) -> None:
    with suppress(ApiError):
        assert isinstance(decode_body(raw, PublishRequest), PublishRequest)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"[" * 100_000, "body"),
        (b'{"kind":"client"}', "value"),
        (b'{"kind":"clint","value":"x"}', "kind"),
        (b'{"kind":"client","value":"x","durations":3}', "durations"),
        (b'{"kind":"client","value":"x","duration_s":0}', "duration_s"),
        (b'{"kind":"client","value":"x","duration_s":1.5}', "duration_s"),
        (b'{"kind":"client","value":""}', "value"),
        (b'{"kind":"client","value":"\xff"}', "JSON"),
    ],
)
def test_a_wrong_body_is_refused_by_field(body: bytes, named: str) -> None:
    with pytest.raises(ApiError) as refused:
        decode_body(body, BanRequest)
    assert refused.value.kind is INVALID_BODY
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("third", "named"),
    [
        (b'{"allow":true,"who":["all"],"topics":["a"]}', "`rules[2]` can't be used: Object missing required field"),
        (b'{"allow":1,"who":["all"],"action":"all","topics":["a"]}', "`rules[2].allow` can't"),
        (b'{"allow":true,"who":["all",""],"action":"all","topics":["a"]}', "`rules[2].who[1]` can't"),
        (b'{"allow":true,"who":["all"],"action":"all","topic":["a"]}', "`rules[2]` can't"),
        (b'"all"', "`rules[2]` can't"),
    ],
)
def test_the_entry_of_a_list_is_named(third: bytes, named: str) -> None:
    good = b'{"allow":true,"who":["all"],"action":"all","topics":["a"]}'
    with pytest.raises(ApiError) as refused:
        decode_body(b'{"default":"deny","rules":[%b,%b,%b,%b]}' % (good, good, third, third), AccessRequest)
    assert named in str(refused.value)


def test_text_must_be_utf8() -> None:
    assert decode_text("caf%C3%A9", "it") == "café"
    with pytest.raises(ApiError):
        decode_text("caf%E9", "it")


def test_only_lists_may_be_given_several_times() -> None:
    query = decode_query("filter=a%2F%2B&filter=b,c&offset=3", ReadQuery)
    assert (query.filter, query.offset) == (["a/+", "b,c"], 3)
    assert decode_query("", ReadQuery).filter == []
    with pytest.raises(ApiError, match="twice"):
        decode_query("offset=3&offset=3", ReadQuery)
    with pytest.raises(ApiError, match="filter"):
        decode_query("&".join(["filter=a"] * 65), ReadQuery)


def test_numbers_as_json_schema_knows_them() -> None:
    request = decode_body(b'{"name":"t","shards":2.0,"retention_bytes":1108.0}', TopicRequest)
    assert (request.shards, request.retention_bytes) == (2, 1108)
    with pytest.raises(ApiError, match="shards"):
        decode_body(b'{"name":"t","shards":2.5}', TopicRequest)
    assert decode_query("batch=4611686018427387903", DropQuery).batch == (1 << 62) - 1
