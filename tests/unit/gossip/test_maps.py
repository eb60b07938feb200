"""Owned maps: who gets what, in which order, who is believed, and what is said when nothing happens."""

from __future__ import annotations

import random

import pytest

from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_codec import (
    BOOT_MAX,
    CLAIMS,
    DELTA,
    FULL,
    HAVE,
    PULL,
    STATE,
    STOP,
    FullHead,
    MapsError,
    decode_list,
    decode_progress,
    encode_buckets,
    encode_delta,
    encode_entry,
    encode_full,
    encode_list,
    encode_pair,
    encode_progress,
)
from flockmq.gossip.maps_settings import MapsSettings
from maps_network import SMALL, Network


class Box:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[int, bytes]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel == 2
        self.said.append((peer, body))

    def kinds(self, peer: int) -> list[int]:
        """What was said to this peer since the last call."""
        kinds = [body[0] for to, body in self.said if to == peer]
        self.said = []
        return kinds


def alone(settings: MapsSettings = SMALL, boot: int = 5) -> tuple[OwnedMaps, Box]:
    box = Box()
    return OwnedMaps(1, boot, box, settings, random.Random(1), 0), box


def linked(count: int) -> Network:
    network = Network(count)
    network.heal()
    return network


def view(network: Network, at: int, owner: int) -> dict[bytes, bytes]:
    return dict(network.nodes[at].maps.items(owner))


# --- the own map ---


def test_each_change_has_its_version_and_what_changes_nothing_has_none() -> None:
    maps, _ = alone()
    assert maps.set(b"a", b"1") == 1
    assert maps.set(b"a", b"1") == 1
    assert maps.set(b"a", b"2") == 2
    assert maps.delete(b"b") == 2
    assert maps.delete(b"a") == 3
    assert maps.version == 3
    assert maps.get(1, b"a") is None


def test_a_turn_is_one_message_with_the_last_change_of_each_key() -> None:
    network = linked(2)
    network.set(1, b"a", b"1")
    network.set(1, b"a", b"2")
    network.set(1, b"b", b"1")
    network.set(1, b"b", None)
    before = network.nodes[2].maps.report.deltas_applied
    network.settle()
    assert network.nodes[2].maps.report.deltas_applied == before + 1
    assert view(network, 2, 1) == {b"a": b"2"}
    assert network.nodes[1].maps.acknowledged(2) == 4


def test_without_room_a_change_is_left_out_counted_and_reported_once() -> None:
    maps, _ = alone(MapsSettings(keys_max=2))
    assert maps.set(b"a", b"1") == 1
    assert maps.set(b"b", b"1") == 2
    assert not maps.has_room(b"c", b"1")
    assert maps.set(b"c", b"1") == 2
    assert maps.set(b"d", b"1") == 2
    assert maps.report.refused == 2
    assert [event.kind for event in maps.take_events()] == ["map_full"]
    assert maps.set(b"a", b"2") == 3  # what is there can change
    maps.delete(b"b")
    assert maps.has_room(b"c", b"1")
    assert maps.set(b"c", b"1") == 5


def test_bounds_count_bytes_too() -> None:
    maps, _ = alone(MapsSettings(bytes_max=100, key_bytes_max=50, value_bytes_max=60))
    maps.set(b"k", b"x" * 60)
    maps.set(b"l", b"x" * 60)
    maps.set(b"m" * 51, b"")
    maps.set(b"m", b"x" * 61)
    assert dict(maps.items(1)) == {b"k": b"x" * 60}
    assert maps.set(b"k", b"x") == 2
    assert maps.set(b"l", b"x" * 60) == 3


def test_a_hundred_thousand_routes_in_one_turn() -> None:
    network = Network(3, MapsSettings(), checked=False)
    network.heal()
    maps = network.nodes[1].maps
    for number in range(100_000):
        maps.set(b"r/%d/+/state" % number, b"1")
    network.settle()
    assert [maps.acknowledged(peer) for peer in (2, 3)] == [100_000, 100_000]
    assert len(network.nodes[2].view[1]) == 100_000
    assert network.nodes[2].maps.report.fulls_applied <= 2  # those of the beginning: the rest came as changes


# --- acknowledgements ---


def test_nothing_is_acknowledged_before_the_changes_are_taken() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.take_changes()
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    box.said = []
    maps.flush(0)
    assert HAVE not in box.kinds(2)
    assert [(change.owner, change.key, change.value) for change in maps.take_changes()] == [(2, b"a", b"1")]
    maps.flush(0)
    assert (2, encode_pair(HAVE, 9, 1)) in box.said


def test_changes_that_are_taken_in_slices_are_acknowledged_up_to_what_was_taken() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.peer_up(3, 0)
    maps.take_changes()
    maps.flush(0)
    maps.receive(2, encode_delta(2, 9, 0, 2, {b"a": b"1", b"b": b"1"}), 0)
    maps.receive(2, encode_delta(2, 9, 2, 4, {b"a": None, b"c": b"1"}), 0)
    maps.receive(3, encode_delta(3, 9, 0, 1, {b"x": b"1"}), 0)
    slices = []
    for _ in range(3):
        box.said = []
        taken = maps.take_changes(2)
        maps.flush(0)
        slices.append(([(change.owner, change.key) for change in taken], box.said))
    assert slices == [
        ([(2, b"a"), (2, b"b")], [(2, encode_pair(HAVE, 9, 2))]),
        ([(2, b"a"), (2, b"c")], [(2, encode_pair(HAVE, 9, 4))]),
        ([(3, b"x")], [(3, encode_pair(HAVE, 9, 1))]),
    ]
    assert maps.changes_left() == 0


def test_nothing_is_acknowledged_that_was_left_over_from_before_a_death() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.peer_alive(2, 9, 0)
    maps.take_changes()
    maps.receive(2, encode_delta(2, 9, 0, 2, {b"a": b"1", b"b": b"1"}), 0)
    assert len(maps.take_changes(1)) == 1
    maps.peer_dead(2, 0)
    maps.peer_alive(2, 9, 0)
    box.said = []
    left = [(change.key, change.value) for change in maps.take_changes()]
    maps.flush(0)
    assert left == [(b"b", b"1"), (b"a", None), (b"b", None)]
    assert HAVE not in box.kinds(2)


def test_changes_of_one_turn_are_acknowledged_once() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.take_changes()
    maps.flush(0)
    box.said = []
    for version in range(5):
        maps.receive(2, encode_delta(2, 9, version, version + 1, {b"a": b"%d" % version}), 0)
    maps.take_changes()
    maps.flush(0)
    assert box.said == [(2, encode_pair(HAVE, 9, 5))]


def test_an_acknowledgement_of_another_boot_counts_for_nothing() -> None:
    maps, _ = alone(boot=5)
    maps.set(b"a", b"1")
    maps.peer_up(2, 0)
    maps.flush(0)
    maps.receive(2, encode_pair(HAVE, 4, 1), 0)
    assert maps.acknowledged(2) == 0
    maps.receive(2, encode_pair(HAVE, 5, 1), 0)
    assert maps.acknowledged(2) == 1


def test_without_a_link_nothing_counts_as_acknowledged() -> None:
    network = linked(2)
    network.set(1, b"a", b"1")
    network.settle()
    assert network.nodes[1].maps.acknowledged(2) == 1
    network.cut(1, 2)
    network.notice(1, 2)
    assert network.nodes[1].maps.acknowledged(2) == 0
    network.heal()
    assert network.nodes[1].maps.acknowledged(2) == 1


def test_a_peer_that_takes_us_for_dead_says_that_it_has_nothing_of_ours() -> None:
    network = linked(2)
    network.set(1, b"a", b"1")
    network.settle()
    network.dead(2, 1)
    network.settle()
    assert network.nodes[1].maps.acknowledged(2) == 0
    network.set(1, b"b", b"1")
    network.settle()
    assert view(network, 2, 1) == {}
    network.alive(2, 1)
    network.settle()
    assert view(network, 2, 1) == {b"a": b"1", b"b": b"1"}
    assert network.nodes[1].maps.acknowledged(2) == 2


# --- order ---


def test_changes_that_do_not_follow_on_are_asked_for_and_not_applied() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.flush(0)
    box.said = []
    now = 10_000
    maps.receive(2, encode_delta(2, 9, 4, 5, {b"a": b"1"}), now)
    maps.receive(2, encode_delta(2, 9, 5, 6, {b"b": b"1"}), now)
    assert maps.take_changes() == []
    maps.flush(now)
    assert box.said == [(2, encode_list(PULL, 0, [(2, 0, 0)]))]
    assert not maps.is_level(2)


def test_what_came_already_and_what_is_of_a_former_life_changes_nothing() -> None:
    maps, _ = alone()
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 2, {b"a": b"1"}), 0)
    maps.receive(2, encode_delta(2, 9, 0, 2, {b"a": b"0"}), 0)
    maps.receive(2, encode_delta(2, 8, 0, 7, {b"a": b"0"}), 0)
    assert [(change.key, change.value) for change in maps.take_changes()] == [(b"a", b"1")]
    assert maps.place_of(2) == (9, 2)


def test_a_restarted_owner_changes_only_what_is_different() -> None:
    network = linked(2)
    for key in (b"same", b"other", b"gone"):
        network.set(1, key, b"1")
    network.settle()
    network.restart(1)
    network.set(1, b"same", b"1")
    network.set(1, b"other", b"2")
    network.set(1, b"new", b"1")
    network.nodes[1].end_turn()
    network.join(1, 2)
    seen: list[tuple[bytes, bytes | None]] = []
    for _ in range(4):
        for number in (1, 2):
            node = network.nodes[number]
            queue = network.links[frozenset((1, 2))].queues[number]
            while queue:
                node.maps.receive(3 - number, queue.popleft(), network.now)
            changes = node.maps.take_changes()
            seen += [(change.key, change.value) for change in changes if change.owner == 1]
            node.maps.flush(network.now)
    assert seen == [(b"gone", None), (b"other", b"2"), (b"new", b"1")]


def test_a_restarted_owner_without_anything_leaves_nothing() -> None:
    network = linked(3)
    network.set(1, b"a", b"1")
    network.settle()
    network.restart(1)
    network.join(1, 2)
    network.settle()
    assert view(network, 2, 1) == {}
    assert view(network, 3, 1) == {b"a": b"1"}
    network.heal()
    assert view(network, 3, 1) == {}


def test_a_clock_that_was_set_back_does_not_leave_the_old_map_in_force() -> None:
    network = linked(3)
    network.set(1, b"old", b"1")
    network.settle()
    boot = network.nodes[1].maps.boot
    network.restart(1, boot - 5_000)
    network.set(1, b"new", b"1")
    network.heal()
    network.check_equal()
    assert view(network, 2, 1) == {b"new": b"1"}
    assert network.nodes[1].maps.boot > boot
    assert "map_boot_raised" in [event.kind for event in network.nodes[1].maps.take_events()]


def test_nobody_can_drive_the_boot_over_its_end() -> None:
    maps, _ = alone(boot=5)
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(CLAIMS, 0, [(1, BOOT_MAX, 1)]), 0)
    assert maps.boot == 5


# --- life ---


def test_a_dead_owner_is_gone_and_comes_back_with_the_same_boot() -> None:
    network = linked(3)
    network.set(3, b"a", b"1")
    network.set(3, b"b", b"1")
    network.settle()
    for at in (1, 2):
        network.cut(at, 3)
        for end in (at, 3):
            network.notice(end, at + 3 - end)
        network.dead(at, 3)
        network.dead(3, at)
    network.settle()
    assert network.nodes[1].view[3] == {}
    assert network.nodes[1].maps.owners() == [1, 2]
    network.heal()
    network.check_equal()
    assert view(network, 1, 3) == {b"a": b"1", b"b": b"1"}


def test_nobody_brings_back_a_dead_owners_map() -> None:
    network = linked(3)
    network.set(3, b"a", b"1")
    network.settle()
    network.cut(1, 3)
    network.notice(1, 3)
    network.dead(1, 3)
    network.run(5_000)  # node 2 has the map, and says so
    assert view(network, 1, 3) == {}
    maps = network.nodes[1].maps
    boot = network.nodes[3].maps.boot
    maps.receive(3, encode_pair(STATE, boot, 1), network.now)  # late words of its link
    maps.receive(3, encode_delta(3, boot, 0, 1, {b"a": b"1"}), network.now)
    maps.receive(2, encode_list(CLAIMS, 0, [(3, boot, 1)]), network.now)
    assert maps.take_changes() == []
    assert maps.owners() == [1, 2]
    network.alive(1, 3)
    network.run(2_000)
    assert view(network, 1, 3) == {b"a": b"1"}


def test_maps_of_nodes_that_membership_does_not_know_are_not_taken_from_others() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.flush(0)
    box.said = []
    maps.receive(2, encode_list(CLAIMS, 0, [(3, 9, 4)]), 0)
    maps.receive(2, encode_delta(3, 9, 0, 4, {b"a": b"1"}), 0)
    maps.flush(0)
    assert maps.take_changes() == []
    assert box.said == []


def test_a_stranger_is_forgotten_some_time_after_its_link() -> None:
    maps, _ = alone()
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.take_changes()
    maps.peer_down(2, 1_000)
    maps.tick(1_000 + SMALL.forget_ms - 1)
    assert maps.get(2, b"a") == b"1"
    maps.tick(1_000 + SMALL.forget_ms)
    assert [(change.key, change.value) for change in maps.take_changes()] == [(b"a", None)]
    assert maps.owners() == [1]


def test_a_known_node_keeps_its_map_while_its_link_is_down() -> None:
    maps, _ = alone()
    maps.peer_alive(2, 9, 0)
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.peer_down(2, 1_000)
    maps.tick(1_000_000)
    assert maps.get(2, b"a") == b"1"


def test_a_former_life_is_void_once_membership_knows_of_a_new_one() -> None:
    maps, _ = alone()
    maps.peer_up(3, 0)
    maps.peer_alive(2, 9, 0)
    maps.receive(3, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.peer_alive(2, 10, 0)
    maps.receive(3, encode_delta(2, 9, 1, 2, {b"b": b"1"}), 0)
    assert dict(maps.items(2)) == {b"a": b"1"}  # kept for comparison with the new map, but nothing is added
    maps.take_changes()
    maps.tick(SMALL.forget_ms)
    assert [(change.key, change.value) for change in maps.take_changes()] == [(b"a", None)]
    maps.receive(3, encode_delta(2, 9, 0, 1, {b"a": b"1"}), SMALL.forget_ms)
    assert maps.take_changes() == []


# --- repair ---


def test_maps_travel_through_third_nodes() -> None:
    network = Network(4)
    line = [(1, 2), (2, 3), (3, 4)]
    network.heal(line)
    network.set(1, b"a", b"1")
    network.set(4, b"b", b"1")
    network.converge(8_000)
    network.check_equal()
    assert view(network, 4, 1) == {b"a": b"1"}
    before = network.nodes[2].maps.report.fulls_applied
    network.set(4, b"c", b"1")
    network.converge(8_000)
    assert view(network, 1, 4) == {b"b": b"1", b"c": b"1"}
    assert network.nodes[2].maps.report.fulls_applied == before  # passed on as changes, not as a whole map


def test_a_link_that_fell_silent_is_gone_round() -> None:
    network = linked(3)
    network.deafen(1, 3)
    network.set(3, b"a", b"1")
    network.run(5_000)
    assert view(network, 1, 3) == {b"a": b"1"}


def test_a_lost_change_is_noticed_by_digest_alone() -> None:
    network = linked(2)
    network.set(1, b"a", b"1")
    network.nodes[1].end_turn()
    network.links[frozenset((1, 2))].queues[2].clear()
    network.datagram(1, 2)
    network.run(1_000)
    assert view(network, 2, 1) == {b"a": b"1"}


def test_digests_have_one_size_and_equal_roots_start_nothing() -> None:
    network = linked(5)
    assert {len(node.maps.digest()) for node in network.nodes.values()} == {25}
    repairs = [node.maps.report.repairs for node in network.nodes.values()]
    for sender in network.nodes:
        for receiver in network.nodes:
            if sender != receiver:
                network.datagram(sender, receiver)
    network.run(3_000)
    assert [node.maps.report.repairs for node in network.nodes.values()] == repairs


@pytest.mark.parametrize("count", [3, 30])
def test_silence_costs_the_same_in_any_cluster(count: int) -> None:
    network = Network(count, MapsSettings(), checked=False)
    for number in network.nodes:
        network.nodes[number].maps.set(b"load", b"%d" % number)
    network.heal()
    before = sum(node.sent_bytes for node in network.nodes.values())
    network.run(10_000)
    assert (sum(node.sent_bytes for node in network.nodes.values()) - before) / count == 10 * 26


def test_a_broken_link_costs_a_few_bytes_when_nothing_was_missed() -> None:
    network = Network(2, MapsSettings(), checked=False)
    for number in range(2_000):
        network.nodes[1].maps.set(b"r/%d" % number, b"1")
    network.heal()
    before = network.nodes[1].sent_bytes
    network.cut(1, 2)
    network.join(1, 2)
    network.settle()
    assert network.nodes[1].sent_bytes - before < 200
    assert network.nodes[1].maps.acknowledged(2) == 2_000


def test_a_whole_map_comes_in_pieces_within_the_window() -> None:
    settings = MapsSettings()
    maps, box = alone(settings)
    for number in range(50_000):
        maps.set(b"r/fleet/%d/%s" % (number, b"x" * 40), b"1")
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 0, 0)]), 0)
    maps.flush(0)
    pieces = [body for _, body in box.said if body[0] == FULL]
    assert len(pieces) == settings.window_chunks
    assert all(len(body) <= settings.chunk_bytes_max for body in pieces)
    maps.flush(0)
    assert len([body for _, body in box.said if body[0] == FULL]) == settings.window_chunks


def test_changes_stay_within_the_window_too() -> None:
    maps, box = alone(SMALL)
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 5, 0)]), 0)
    for number in range(20):
        maps.set(b"a", b"%d" % number)
        maps.flush(0)
    assert box.kinds(2).count(DELTA) == 4
    maps.receive(2, encode_pair(HAVE, 5, 4), 0)
    maps.flush(0)
    assert box.kinds(2) == [FULL]  # its answer opens the window; the log has forgotten what comes next
    maps.set(b"a", b"z")
    maps.flush(0)
    assert box.kinds(2) == [DELTA]


def test_many_maps_for_one_peer_are_spread_over_turns() -> None:
    settings = MapsSettings(window_bytes=1_000)
    maps, box = alone(settings)
    maps.peer_up(2, 0)
    for owner in range(10, 20):
        maps.peer_alive(owner, 1, 0)
        maps.receive(2, encode_delta(owner, 1, 0, 1, {b"k": b"x" * 400}), 0)
    maps.take_changes()
    maps.flush(0)
    box.said = []
    maps.peer_up(3, 0)
    maps.receive(3, encode_list(PULL, 0, [(owner, 0, 0) for owner in range(10, 20)]), 0)
    counts = []
    for _ in range(5):
        maps.flush(0)
        counts.append(box.kinds(3).count(FULL))
    assert counts == [3, 3, 3, 1, 0]


# --- bounds ---


def test_an_owner_beyond_the_bounds_is_truncated_reported_and_refilled() -> None:
    small = MapsSettings(keys_max=10, digest_interval_ms=300)
    network = Network(3, checked=False)
    network.settings = small
    network.restart(2)
    network.heal()
    for number in range(15):
        network.set(1, b"k%d" % number, b"1")
    network.run(1_000)
    node = network.nodes[2]
    assert len(view(network, 2, 1)) == 10
    assert node.view[1] == view(network, 2, 1)
    assert [event.fields["owner"] for event in node.maps.take_events() if event.kind == "map_truncated"] == [1]
    assert network.nodes[1].maps.acknowledged(2) == 15  # it follows as well as it can
    for number in range(8):
        network.set(1, b"k%d" % number, None)
    network.run(2_000)
    assert view(network, 2, 1) == view(network, 1, 1)
    assert node.view[1] == view(network, 1, 1)


def test_a_truncated_map_is_passed_on_to_nobody() -> None:
    maps, box = alone(MapsSettings(keys_max=1))
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 2, {b"a": b"1", b"b": b"1"}), 0)
    maps.take_changes()
    maps.peer_up(3, 0)
    maps.flush(0)
    box.said = []
    maps.receive(3, encode_list(PULL, 0, [(2, 0, 0)]), 0)
    maps.flush(0)
    assert box.said == []


def test_a_value_without_room_is_no_value() -> None:
    maps, _ = alone(MapsSettings(bytes_max=40))
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.receive(2, encode_delta(2, 9, 1, 2, {b"a": b"1" * 60}), 0)
    assert maps.get(2, b"a") is None
    assert [change.value for change in maps.take_changes()] == [b"1", None]


def test_a_peer_too_far_behind_for_the_log_gets_the_whole_map() -> None:
    network = linked(2)
    network.cut(1, 2)
    for number in range(100):
        network.set(1, b"k%d" % (number % 7), b"%d" % number)
        network.nodes[1].end_turn()
    before = network.nodes[2].maps.report.fulls_applied
    network.heal()
    network.check_equal()
    assert network.nodes[2].maps.report.fulls_applied == before + 1


# --- odd orders of events ---


def pieces_of(owner: int, boot: int, version: int, count: int) -> list[bytes]:
    return [
        encode_full(owner, boot, version, index, index == count - 1, 1, [encode_entry(b"k%d" % index, b"%d" % version)])
        for index in range(count)
    ]


def test_pieces_of_different_maps_are_never_mixed() -> None:
    maps, box = alone()
    for peer in (2, 3):
        maps.peer_up(peer, 0)
    maps.flush(0)
    box.said = []
    old, new = pieces_of(2, 9, 5, 3), pieces_of(2, 9, 6, 3)
    maps.receive(2, old[0], 0)
    maps.receive(2, new[1], 0)  # of another version
    maps.receive(3, old[1], 0)  # from another node
    maps.receive(2, old[2], 0)  # too early
    assert [decode_progress(body)[2:] for _, body in box.said] == [(5, 0), (6, STOP), (5, STOP), (5, STOP)]
    assert maps.take_changes() == []
    maps.receive(2, old[1], 0)
    maps.receive(2, old[2], 0)
    assert dict(maps.items(2)) == {b"k0": b"5", b"k1": b"5", b"k2": b"5"}
    assert maps.place_of(2) == (9, 5)


def test_pieces_of_a_former_life_are_refused() -> None:
    maps, box = alone()
    maps.peer_up(3, 0)
    maps.peer_alive(2, 10, 0)
    maps.flush(0)
    box.said = []
    maps.receive(3, pieces_of(2, 9, 5, 1)[0], 0)
    assert maps.take_changes() == []
    assert decode_progress(box.said[0][1])[3] == STOP


def test_half_a_map_is_asked_for_elsewhere_when_its_link_breaks() -> None:
    maps, box = alone()
    maps.peer_alive(2, 9, 0)
    for peer in (2, 3):
        maps.peer_up(peer, 0)
    maps.receive(2, pieces_of(2, 9, 5, 3)[0], 0)
    maps.flush(0)
    maps.peer_down(2, 0)
    box.said = []
    maps.receive(3, encode_list(CLAIMS, 0, [(2, 9, 5)]), 0)
    maps.flush(0)
    assert box.said == [(3, encode_list(PULL, 0, [(2, 0, 0)]))]
    assert dict(maps.items(2)) == {}


def test_a_second_gap_is_asked_for_at_once_when_the_first_is_closed() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.flush(0)
    for first in (2, 4):
        box.said = []
        maps.receive(2, encode_delta(2, 9, first, first + 1, {b"a": b"2"}), 0)
        maps.flush(0)
        assert box.kinds(2) == [PULL]
        maps.receive(2, encode_delta(2, 9, first - 1, first, {b"a": b"3"}), 0)
        maps.receive(2, encode_delta(2, 9, first, first + 1, {b"a": b"2"}), 0)


def test_who_lost_what_it_had_counts_as_having_nothing() -> None:
    maps, _ = alone()
    maps.set(b"a", b"1")
    maps.peer_up(2, 0)
    maps.flush(0)
    maps.receive(2, encode_pair(HAVE, 5, 1), 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 5, 1)]), 0)
    assert maps.acknowledged(2) == 1
    maps.receive(2, encode_list(PULL, 0, [(1, 5, 0)]), 0)
    assert maps.acknowledged(2) == 0


def test_who_takes_us_for_dead_gets_nothing_more() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 5, 0)]), 0)
    maps.set(b"a", b"1")
    maps.flush(0)
    assert DELTA in box.kinds(2)
    maps.receive(2, encode_pair(HAVE, 0, 0), 0)
    maps.set(b"b", b"1")
    maps.flush(0)
    assert box.said == []


def test_what_came_twice_is_acknowledged_again() -> None:
    maps, box = alone()
    maps.peer_up(2, 0)
    delta = encode_delta(2, 9, 0, 1, {b"a": b"1"})
    for _ in range(2):
        maps.receive(2, delta, 0)
        maps.take_changes()
        maps.flush(0)
        assert (2, encode_pair(HAVE, 9, 1)) in box.said
        box.said = []


def test_a_map_on_its_way_to_a_third_node_stops_when_its_owner_dies() -> None:
    maps, box = alone(SMALL)
    for peer in (2, 3):
        maps.peer_up(peer, 0)
    for piece in pieces_of(2, 9, 30, 30):
        maps.receive(2, piece, 0)
    maps.take_changes()
    maps.flush(0)
    box.said = []
    maps.receive(3, encode_list(PULL, 0, [(2, 0, 0)]), 0)
    maps.flush(0)
    assert box.kinds(3) == [FULL, FULL]
    maps.peer_dead(2, 0)
    maps.receive(3, encode_progress(2, 9, 30, 1), 0)
    maps.flush(0)
    assert box.kinds(3) == []


def test_a_map_on_its_way_to_a_third_node_gives_way_to_the_owners_next_life() -> None:
    maps, box = alone(SMALL)
    for peer in (2, 3):
        maps.peer_up(peer, 0)
    for piece in pieces_of(2, 9, 30, 30):
        maps.receive(2, piece, 0)
    maps.receive(3, encode_list(PULL, 0, [(2, 0, 0)]), 0)
    maps.flush(0)
    maps.receive(2, encode_delta(2, 10, 0, 1, {b"new": b"1"}), 0)
    box.said = []
    maps.receive(3, encode_progress(2, 9, 30, 1), 0)
    maps.flush(0)
    assert [FullHead(body).boot for _, body in box.said if body[0] == FULL] == [10]


def test_another_whole_map_waits_until_the_last_one_is_acknowledged() -> None:
    maps, box = alone(SMALL)
    maps.set(b"a", b"1")
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 0, 0)]), 0)
    maps.flush(0)
    assert FULL in box.kinds(2)
    for number in range(40):  # far more than the log and the window hold
        maps.set(b"a", b"%d" % number)
        maps.flush(0)
    assert FULL not in box.kinds(2)
    maps.receive(2, encode_pair(HAVE, 5, 1), 0)
    maps.flush(0)
    assert FULL not in box.kinds(2)  # the changes after it are still on their way
    maps.receive(2, encode_pair(HAVE, 5, 5), 0)
    maps.flush(0)
    assert box.kinds(2) == [FULL]


def test_peers_that_come_later_do_not_get_a_map_that_the_log_does_not_lead_on_from() -> None:
    network = Network(3)
    for number in range(30):
        network.set(1, b"k%d" % number, b"1")
    network.join(1, 2)
    network.deliver(1)
    network.deliver(2)
    network.deliver(1)  # the first pieces are on their way, and node 2 does not answer
    for number in range(100):
        network.set(1, b"k%d" % (number % 30), b"%d" % number)
        network.nodes[1].end_turn()
    network.join(1, 3)
    for _ in range(200):
        network.deliver(1)
        network.deliver(3)
    assert view(network, 3, 1) == view(network, 1, 1)
    network.settle()
    assert view(network, 2, 1) == view(network, 1, 1)


def test_after_rising_everything_is_said_again() -> None:
    maps, box = alone()
    maps.set(b"a", b"1")
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 5, 0)]), 0)
    maps.flush(0)
    box.said = []
    maps.receive(2, encode_list(CLAIMS, 0, [(1, 7, 3)]), 0)
    assert maps.boot > 7
    maps.flush(0)
    assert box.kinds(2) == [STATE, FULL]
    maps.peer_up(3, 0)
    maps.receive(3, encode_list(PULL, 0, [(1, maps.boot, 0)]), 0)
    box.said = []
    maps.flush(0)
    assert FULL in box.kinds(3)  # changes of the former life must not pass for changes of this one


def test_whoever_is_asked_and_whoever_asks_both_learn_what_is_newer() -> None:
    maps, box = alone()
    maps.peer_alive(3, 9, 0)
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(3, 9, 0, 4, {b"a": b"1"}), 0)
    maps.take_changes()
    maps.flush(0)
    box.said = []
    every = 2**64 - 1
    maps.receive(2, encode_list(CLAIMS, every, [(3, 9, 2), (1, 5, 0)]), 0)
    assert box.said == [(2, encode_list(CLAIMS, 0, [(3, 9, 4)]))]
    box.said = []
    maps.receive(2, encode_buckets([0] * 64), 0)
    mask, claims = decode_list(box.said[0][1])
    assert mask == (1 << 1) | (1 << 3)
    assert claims == [(3, 9, 4), (1, 5, 0)]


def test_truncated_maps_are_not_claimed() -> None:
    maps, box = alone(MapsSettings(keys_max=1))
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 2, {b"a": b"1", b"b": b"1"}), 0)
    box.said = []
    maps.receive(3, encode_buckets([0] * 64), 0)
    assert decode_list(box.said[0][1])[1] == [(1, 5, 0)]


def test_an_owner_is_told_of_a_later_life_that_others_speak_of() -> None:
    maps, box = alone()
    for peer in (2, 3):
        maps.peer_up(peer, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.flush(0)
    box.said = []
    maps.receive(3, encode_list(CLAIMS, 0, [(2, 11, 4)]), 0)
    assert box.said == [(2, encode_list(CLAIMS, 0, [(2, 11, 4)]))]


def test_rising_always_goes_up() -> None:
    class Zero(random.Random):
        def randrange(self, *arguments: int, **_: int) -> int:  # type: ignore[override]
            return 0

    maps = OwnedMaps(1, 5, Box(), SMALL, Zero(), 0)
    maps.receive(2, encode_list(CLAIMS, 0, [(1, 7, 3)]), 0)
    assert maps.boot == 8


def test_changes_from_before_a_whole_map_are_not_passed_on_with_those_after_it() -> None:
    maps, box = alone()
    for peer in (2, 3):
        maps.peer_up(peer, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.receive(2, encode_delta(2, 9, 1, 2, {b"a": b"2"}), 0)
    maps.receive(2, pieces_of(2, 9, 5, 1)[0], 0)
    maps.receive(2, encode_delta(2, 9, 5, 6, {b"a": b"3"}), 0)
    maps.flush(0)
    box.said = []
    maps.receive(3, encode_list(PULL, 0, [(2, 9, 1)]), 0)
    maps.flush(0)
    assert box.kinds(3) == [FULL]
    maps.receive(3, encode_list(PULL, 0, [(2, 9, 5)]), 0)
    maps.flush(0)
    assert box.kinds(3) == [DELTA]


def test_a_storm_of_changes_after_a_whole_map_waits_for_its_acknowledgement() -> None:
    maps, box = alone(SMALL)
    maps.set(b"a", b"1")
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 0, 0)]), 0)
    maps.flush(0)
    box.said = []
    for number in range(100):  # in one turn more than the log holds
        maps.set(b"k%d" % number, b"1")
    maps.flush(0)
    assert box.said == []
    maps.receive(2, encode_pair(HAVE, 5, 1), 0)
    maps.flush(0)
    assert box.kinds(2) == [FULL, FULL]


def test_a_stranger_that_membership_tells_us_of_stays() -> None:
    maps, _ = alone()
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.peer_down(2, 0)
    maps.peer_alive(2, 9, 100)
    maps.tick(100_000)
    assert maps.get(2, b"a") == b"1"


def test_a_stranger_that_is_linked_again_stays() -> None:
    maps, _ = alone()
    maps.peer_up(2, 0)
    maps.receive(2, encode_delta(2, 9, 0, 1, {b"a": b"1"}), 0)
    maps.peer_down(2, 0)
    maps.peer_up(2, 100)
    maps.tick(100_000)
    assert maps.get(2, b"a") == b"1"


def test_membership_may_go_back_to_an_earlier_boot() -> None:
    maps, _ = alone()
    maps.peer_up(3, 0)
    maps.peer_alive(2, 9, 0)
    assert not maps.is_level(2)
    maps.peer_alive(2, 8, 0)
    maps.receive(3, encode_delta(2, 8, 0, 1, {b"a": b"1"}), 0)
    assert maps.get(2, b"a") == b"1"
    assert maps.is_level(2)


def test_a_question_may_come_before_the_link_is_known_to_be_up() -> None:
    maps, box = alone()
    maps.set(b"a", b"1")
    maps.receive(2, encode_list(PULL, 0, [(1, 0, 0)]), 0)
    maps.flush(0)
    assert box.said == []
    maps.peer_up(2, 0)
    maps.flush(0)
    assert FULL in box.kinds(2)


def test_a_new_link_in_place_of_an_old_one_starts_afresh() -> None:
    maps, box = alone()
    maps.set(b"a", b"1")
    maps.peer_up(2, 0)
    maps.receive(2, encode_list(PULL, 0, [(1, 0, 0)]), 0)
    maps.flush(0)
    maps.receive(2, encode_pair(HAVE, 5, 1), 0)
    box.said = []
    maps.peer_up(2, 0)
    assert maps.acknowledged(2) == 0
    maps.set(b"b", b"1")
    maps.flush(0)
    assert box.kinds(2) == [STATE, PULL]  # no changes before it has said where it is


def test_a_link_that_only_one_side_took_for_lost_carries_changes_at_once() -> None:
    network = linked(2)
    for _ in range(2):
        network.now += SMALL.pull_after_ms
        network.blink(1, 2)
        network.settle()
    network.set(1, b"a", b"1")
    network.set(2, b"b", b"1")
    network.settle()
    assert view(network, 2, 1) == {b"a": b"1"}
    assert view(network, 1, 2) == {b"b": b"1"}
    assert network.nodes[1].maps.acknowledged(2) == 1
    assert network.nodes[2].maps.acknowledged(1) == 1


def test_own_events_about_oneself_are_ignored() -> None:
    maps, box = alone()
    maps.set(b"a", b"1")
    maps.peer_up(1, 0)
    maps.peer_alive(1, 99, 0)
    maps.peer_dead(1, 0)
    maps.peer_down(1, 0)
    maps.flush(0)
    assert box.said == []
    assert dict(maps.items(1)) == {b"a": b"1"}
    assert maps.owners() == [1]


def test_unknown_kinds_of_messages_are_skipped() -> None:
    maps, _ = alone()
    maps.receive(2, b"\xc8 from the future", 0)
    assert maps.report.unknown_messages == 1


def test_no_message_is_none() -> None:
    maps, _ = alone()
    with pytest.raises(MapsError):
        maps.receive(2, b"", 0)
