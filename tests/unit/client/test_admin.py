from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flockmq.admin.routes import OPERATIONS
from flockmq.client.admin import AdminClient, UnreachableError
from flockmq.errors import ApiError, FlockError


class Stub:
    """Answers each connection with the next of the given bytes, and keeps what it was asked."""

    def __init__(self, answers: list[bytes]) -> None:
        self.requests: list[bytes] = []
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._socket.accept()
            with connection:
                self.requests.append(self._read(connection))
                connection.sendall(answer)

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65_536)
            if not data[:1].isalpha():
                return data  # not HTTP
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        missing = (int(lengths[0].split(b":")[1]) if lengths else 0) - len(body)
        while missing > 0:
            piece = connection.recv(missing)
            missing -= len(piece)
            data += piece
        return data

    def close(self) -> None:
        self._thread.join()
        self._socket.close()


@contextmanager
def stub(*answers: bytes) -> Iterator[Stub]:
    made = Stub(list(answers))
    try:
        yield made
    finally:
        made.close()


def http(status: int, body: object) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:18083", "ftp://h", "http://", "http://:80", "http://h:x", "http://h:99999", "http://h?x", "http://h#x",
     "http://[::1"],
)  # fmt: skip
def test_what_is_no_server_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(FlockError, match=r"write it like http://127\.0\.0\.1:18083"):
        AdminClient(url)


def test_a_token_does_not_belong_into_the_address() -> None:
    with pytest.raises(FlockError, match="flockmq login"):
        AdminClient("http://user:secret@127.0.0.1:18083")


@pytest.mark.parametrize("token", ["a\r\nX: y", "é", "a\n"])
def test_a_token_cannot_smuggle_a_header(token: str) -> None:
    with pytest.raises(FlockError, match="copy it again"):
        AdminClient(token=token)


def test_the_token_goes_along_and_a_prefix_of_the_address_is_kept() -> None:
    with stub(http(200, {"gauges": {}, "counters": {"x": 1}})) as server:
        stats = AdminClient(server.url + "/broker/", "secret").stats()
    assert stats.counters == {"x": 1}
    assert server.requests[0].startswith(b"GET /broker/api/v1/stats HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer secret\r\n" in server.requests[0]


def test_names_are_escaped_in_the_path() -> None:
    with stub(http(204, b""), http(204, b"")) as server:
        client = AdminClient(server.url)
        client.kick("a/b?c#d é")
        client.unban("username", "../x")
    assert server.requests[0].startswith(b"DELETE /api/v1/connections/a%2Fb%3Fc%23d%20%C3%A9 HTTP")
    assert server.requests[1].startswith(b"DELETE /api/v1/bans/username/..%2Fx HTTP")


def test_a_payload_of_any_bytes_is_published() -> None:
    with stub(http(200, {"matched": 2, "retained": False})) as server:
        assert AdminClient(server.url).publish("a", b"\x00\xff", qos=1).matched == 2
    body = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert (body["payload_base64"], body["qos"], body["topic"]) == ("AP8=", 1, "a")


def test_listings_follow_their_cursor_also_over_empty_pages() -> None:
    ban = {"kind": "client", "value": "x", "reason": "", "created_at": "", "expires_at": None}
    pages = [{"items": [ban], "next": "w.1"}, {"items": [], "next": "w.2"}, {"items": [ban], "next": None}]
    with stub(*(http(200, page) for page in pages)) as server:
        assert len(list(AdminClient(server.url).bans(kind="client"))) == 2
    lines = [request.partition(b"\r\n")[0].decode() for request in server.requests]
    assert lines == [
        "GET /api/v1/bans?kind=client&limit=1000 HTTP/1.1",
        "GET /api/v1/bans?kind=client&limit=1000&after=w.1 HTTP/1.1",
        "GET /api/v1/bans?kind=client&limit=1000&after=w.2 HTTP/1.1",
    ]


def test_a_listing_that_nobody_reads_asks_nothing() -> None:
    AdminClient("http://127.0.0.1:1").sessions()


def test_the_brokers_own_words_are_passed_on() -> None:
    answer = {"error": {"code": "not_found", "message": "There is no session of client 'x'; look again"}}
    with stub(http(404, answer)) as server, pytest.raises(ApiError) as refused:
        AdminClient(server.url).session("x")
    assert (refused.value.status, refused.value.code) == (404, "not_found")
    assert str(refused.value) == "There is no session of client 'x'; look again"


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = AdminClient(f"http://127.0.0.1:{port}")
    with pytest.raises(UnreachableError) as unreachable:
        client.node()
    assert str(unreachable.value).startswith(f"No broker answers at http://127.0.0.1:{port} (")
    assert "flockmq start" in str(unreachable.value)
    assert client.is_live() is False
    assert client.is_ready() is False


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP|No broker answers"),
        (http(200, b"<html>"), "something else than a FlockMQ admin API"),
        (http(200, {"name": "n"}), "same version"),
        (http(404, b"nginx"), "HTTP status 404"),
        (http(302, b""), "HTTP status 302"),
    ],
)
def test_somebody_else_there(answer: bytes, sentence: str) -> None:
    with stub(answer) as server, pytest.raises(UnreachableError, match=sentence):
        AdminClient(server.url).node()


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UnreachableError, match=r"did not answer within 0\.05 s"):
            AdminClient(f"http://127.0.0.1:{port}", timeout_s=0.05).node()


def test_tls_where_there_is_none() -> None:
    with stub(http(400, b"")) as server, pytest.raises(UnreachableError, match="TLS"):
        AdminClient(server.url.replace("http", "https"), ssl_context=ssl.create_default_context()).node()


@pytest.mark.parametrize("host", ["[::1%nowhere]", "x" * 64, "a..b"])
def test_a_host_that_does_not_exist(host: str) -> None:
    with pytest.raises(UnreachableError, match="FLOCKMQ_SERVER"):
        AdminClient(f"http://{host}:1").node()


def test_every_operation_of_the_api_has_its_method() -> None:
    missing = {operation.name for operation in OPERATIONS} - set(METHODS)
    assert missing == {"getDocs"}
    assert all(hasattr(AdminClient, method) for method in METHODS.values())


METHODS = {
    "getCluster": "cluster",
    "joinCluster": "join",
    "leaveCluster": "leave",
    "listRoutes": "routes",
    "explain": "explain",
    "listTopics": "topics",
    "createTopic": "create_topic",
    "getTopic": "topic",
    "alterTopic": "alter_topic",
    "deleteTopic": "delete_topic",
    "listTopicPartitions": "topic_partitions",
    "startScrub": "scrub",
    "acceptLoss": "accept_loss",
    "readRecords": "records",
    "getHeads": "heads",
    "getOffsets": "offsets_at",
    "publishRecords": "publish_records",
    "stageBatch": "stage_batch",
    "commitSink": "commit_sink",
    "getSink": "sink",
    "dropStages": "drop_stages",
    "listGroups": "groups",
    "createGroup": "create_group",
    "getGroup": "group",
    "alterGroup": "alter_group",
    "deleteGroup": "delete_group",
    "pauseGroup": "pause_group",
    "resumeGroup": "resume_group",
    "resetGroup": "reset_group",
    "peekRecords": "peek_records",
    "fetchRecords": "fetch_records",
    "ackRecords": "ack_records",
    "nackRecords": "nack_records",
    "extendRecords": "extend_records",
    "listDead": "dead_letters",
    "redriveDead": "redrive_dead",
    "dropDead": "drop_dead",
    "listPartitions": "partitions",
    "getPartition": "partition",
    "startRebalance": "rebalance",
    "getRebalance": "rebalance_progress",
    "applyAdvice": "apply_advice",
    "removeNode": "remove_node",
    "getDump": "dump",
    "listCursors": "cursors",
    "createCursor": "create_cursor",
    "getCursor": "cursor",
    "resetCursor": "reset_cursor",
    "commitCursor": "commit_cursor",
    "deleteCursor": "delete_cursor",
    "listNamespaces": "namespaces",
    "createNamespace": "create_namespace",
    "getNamespace": "namespace",
    "alterNamespace": "alter_namespace",
    "deleteNamespace": "delete_namespace",
    "listRegisteredClients": "registered_clients",
    "registerClient": "register_client",
    "getRegisteredClient": "registered_client",
    "alterRegisteredClient": "alter_client",
    "deleteRegisteredClient": "delete_client",
    "getAcl": "acl",
    "putAcl": "put_acl",
    "deleteAcl": "delete_acl",
    "getNode": "node",
    "getStats": "stats",
    "getConfig": "config",
    "reload": "reload",
    "listConnections": "connections",
    "getConnection": "connection",
    "kickConnection": "kick",
    "listSessions": "sessions",
    "getSession": "session",
    "deleteSession": "delete_session",
    "listSessionSubscriptions": "session_subscriptions",
    "listSubscriptions": "subscriptions",
    "publish": "publish",
    "listRetained": "retained",
    "getRetained": "retained_message",
    "deleteRetained": "delete_retained",
    "listBans": "bans",
    "addBan": "ban",
    "removeBan": "unban",
    "getOpenapi": "openapi",
    "getMetrics": "metrics",
    "getLive": "is_live",
    "getReady": "is_ready",
}


def test_the_client_loads_no_server() -> None:
    """Commands start quickly because of what they don't import."""
    heavy = ("aiohttp", "asyncio", "prometheus_client", "flockmq.node", "flockmq.admin.api")
    code = f"import flockmq.client.admin, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
