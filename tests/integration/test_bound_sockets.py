"""Where a broker can be reached, as the kernel tells it: every socket of the process, TCP and UDP."""

from __future__ import annotations

import re
import secrets
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from integration.support.process import FREE_PORTS, BrokerProcess, flockmq

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
OPEN = ("--allow-anonymous", *FREE_PORTS)
LISTENS = "0A"


def bound(pid: int) -> dict[str, set[str]]:
    """The addresses that a process listens on (``tcp``) or has bound (``udp``), without its ports."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            inodes.update(re.findall(r"^socket:\[(\d+)\]$", str(link.readlink())))
    found: dict[str, set[str]] = {"tcp": set(), "udp": set()}
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (kind.startswith("udp") or fields[3] == LISTENS):
                found[kind[:3]].add(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> str:
    """The kernel writes addresses as words in its own byte order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    raw = b"".join(words)
    return str(IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw))


def test_a_broker_for_this_machine_listens_on_loopback_alone(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *OPEN) as broker:
        broker.until("ready")
        assert broker.until("cluster_listening")["host"] == "127.0.0.1"
        found = bound(broker.process.pid)
        assert found["tcp"] <= {"127.0.0.1", "::1"}
        assert found["udp"] == {"127.0.0.1"}
        refused = broker.ask("cluster", "join", "192.0.2.1:16000")
        assert refused.returncode == 1
        assert "--advertise-host" in refused.stderr


def test_a_broker_with_users_serves_them_everywhere_and_other_nodes_here(tmp_path: Path) -> None:
    users = tmp_path / "users"
    assert flockmq(tmp_path, "passwd", str(users), "alice", "--stdin", stdin=b"wonderland").returncode == 0
    with BrokerProcess(tmp_path, *FREE_PORTS, "--password-file", str(users)) as broker:
        broker.until("ready")
        assert "0.0.0.0" in bound(broker.process.pid)["tcp"]
        assert bound(broker.process.pid)["udp"] == {"127.0.0.1"}


@pytest.mark.parametrize(
    "asked",
    [("--advertise-host=127.0.0.1",), ("--set=cluster.host=*",), ("--host=*",), ("--join=127.0.0.1:1",)],
    ids=["advertised", "set", "host", "join"],
)
def test_other_machines_reach_a_node_that_was_told_of_them(tmp_path: Path, asked: tuple[str, ...]) -> None:
    with BrokerProcess(tmp_path, *OPEN, *asked) as broker:
        broker.until("cluster_listening")
        assert "0.0.0.0" in bound(broker.process.pid)["udp"]
        assert "0.0.0.0" in bound(broker.process.pid)["tcp"]


def test_a_node_that_joined_on_this_machine_stays_on_it_after_a_restart(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    cookie = {"FLOCKMQ_COOKIE": secrets.token_hex(32)}
    with BrokerProcess(folders[0], *OPEN, **cookie) as first:
        port = first.until("cluster_listening")["port"]
        with BrokerProcess(folders[1], *OPEN, **cookie) as second:
            joined = second.ask("cluster", "join", f"127.0.0.1:{port}")
            assert joined.returncode == 0, joined.stderr
            second.stop()
        with BrokerProcess(folders[1], *OPEN, **cookie) as second:
            second.until("ready")
            assert bound(second.process.pid)["udp"] == {"127.0.0.1"}
            members = second.ask("cluster", "status", "--json")
            assert members.stdout.count('"alive"') == 2, members.stdout
