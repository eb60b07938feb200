"""Peers and promises in the data folder, with which a node gets back into its cluster after a restart.

```
 DATA_DIR/peers.json       the other members as last seen: the way back when the first contact point is gone
          formation.json   what this node promised before it had a cluster (peering.formation)
```
Each is replaced whole: written beside, synced, renamed. `peers.json` holds hints: one that can't be read is put aside
and the node starts without. `formation.json` holds a promise: one that can't be read stops the start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from flockmq.errors import FlockError
from flockmq.peering.contact import Contact, make_contact
from flockmq.peering.formation import Ballot
from flockmq.server.data_dir import PEERS_FILE

PEERS_MAX: Final = 1_000
"""Most peers kept; those seen last stay."""
FILE_BYTES_MAX: Final = 1024 * 1024
_VERSION: Final = 1


class KnownPeer(NamedTuple):
    """Another member as this node last saw it."""

    node_id: int
    name: str
    contact: Contact
    seen_ms: int
    """Wall clock."""


class _PeerText(msgspec.Struct):
    node_id: str
    name: str
    host: str
    port: int
    seen_ms: int


class _PeersText(msgspec.Struct):
    version: int
    peers: list[_PeerText]


class _BallotText(msgspec.Struct):
    version: int
    attempt: int
    promised_to: str
    promised_attempt: int


_Text = TypeVar("_Text", bound=msgspec.Struct)


class KnownPeers:
    """The peers of one data folder; ``trouble`` says why a file was put aside, if one was."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / PEERS_FILE
        self._written: list[KnownPeer] = []
        self.trouble = ""

    def load(self) -> list[KnownPeer]:
        """The peers on disk, seen last first."""
        try:
            text = _read(self._path, _PeersText)
            self._written = [] if text is None else [_peer(entry) for entry in text.peers[:PEERS_MAX]]
        except FlockError as error:
            self._written = []
            self.trouble = f"{error} It was put aside as {self._path.name}.damaged; the node starts without it."
            self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
        return list(self._written)

    def save(self, peers: list[KnownPeer]) -> bool:
        """Keep these, if they differ in more than when they were seen; whether something was written. Blocks."""
        newest = sorted(peers, key=lambda peer: (-peer.seen_ms, peer.node_id))[:PEERS_MAX]
        if _facts(newest) == _facts(self._written):
            return False
        entries = [
            _PeerText(f"{peer.node_id:016x}", peer.name, peer.contact.host, peer.contact.port, peer.seen_ms)
            for peer in newest
        ]
        _replace(self._path, _PeersText(_VERSION, entries))
        self._written = newest
        return True

    def forget(self) -> None:
        """This node belongs to another cluster now."""
        self._path.unlink(missing_ok=True)
        self._written = []


def load_ballot(data_dir: Path) -> Ballot:
    """The promise of this node; FlockError when its file can't be read."""
    path = data_dir / "formation.json"
    text = _read(path, _BallotText)
    if text is None:
        return Ballot()
    try:
        return Ballot(text.attempt, int(text.promised_to, 16), text.promised_attempt)
    except ValueError:
        raise FlockError(_damaged(path, "its promise is no node id")) from None


def save_ballot(data_dir: Path, ballot: Ballot) -> None:
    """Make a promise durable. Blocks until it is on disk."""
    text = _BallotText(_VERSION, ballot.attempt, f"{ballot.promised_to:016x}", ballot.promised_attempt)
    _replace(data_dir / "formation.json", text)


def _peer(entry: _PeerText) -> KnownPeer:
    try:
        node_id = int(entry.node_id, 16)
    except ValueError:
        raise FlockError(f"A peer on disk has the id {entry.node_id!r}.") from None
    return KnownPeer(node_id, entry.name, make_contact(entry.host, entry.port), entry.seen_ms)


def _facts(peers: list[KnownPeer]) -> set[tuple[int, str, Contact]]:
    return {(peer.node_id, peer.name, peer.contact) for peer in peers}


def _damaged(path: Path, why: str) -> str:
    return f"{path} can't be read ({why}); put back the original, or delete it if this node was never in a cluster."


def _read(path: Path, kind: type[_Text]) -> _Text | None:
    """The content of a file; None when there is no file."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FlockError(_damaged(path, error.strerror or str(error))) from None
    try:
        if len(data) > FILE_BYTES_MAX:
            raise FlockError(_damaged(path, f"it has more than {FILE_BYTES_MAX:,} bytes"))
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FlockError(_damaged(path, str(error))) from None


def _replace(path: Path, content: msgspec.Struct) -> None:
    partial = path.with_name(f"{path.name}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise FlockError(f"{path} can't be written ({error.strerror}); is the disk full, or the folder gone?") from None
