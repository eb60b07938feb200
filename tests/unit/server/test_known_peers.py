from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.peering.contact import Contact
from flockmq.peering.formation import Ballot
from flockmq.server.known_peers import PEERS_MAX, KnownPeer, KnownPeers, load_ballot, save_ballot


def peer(node_id: int, seen_ms: int = 1, host: str = "host") -> KnownPeer:
    return KnownPeer(node_id, f"n{node_id}@{host}", Contact(host, 16_000), seen_ms)


def test_peers_come_back(tmp_path: Path) -> None:
    assert KnownPeers(tmp_path).load() == []
    peers = [peer(2**64 - 1, 5), peer(2, 9, "fe80::1")]
    assert KnownPeers(tmp_path).save(peers)
    again = KnownPeers(tmp_path)
    assert again.load() == [peers[1], peers[0]]
    assert again.trouble == ""
    assert (tmp_path / "peers.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["peers.json"]


def test_nothing_is_written_for_news_of_being_alive(tmp_path: Path) -> None:
    known = KnownPeers(tmp_path)
    assert known.save([peer(1), peer(2)])
    assert not known.save([peer(2, 99), peer(1, 98)])
    assert known.save([peer(2, 99), peer(1, 98, "elsewhere")])


def test_the_file_is_bounded_and_keeps_who_was_seen_last(tmp_path: Path) -> None:
    KnownPeers(tmp_path).save([peer(node_id, node_id) for node_id in range(2 * PEERS_MAX)])
    kept = KnownPeers(tmp_path).load()
    assert len(kept) == PEERS_MAX
    assert kept[-1].node_id == PEERS_MAX


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"version": 1, "peers": [{"node_id": "x", "name": "", "host": "h", "port": 1, "seen_ms": 1}]}',
        b'{"version": 1, "peers": [{"node_id": "1", "name": "", "host": "h h", "port": 1, "seen_ms": 1}]}',
        b" " * (1024 * 1024 + 1),
    ],
)
def test_a_damaged_file_is_put_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "peers.json").write_bytes(content)
    known = KnownPeers(tmp_path)
    assert known.load() == []
    assert "put aside" in known.trouble
    assert (tmp_path / "peers.json.damaged").read_bytes() == content
    assert known.save([peer(1)])


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    KnownPeers(tmp_path).save([peer(1)])
    (tmp_path / "peers.json.partial").write_bytes(b"{half")
    assert KnownPeers(tmp_path).load() == [peer(1)]


def test_another_cluster_begins_without(tmp_path: Path) -> None:
    known = KnownPeers(tmp_path)
    known.save([peer(1)])
    known.forget()
    known.forget()
    assert KnownPeers(tmp_path).load() == []
    assert known.save([peer(1)])


def test_promises_come_back(tmp_path: Path) -> None:
    assert load_ballot(tmp_path) == Ballot()
    save_ballot(tmp_path, Ballot(3, 2**64 - 1, 7))
    assert load_ballot(tmp_path) == Ballot(3, 2**64 - 1, 7)


@pytest.mark.parametrize("content", [b"{", b'{"version": 1, "attempt": 1, "promised_to": "no", "promised_attempt": 1}'])
def test_a_promise_that_cannot_be_read_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "formation.json").write_bytes(content)
    with pytest.raises(FlockError, match="put back the original"):
        load_ballot(tmp_path)


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FlockError, match="can't be written"):
        save_ballot(tmp_path / "missing", Ballot())
