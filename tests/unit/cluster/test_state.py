from __future__ import annotations

import msgspec

from flockmq.cluster.commands import COMMAND_BYTES_MAX, INVALID, CreateTopic, PutClient, SetSetting, encode_envelope
from flockmq.cluster.model import Versions
from flockmq.cluster.state import ClusterState
from state_cases import Machine


def test_the_index_counts_what_was_applied_refused_or_not() -> None:
    state = ClusterState()
    assert state.index == 0
    assert state.apply(encode_envelope(1, 1, 1, 1, SetSetting("a", 1))).ok
    assert not state.apply(encode_envelope(1, 1, 2, 1, SetSetting("a/b", 1))).ok
    assert state.index == 2


def test_what_is_not_known_is_refused_and_harms_nothing() -> None:
    state = ClusterState()
    for data in (b"", b"junk", b"\xc1" * 20, msgspec.msgpack.encode((1, 1, 1, 1, (200, 1)))):
        result = state.apply(data)
        assert not result.ok
        assert result.code == INVALID
    assert state.apply(bytes(COMMAND_BYTES_MAX + 1)).code == INVALID
    assert state.index == 5
    state.index = 0
    assert state.encode() == ClusterState().encode()


def test_versions_say_which_section_changed() -> None:
    machine = Machine(1)
    assert machine.state.versions == Versions(nodes=1)
    machine.done(SetSetting("a", 1))
    machine.done(PutClient("default", "bob"))
    machine.topic("t")
    machine.apply(CreateTopic("t"))
    assert machine.state.versions == Versions(nodes=1, settings=2, clients=3, topics=4)


def test_records_are_never_changed_only_replaced() -> None:
    machine = Machine(3)
    before = machine.topic("t", shards=2)
    kept = machine.state.topics["default/t"]
    machine.node(4)
    machine.done(CreateTopic("u", filters=("u",)))
    assert machine.state.topics["default/t"] is kept
    assert kept == before
