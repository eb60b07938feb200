"""The upgrade request: what is accepted, and an HTTP error that says why for what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.wire.upgrade import (
    REQUEST_BYTES_MAX,
    Refusal,
    Upgrade,
    UpgradeParser,
    accept_key,
    check_client_response,
    client_request,
)

GOOD = {
    "Host": "broker:8083",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def request(line: str = "GET /mqtt HTTP/1.1", extra: str = "", **changes: str | None) -> bytes:
    """Build a good request with some headers changed (``sec_websocket_key=``) or left out (None)."""
    changed = {name.lower().replace("_", "-"): value for name, value in changes.items()}
    headers = {name: changed.get(name.lower(), value) for name, value in GOOD.items()}
    lines = [line, *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return ("\r\n".join(lines) + "\r\n" + extra + "\r\n").encode()


def test_the_accept_key_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_a_good_request_is_answered_and_the_rest_kept(step: int) -> None:
    """[MQTT-6.0.0-3], [MQTT-6.0.0-4]: the subprotocol is named in the answer."""
    parser = UpgradeParser()
    wire = request() + b"frames"
    end = len(request())
    answer = None
    rest = b""
    for at in range(0, len(wire), step):
        if answer is None:
            answer = parser.feed(wire[at : at + step])
            rest = answer.rest if isinstance(answer, Upgrade) else b""
        else:
            rest += wire[at : at + step]
    assert isinstance(answer, Upgrade)
    assert answer.response.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer.response
    assert b"\r\nSec-WebSocket-Protocol: mqtt\r\n" in answer.response
    assert rest == wire[end:]


ACCEPTED = {
    "older name": request(sec_websocket_protocol="mqttv3.1"),
    "several, ours last": request(sec_websocket_protocol="chat, mqttv3.1 ,mqtt"),
    "several headers": request(sec_websocket_protocol="chat", extra="Sec-WebSocket-Protocol: mqtt\r\n"),
    "a query": request("GET /mqtt?token=1 HTTP/1.1"),
    "keep-alive too": request(connection="keep-alive, Upgrade"),
    "other case": request(connection="upgrade", upgrade="WebSocket"),
    "any origin": request(extra="Origin: https://anywhere\r\n"),
    "no body": request(extra="Content-Length: 0\r\n"),
}


@pytest.mark.parametrize("wire", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(wire: bytes) -> None:
    assert isinstance(UpgradeParser().feed(wire), Upgrade)


def test_mqtt_is_taken_before_its_older_name() -> None:
    answer = UpgradeParser().feed(request(sec_websocket_protocol="mqttv3.1, mqtt"))
    assert isinstance(answer, Upgrade)
    assert answer.subprotocol == "mqtt"


REFUSED = {
    "no subprotocol [MQTT-6.0.0-3]": (request(sec_websocket_protocol=None), 400),
    "another subprotocol [MQTT-6.0.0-3]": (request(sec_websocket_protocol="chat"), 400),
    "another path": (request("GET /other HTTP/1.1"), 404),
    "POST": (request("POST /mqtt HTTP/1.1"), 405),
    "HTTP/1.0": (request("GET /mqtt HTTP/1.0"), 505),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "no HTTP": (b"HELLO\r\n\r\n", 400),
    "no Host": (request(host=None), 400),
    "no Upgrade": (request(upgrade=None), 426),
    "a browser's visit": (request(upgrade=None, connection="keep-alive"), 426),
    "no Connection": (request(connection=None), 426),
    "version 8": (request(sec_websocket_version="8"), 426),
    "no version": (request(sec_websocket_version=None), 426),
    "no key": (request(sec_websocket_key=None), 400),
    "short key": (request(sec_websocket_key="AAAA"), 400),
    "key not base64": (request(sec_websocket_key="!" * 24), 400),
    "two keys": (request(extra="Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 400),
    "a body": (request(extra="Content-Length: 5\r\n"), 400),
    "a chunked body": (request(extra="Transfer-Encoding: chunked\r\n"), 400),
    "folded header": (request(extra="X-A: 1\r\n continued\r\n"), 400),
    "header without colon": (request(extra="nonsense\r\n"), 400),
    "space before colon": (request(extra="X-A : 1\r\n"), 400),
    "bare line feed": (request(extra="X-A: 1\nX-B: 2\r\n"), 400),
    "too many headers": (request(extra="X: 1\r\n" * 60), 431),
}


@pytest.mark.parametrize(("wire", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_a_reason(wire: bytes, status: int) -> None:
    answer = UpgradeParser().feed(wire)
    assert isinstance(answer, Refusal)
    assert answer.status == status
    head, _, body = answer.response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert b"\r\nConnection: close" in head
    assert answer.text.encode() in body
    assert (b"Sec-WebSocket-Version: 13" in head) == (status == 426)


@pytest.mark.parametrize(("origin", "answer"), [("https://SHOP.example", Upgrade), ("https://evil.example", Refusal)])
def test_only_listed_origins_when_there_is_a_list(origin: str, answer: type) -> None:
    parser = UpgradeParser(origins=("https://shop.example",))
    assert isinstance(parser.feed(request(extra=f"Origin: {origin}\r\n")), answer)


@pytest.mark.parametrize(
    ("origin", "answer"),
    [
        ("http://localhost:3000", Upgrade),
        ("https://LOCALHOST", Upgrade),
        ("http://[::1]:8080", Upgrade),
        ("http://localhost.evil.example", Refusal),
        ("http://evil.example:80", Refusal),
        ("http://[::2]", Refusal),
        ("null", Refusal),
        ("localhost:3000", Refusal),
    ],
)
def test_a_host_alone_stands_for_any_scheme_and_port(origin: str, answer: type) -> None:
    parser = UpgradeParser(origins=("localhost", "[::1]"))
    assert isinstance(parser.feed(request(extra=f"Origin: {origin}\r\n")), answer)


def test_programs_send_no_origin_and_are_not_pages() -> None:
    assert isinstance(UpgradeParser(origins=("https://shop.example",)).feed(request()), Upgrade)


def test_plain_mqtt_is_told_apart_at_its_first_byte() -> None:
    answer = UpgradeParser().feed(b"\x10")
    assert isinstance(answer, Refusal)
    assert answer.status == 400


@pytest.mark.parametrize("step", [1, 1000, 1_000_000])
def test_an_endless_request_is_cut(step: int) -> None:
    parser = UpgradeParser()
    wire = b"GET /mqtt HTTP/1.1\r\nX: " + b"a" * 1_000_000
    for at in range(0, len(wire), step):
        answer = parser.feed(wire[at : at + step])
        if answer is not None:
            break
    assert isinstance(answer, Refusal)
    assert answer.status == 431
    assert at <= REQUEST_BYTES_MAX


def test_both_ends_understand_each_other() -> None:
    key = bytes(16)
    answer = UpgradeParser("/other").feed(client_request("localhost:1", "/other", key))
    assert isinstance(answer, Upgrade)
    assert check_client_response(answer.response[:-1], key) is None
    assert check_client_response(answer.response + b"frames", key) == b"frames"
    with pytest.raises(FlockError, match="did not answer our WebSocket key"):
        check_client_response(answer.response, b"x" * 16)
    with pytest.raises(FlockError, match="subprotocol chat"):
        check_client_response(answer.response, key, "chat")
    with pytest.raises(FlockError, match=r"404.*/mqtt"):
        check_client_response(Refusal(404, "MQTT over WebSocket is at /mqtt").response, key)
    with pytest.raises(FlockError, match="too long"):
        check_client_response(b"x" * 10_000, key)


@given(st.lists(st.binary(max_size=300), max_size=6), st.booleans())
def test_garbage_never_raises(reads: list[bytes], http: bool) -> None:
    parser = UpgradeParser()
    if http:
        parser.feed(b"GET /mqtt HTTP/1.1\r\n")
    for data in reads:
        if parser.feed(data) is not None:
            break
