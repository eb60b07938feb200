"""The leader of a shard: what it answers, when a SUBACK may go out, and how sessions end without their owners."""

from __future__ import annotations

from flockmq.durable.machine.session_bodies import (
    POSITIONS_MAX,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    MarkStatement,
    StoredSubscription,
    SubscribeStatement,
    UnsubscribeStatement,
)
from flockmq.durable.machine.session_table import SessionTable
from flockmq.durable.sessions import serving
from flockmq.durable.sessions.serving import (
    CHANGES,
    LEASE_MS,
    WHOLE,
    WHOLE_BEGIN,
    encode_filters,
    is_needless,
    results_of,
)
from flockmq.durable.sessions.submitting import DONE, LATER, REFUSED_FULL, REFUSED_USER, VOID
from flockmq.mqtt.packets import Suback
from flockmq.peering.calls import BODY_BYTES_MAX
from flockmq.peering.fields import Reader
from session_nodes import SessionNodes

OWNER = 7


def claim_of(
    client: bytes, nonce: int, expiry_s: int = 60, user: bytes | None = None, flags: int = 0
) -> ClaimStatement:
    return ClaimStatement(client, nonce, 1, OWNER, 1, user, expiry_s, 5, flags)


def table_of(*filters: bytes) -> SessionTable:
    """The client c with subscriptions, each stored by an entry of its own from index 2 on."""
    table = SessionTable()
    table._follow(claim_of(b"c", 1), 1, 1_000)
    for number, topic_filter in enumerate(filters):
        table._follow(subscribe(table, topic_filter), 2 + number, 1_000)
    return table


def subscribe(table: SessionTable, topic_filter: bytes) -> SubscribeStatement:
    return SubscribeStatement(b"c", table.records[b"c"].epoch, [StoredSubscription(topic_filter, 1, 0, 0, {})])


def read_filters(body: bytes) -> tuple[int, int, list[tuple[bytes, bool]]]:
    reader = Reader(body)
    kind, version = reader.u8(), reader.number()
    found: list[tuple[bytes, bool]] = []
    for _ in range(reader.count(1_000_000, 3)):
        is_added = reader.u8() == 1
        found.append((reader.sized(), is_added))
    return kind, version, found


# Answers about filters.


def test_a_node_that_knows_nothing_gets_the_whole_set() -> None:
    table = table_of(b"b", b"a")
    assert read_filters(encode_filters(table, 0, b"")) == (WHOLE, 3, [(b"a", True), (b"b", True)])


def test_a_node_that_knows_a_version_gets_what_has_changed() -> None:
    table = table_of(b"b", b"a")
    table._follow(UnsubscribeStatement(b"c", table.records[b"c"].epoch, [b"b"]), 9, 1_000)
    assert read_filters(encode_filters(table, 3, b"")) == (CHANGES, 9, [(b"b", False)])
    assert read_filters(encode_filters(table, 9, b"")) == (CHANGES, 9, [])


def test_a_large_set_comes_in_pieces_that_are_sorted() -> None:
    wanted = sorted(b"%05d/" % number + b"x" * 60_000 for number in range(40))
    table = table_of(*wanted[:10])
    record = table.records[b"c"]
    for number, topic_filter in enumerate(wanted[10:]):
        client = b"d%d" % number
        table._follow(claim_of(client, 100 + number), 50 + number, 1_000)
        epoch = table.records[client].epoch
        table._follow(SubscribeStatement(client, epoch, [StoredSubscription(topic_filter, 1, 0, 0, {})]), 99, 1_000)
    assert record.subscriptions
    found: list[bytes] = []
    kind, after = WHOLE_BEGIN, b""
    pieces = 0
    while kind == WHOLE_BEGIN:
        kind, _, some = read_filters(encode_filters(table, 0, after))
        found += [topic_filter for topic_filter, _ in some]
        after = found[-1]
        pieces += 1
    assert found == wanted
    assert pieces == 3
    assert kind == WHOLE


# Results.


def test_results_say_what_became_of_statements() -> None:
    table = table_of(b"a")
    epoch = table.records[b"c"].epoch
    statements = [
        claim_of(b"c", 1),
        claim_of(b"c", 2),
        subscribe(table, b"a"),
        subscribe(table, b"never stored"),
        SubscribeStatement(b"c", epoch + 1, []),
        UnsubscribeStatement(b"c", epoch, []),
        DetachStatement(b"c", epoch + 1, 5, {}),
        EndStatement(b"gone", 5),
        EndStatement(b"c", epoch),
        MarkStatement(OWNER, 1, 0, {}, {}),
    ]
    codes = [result.code for result in results_of(table, statements, OWNER)]
    assert codes == [DONE, VOID, DONE, REFUSED_FULL, VOID, DONE, VOID, DONE, VOID, DONE]


def test_a_claim_of_another_user_is_refused() -> None:
    table = SessionTable()
    table._follow(claim_of(b"c", 1, user=b"ann"), 1, 1_000)
    other = claim_of(b"c", 2, user=b"bob", flags=2)
    table._follow(other, 2, 1_000)
    assert results_of(table, [other], OWNER)[0].code == REFUSED_USER


def test_a_session_that_ends_with_its_connection_needs_no_entry_on_a_node_alone() -> None:
    table = table_of()
    assert is_needless(table, claim_of(b"new", 5, expiry_s=0), True)
    assert not is_needless(table, claim_of(b"new", 5, expiry_s=1), True)
    assert not is_needless(table, claim_of(b"c", 5, expiry_s=0), True)
    assert not is_needless(table, claim_of(b"new", 5, expiry_s=0), False), "another node may have the client"


# Whole nodes.


def test_a_new_leader_confirms_nothing_before_old_leases_have_lapsed() -> None:
    nodes = SessionNodes()
    first = nodes.connect(1, "c")
    assert nodes.table("c") is not None
    leader = nodes.leader(nodes.shard("c"))
    assert leader is not None
    home = next(number for number in (1, 2, 3) if number != leader.number)
    device = first if home == 1 else nodes.connect(home, "c")
    leader.kill()
    nodes.until(lambda: nodes.leader(nodes.shard("c")) is not None)
    elected = nodes.now
    nodes.send_subscribe(device, b"a/#")
    nodes.answer(device, Suback)
    assert nodes.now - elected >= LEASE_MS - 200


def test_the_records_of_a_node_that_died_are_detached() -> None:
    nodes = SessionNodes()
    nodes.subscriber(3, "c", b"a/#")
    assert nodes.record("c").is_connected
    nodes[3].kill()
    nodes.until(lambda: not nodes.record("c").is_connected)
    assert b"a/#" in nodes.table("c").filters, "its messages are kept meanwhile"


def test_the_records_of_a_node_that_started_again_are_detached() -> None:
    nodes = SessionNodes()
    nodes.subscriber(3, "c", b"a/#")
    nodes[3].kill()
    nodes[3].start()
    nodes.until(lambda: not nodes.record("c").is_connected)


def test_a_session_expires_by_the_time_of_the_log() -> None:
    nodes = SessionNodes()
    device = nodes.connect(3, "c", expiry_s=20)
    nodes.subscribe(device, b"a/#")
    nodes[3].kill()
    nodes.until(lambda: not nodes.record("c").is_connected)
    detached = nodes.now
    nodes.until(lambda: not nodes.has_record("c"))
    assert nodes.now - detached >= 19_000
    assert nodes.table("c").filters == {}
    assert not nodes.connect(1, "c").connack.session_present


def test_a_session_does_not_expire_early_when_leaders_change() -> None:
    nodes = SessionNodes()
    nodes.connect(3, "c", expiry_s=40)
    nodes[3].kill()
    nodes.until(lambda: not nodes.record("c").is_connected)
    detached = nodes.now
    nodes[3].start()
    nodes.run(10_000)
    nodes.table("c")
    leader = nodes.leader(nodes.shard("c"))
    assert leader is not None
    leader.kill()
    nodes.run(5_000)
    leader.start()
    nodes.until(lambda: not nodes.has_record("c"), 120_000)
    assert nodes.now - detached >= 39_000


def test_results_that_do_not_fit_are_asked_for_again() -> None:
    table = table_of()
    epoch = table.records[b"c"].epoch
    subscriptions = [StoredSubscription(b"%d" % number, 1, 0, 0, {}) for number in range(20_000)]
    table._follow(SubscribeStatement(b"c", epoch, subscriptions), 5, 1_000)
    assert len(table.records[b"c"].encode()) > serving.RESULTS_BYTES_MAX // 2
    codes = [result.code for result in results_of(table, [claim_of(b"c", 1)] * 3, OWNER)]
    assert codes[0] == DONE
    assert codes[-1] == LATER


def test_the_largest_record_fits_into_an_answer() -> None:
    table = table_of()
    record = table.records[b"c"]
    subscriptions = [StoredSubscription(b"%d" % number, 1, 0, 0, {}) for number in range(20_000)]
    table._follow(SubscribeStatement(b"c", record.epoch, subscriptions), 5, 1_000)
    record.user = b"u" * 65_535
    for group in range(POSITIONS_MAX):
        record.advance(group, 1)
    subscriptions = [StoredSubscription(b"%060d" % number, 1, 0, 0, {}) for number in range(3_500)]
    table._follow(SubscribeStatement(b"c", record.epoch, subscriptions), 6, 1_000)
    assert serving.RESULTS_BYTES_MAX < len(record.encode()) < BODY_BYTES_MAX - 10_000
    goodbye = DetachStatement(b"other", 1, 0, {})
    results = results_of(table, [goodbye, claim_of(b"c", 1), claim_of(b"c", 1)], OWNER)
    assert [result.code for result in results] == [VOID, DONE, LATER]
