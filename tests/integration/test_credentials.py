"""One user, several clusters at one address, one after the other: each gets its own token, and no other."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from flockmq.security import credentials
from flockmq.testing.ports import free_port
from integration.support.process import BrokerProcess, environment, flockmq

WITHOUT_API = ("--allow-anonymous", "--mqtt-port", "0", "--ws-port", "0", "--port", "0")


def started(folder: Path, data: str, port: int) -> BrokerProcess:
    return BrokerProcess(folder, *WITHOUT_API, "--data-dir", str(folder / data), "--api-port", str(port))


def test_two_clusters_take_turns_at_an_address(tmp_path: Path) -> None:
    port = free_port()
    for data in ("first", "second", "first", "second"):
        with started(tmp_path, data, port) as broker:
            broker.until("ready")
            answer = broker.ask("status")
            assert answer.returncode == 0, answer.stderr
            assert broker.stop() == 0
    assert "admin_wrong_token" not in {line["event"] for line in broker.log}


def test_a_token_that_was_kept_by_address_alone_still_works(tmp_path: Path) -> None:
    port = free_port()
    own = environment(tmp_path)
    with started(tmp_path, "first", port) as broker:
        url = broker.server
        token = credentials.load(url, own)
        path = credentials.credentials_path(own)
        path.write_text(f'[servers."{url}"]\ntoken = "{token}"\n')
        assert broker.ask("status").returncode == 0
        broker.stop()
    with started(tmp_path, "second", port) as broker:
        assert broker.ask("status").returncode == 0
        broker.stop()
    with started(tmp_path, "first", port) as broker:
        answer = broker.ask("status")
        assert answer.returncode == 0, answer.stderr


def test_login_keeps_a_token_beside_others(tmp_path: Path) -> None:
    port = free_port()
    other = tmp_path / "other"
    other.mkdir()
    with started(other, "data", port) as broker:
        token = credentials.load(broker.server, environment(other))
        assert token is not None
        credentials.save(
            broker.server, "flockmq_of_another_cluster_at_this_address", environment(tmp_path), cluster="1" * 16
        )
        said = flockmq(tmp_path, "login", stdin=f"{token}\n".encode(), FLOCKMQ_SERVER=broker.server)
        assert said.returncode == 0, said.stderr
        assert flockmq(tmp_path, "status", FLOCKMQ_SERVER=broker.server).returncode == 0
    assert len(credentials.kept(broker.server, environment(tmp_path))) == 2


def test_a_stranger_at_another_address_gets_no_token(tmp_path: Path) -> None:
    """Whatever cluster it says it is: a token goes to the addresses that it was kept for."""
    own = environment(tmp_path)
    cluster = "abcdef0123456789"
    credentials.save("http://127.0.0.1:18083", "flockmq_secret", own, cluster=cluster)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65_536))
                    challenge = f'Bearer realm="flockmq", cluster="{cluster}"'
                    body = b'{"error": {"code": "unauthorized", "message": "no"}}'
                    head = f"HTTP/1.1 401 No\r\nWWW-Authenticate: {challenge}\r\nContent-Length: {len(body)}\r\n\r\n"
                    connection.sendall(head.encode() + body)

        thread = threading.Thread(target=serve)
        thread.start()
        said = flockmq(tmp_path, "status", FLOCKMQ_SERVER=f"http://127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert said.returncode != 0
    assert heard
    assert not [one for one in heard if b"flockmq_secret" in one]
