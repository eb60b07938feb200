"""Links between nodes over real sockets: frames arrive whole and in order, or not at all, from proved peers only."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

import pytest

from callee import serving
from flockmq.drivers.links import HelloError, LinkIdentity, Links, LinkSettings, PeerInfo
from flockmq.errors import ConfigError, FlockError
from flockmq.security.link_tls import LinkTls, LinkTlsSettings
from flockmq.wire import hello
from flockmq.wire.frames import PING, frame_head
from integration.support.certificates import Authority
from link_ends import (
    COOKIE,
    LOOPS,
    OTHER_COOKIE,
    End,
    Relay,
    Run,
    ends,
    has_ipv6,
    heard_after,
    listening,
    own_address,
    runner,
    until,
)

PATIENT = LinkSettings(retry_ms_min=3_600_000, retry_ms_max=3_600_000)
TLS_ON = LinkTlsSettings(link_tls="on")


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return runner(request.param)


# Frames.


@pytest.mark.parametrize("tls", [None, TLS_ON], ids=["plain", "tls"])
def test_one_connection_carries_both_directions(run: Run, tls: LinkTlsSettings | None) -> None:
    async def scenario() -> None:
        async with ends(1, 2, tls=tls) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2) and two.sees(1))
            assert (one.told, two.told) == ([("up", 2), ("writable", 2)], [("up", 1), ("writable", 1)])
            frames = [bytes([number]) * number * 1_000 for number in range(200)]
            for frame in frames:
                assert one.links.send(2, frame)
                assert two.links.send_parts(1, [frame[:100], b"", frame[100:]])
            await until(lambda: len(two.heard) == 200 and len(one.heard) == 200)
            assert two.heard == [(1, frame) for frame in frames]
            assert one.heard == [(2, frame) for frame in frames]
            assert [(link.is_outgoing, link.is_encrypted) for link in one.links.status()] == [(True, tls is not None)]
            assert [(link.is_outgoing, link.is_encrypted) for link in two.links.status()] == [(False, tls is not None)]

    run(scenario())


def test_peers_know_each_other(run: Run) -> None:
    async def scenario() -> None:
        one, two = End(1, boot=10, cluster_id=7), End(2, boot=20, cluster_id=7)
        async with listening(one, two):
            one.meet(two)
            await until(lambda: one.sees(2) and two.sees(1))
            found = one.infos[2]
            assert (found.node_id, found.boot, found.cluster_id, found.name, found.version) == (
                2, 20, 7, "n2@here", "9.9",
            )  # fmt: skip
            assert two.infos[1].name == "n1@here"
            assert two.links.info(1) is two.infos[1]
            assert two.links.info(3) is None

    run(scenario())


def test_nothing_is_kept_for_a_peer_that_is_not_there(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            assert not one.links.send(2, b"nobody knows where 2 is")
            one.meet(two)
            assert not one.links.send(2, b"not connected yet")
            assert not one.links.send_parts(2, [b"not connected", b" yet"])
            await until(lambda: one.sees(2))
            assert await heard_after(one, two, b"now") == []
            assert one.links.dropped >= 3

    run(scenario())


@pytest.mark.parametrize("tls", [None, TLS_ON], ids=["plain", "tls"])
def test_a_slow_peer_loses_whole_frames_and_costs_bounded_memory(run: Run, tls: LinkTlsSettings | None) -> None:
    async def scenario() -> None:
        settings = LinkSettings(unsent_bytes_max=300_000, unsent_bytes_high=200_000)
        async with ends(1, 2, settings=settings, tls=tls) as (one, two):
            one.meet(two)
            await heard_after(one, two, b"here")
            two.links.set_reading(False)
            accepted: list[bytes] = []
            one.told.clear()
            while one.links.send(2, frame := bytes([len(accepted)]) * 100_000):
                accepted.append(frame)
            assert one.told == [("full", 2)]
            assert 200_000 <= one.links.unsent_bytes(2) <= 310_000
            two.links.set_reading(True)
            await heard_after(one, two, b"goes on")
            assert [frame for _, frame in two.heard if len(frame) == 100_000] == accepted
            assert one.told == [("full", 2), ("writable", 2)]
            assert one.links.unsent_bytes(3) == 0

    run(scenario())


def test_a_frame_longer_than_the_bound_passes_when_nothing_waits(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, settings=LinkSettings(unsent_bytes_max=10)) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2))
            await heard_after(one, two, bytes(1_000_000))

    run(scenario())


def test_no_frame_is_sent_that_the_other_side_would_not_take(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, settings=LinkSettings(frame_bytes_max=100)) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2))
            assert not one.links.send(2, bytes(101))
            assert not one.links.send_parts(2, [bytes(100), b"!"])
            assert await heard_after(one, two, bytes(100)) == []

    run(scenario())


@pytest.mark.parametrize(
    ("frame", "event", "text"), [(b"nonsense", "link_refused", "can't be read"), (b"bug", "internal_error", "KeyError")]
)
def test_a_frame_that_can_not_be_used_ends_the_link_and_nothing_else(
    run: Run, frame: bytes, event: str, text: str
) -> None:
    async def scenario() -> None:
        async with ends(1, 2, 3, settings=PATIENT) as (one, two, three):
            one.meet(two)
            three.meet(two)
            await until(lambda: two.sees(1, 3))
            one.links.send(2, frame)
            one.links.send(2, b"never heard")
            await until(lambda: two.sees(3) and one.sees())
            assert two.heard == []
            (noted,) = two.links.events.take()
            assert noted.kind == event
            assert text in str(noted.fields)
            assert await heard_after(three, two, b"unharmed") == []

    run(scenario())


# Coming and going.


def test_a_peer_that_comes_back_is_found_again(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            one.meet(two)
            assert await heard_after(one, two, b"first life") == []
            await two.links.close()
            await until(one.sees)
            assert one.told == [("up", 2), ("writable", 2), ("full", 2), ("down", 2)]
            again = End(2, boot=2)
            again.port = await again.links.listen(port=two.port)
            try:
                assert await heard_after(one, again, b"second life") == []
                assert one.told[4:] == [("up", 2), ("writable", 2)]
                assert one.infos[2].boot == 2
            finally:
                await again.links.close()

    run(scenario())


def test_a_call_from_a_peer_ends_the_wait_for_it(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, settings=PATIENT) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2))
            await two.links.close()
            await until(one.sees)
            again = End(2, boot=2)
            async with listening(again):
                again.meet(one)
                await until(lambda: one.sees(2))  # an hour too early, but for the call

    run(scenario())


def test_a_peer_that_started_again_takes_the_place_of_what_is_left_of_it(run: Run) -> None:
    """Its machine lost power: nobody has heard that the connection is over."""

    async def scenario() -> None:
        async with ends(1, settings=PATIENT) as (one,):
            two = End(2, boot=1)
            async with listening(two):
                one.meet(two)
                await until(lambda: one.sees(2) and two.sees(1))
                again = End(2, boot=2)
                async with listening(again):
                    again.meet(one)
                    await until(lambda: again.sees(1))
                    await until(lambda: one.sees(2) and one.infos[2].boot == 2)
                    assert one.told[2:] == [("full", 2), ("down", 2), ("up", 2), ("writable", 2)]
                    assert await heard_after(one, again, b"to the later start") == []
                    # The earlier one is refused as long as the later is there.
                    with pytest.raises(HelloError, match="A later start of node 0000000000000002") as found:
                        await two.links.call("127.0.0.1", one.port)
                    assert found.value.kind == hello.OLDER

    run(scenario())


def test_who_has_a_new_address_is_called_there(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, 3) as (one, two, nobody):
            await nobody.links.close()
            one.links.set_peer(2, "127.0.0.1", nobody.port)
            one.meet(two)
            one.meet(two)
            await until(lambda: one.sees(2))

    run(scenario())


def test_who_is_forgotten_is_not_called_and_not_heard(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2) and two.sees(1))
            two.links.send(1, b"too late")
            one.links.forget_peer(2)
            assert one.told[2:] == [("full", 2), ("down", 2)]
            await until(two.sees)
            assert one.heard == []
            one.links.forget_peer(2)
            two.meet(one)  # whoever calls is heard
            await until(lambda: one.sees(2))

    run(scenario())


def test_what_was_sent_before_the_end_arrives(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2) and two.sees(1))
            for number in range(50):
                one.links.send(2, bytes([number]) * 10_000)
            await one.links.close()
            await until(two.sees)
            assert len(two.heard) == 50
            with pytest.raises(HelloError, match="is being stopped"):
                await one.links.call("127.0.0.1", two.port)
            one.meet(two)
            assert not one.links.send(2, b"nothing more")

    run(scenario())


def test_closing_does_not_wait_for_a_peer_that_reads_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, settings=LinkSettings(close_ms=20)) as (one, two):
            one.meet(two)
            await until(lambda: one.sees(2) and two.sees(1))
            two.links.set_reading(False)
            while one.links.send(2, bytes(1_000_000)):
                pass
            await one.links.close()
            assert one.sees()

    run(scenario())


def test_a_silent_peer_is_asked_and_then_given_up(run: Run) -> None:
    async def scenario() -> None:
        settings = LinkSettings(
            beat_ms=20, keepalive_ms=0, silence_ms=200, retry_ms_min=3_600_000, retry_ms_max=3_600_000
        )
        async with ends(1, 2, settings=settings) as (one, two), Relay(two.port) as relay:
            one.links.set_peer(2, "127.0.0.1", relay.port)
            await until(lambda: one.sees(2) and two.sees(1))
            await until(lambda: frame_head(PING) in relay.by_caller[0] + relay.by_callee[0])
            relay.passes = False
            await until(lambda: one.sees() and two.sees())
            for end in (one, two):
                assert "link_silent" in [event.kind for event in end.links.events.take()]

    run(scenario())


def test_peers_that_answer_are_kept(run: Run) -> None:
    async def scenario() -> None:
        settings = LinkSettings(beat_ms=2, keepalive_ms=0, silence_ms=10_000)
        async with ends(1, 2, settings=settings) as (one, two), Relay(two.port) as relay:
            one.links.set_peer(2, "127.0.0.1", relay.port)
            await until(lambda: bool(relay.by_caller) and relay.by_caller[0].count(frame_head(PING)) > 20)
            assert one.told == [("up", 2), ("writable", 2)]

    run(scenario())


# Two that call each other.


async def agreed(one: End, two: End) -> None:
    """Both have a link, and both mean the same connection."""
    await until(lambda: one.sees(two.node) and two.sees(one.node))
    assert await heard_after(one, two, b"a") == []
    assert await heard_after(two, one, b"b") == []
    (ours,), (theirs,) = one.links.status(), two.links.status()
    assert ours.is_outgoing is not theirs.is_outgoing


@pytest.mark.parametrize("tls", [None, TLS_ON], ids=["plain", "tls"])
def test_nodes_that_call_each_other_keep_one_connection(run: Run, tls: LinkTlsSettings | None) -> None:
    async def scenario() -> None:
        settings = LinkSettings(yield_ms=0, retry_ms_min=1, retry_ms_max=4)
        for number in range(15):
            one, two = End(1, settings, tls=tls), End(2, settings, tls=tls)
            async with listening(one, two):
                for end, other in ((one, two), (two, one))[:: 1 if number % 2 else -1]:
                    end.meet(other)
                    if number % 3:
                        for _ in range(number):
                            await asyncio.sleep(0)
                await agreed(one, two)

    run(scenario())


def test_many_nodes_that_start_at_once(run: Run) -> None:
    async def scenario() -> None:
        nodes = range(1, 9)
        async with ends(*nodes, settings=LinkSettings(yield_ms=0, retry_ms_min=1, retry_ms_max=8)) as all_ends:
            for end in all_ends:
                for other in all_ends:
                    end.meet(other)
            await until(lambda: all(len(end.links.connected()) == 7 for end in all_ends))
            for end in all_ends:
                for other in all_ends:
                    if other is not end:
                        await heard_after(end, other, b"hello from %d" % end.node)

    run(scenario())


def test_a_connection_that_only_one_side_has_lost(run: Run) -> None:
    """Node 2 calls although node 1, who decides, has a link: that is tried, found dead, and the next call is heard."""

    async def scenario() -> None:
        settings = LinkSettings(retry_ms_min=1, retry_ms_max=8)
        async with ends(1, 2, settings=settings) as (one, two), Relay(two.port) as relay:
            await one.links.call("127.0.0.1", relay.port)
            await until(lambda: one.sees(2) and two.sees(1))
            relay.passes = False  # node 1 is not told
            two.links.forget_peer(1)
            await until(two.sees)
            assert one.sees(2)
            await relay.ended()
            relay.passes = True
            two.meet(one)
            await until(lambda: two.sees(1))
            await agreed(one, two)
            assert one.told.count(("down", 2)) == 1

    run(scenario())


# Calls to addresses.


def test_a_call_tells_who_is_there(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            found = await one.links.call("localhost", two.port)
            assert (found.node_id, found.name) == (2, "n2@here")
            again = await one.links.call("127.0.0.1", two.port)
            assert again.node_id == 2
            assert one.told == [("up", 2), ("writable", 2)], "there is one link, however often one calls"
            await heard_after(two, one, b"and it stays")

    run(scenario())


def test_calls_at_the_same_time_from_both_sides(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            found = await asyncio.gather(
                *(one.links.call("127.0.0.1", two.port) for _ in range(3)),
                *(two.links.call("127.0.0.1", one.port) for _ in range(3)),
            )
            assert [info.node_id for info in found] == [2, 2, 2, 1, 1, 1]
            await until(lambda: one.sees(2) and two.sees(1))

    run(scenario())


def test_a_node_that_calls_itself_learns_that(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1) as (one,):
            with pytest.raises(HelloError, match="called itself") as found:
                await one.links.call("127.0.0.1", one.port)
            assert found.value.kind == hello.SELF
            one.links.set_peer(1, "127.0.0.1", one.port)
            assert one.told == []

    run(scenario())


def test_two_clusters_stay_apart_and_are_told_so(run: Run) -> None:
    async def scenario() -> None:
        one, two, new = End(1, cluster_id=7), End(2, cluster_id=8), End(3)
        async with listening(one, two, new):
            with pytest.raises(HelloError, match="These are two clusters") as found:
                await one.links.call("127.0.0.1", two.port)
            assert found.value.kind == hello.CLUSTER
            assert found.value.peer is not None
            assert found.value.peer.cluster_id == 8
            assert (await new.links.call("127.0.0.1", two.port)).cluster_id == 8
            new.links.set_cluster_id(8)
            with pytest.raises(HelloError, match="These are two clusters"):
                await new.links.call("127.0.0.1", one.port)
            assert new.sees(2)

    run(scenario())


def test_another_node_than_the_one_that_was_meant(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            one.links.set_peer(3, "127.0.0.1", two.port)
            await until(lambda: bool(one.links.events.events))
            assert "Node 0000000000000003 was expected there, but 0000000000000002 is" in one.reasons()[0]
            assert one.sees()
            assert two.sees()

    run(scenario())


def test_nobody_is_there(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            await two.links.close()
            with pytest.raises(HelloError, match=r"127.0.0.1:\d+ can't be reached \(") as found:
                await one.links.call("127.0.0.1", two.port)
            assert found.value.kind == hello.UNREACHABLE
            with pytest.raises(HelloError, match="can't be resolved"):
                await one.links.call("no.such.name.invalid", 1)

    run(scenario())


def test_somebody_else_is_there(run: Run) -> None:
    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(
                b"HTTP/1.1 400 Bad Request\r\nServer: not a node\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            writer.write(bytes(100))

        async with serving(serve) as port, ends(1) as (one,):
            with pytest.raises(HelloError, match=r"is no node|without a word|failed"):
                await one.links.call("127.0.0.1", port)

    run(scenario())


def test_somebody_who_never_answers_is_not_waited_for(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            async with ends(1, settings=LinkSettings(connect_ms=30)) as (one,):
                with pytest.raises(HelloError, match="took too long") as found:
                    await one.links.call("127.0.0.1", mute.getsockname()[1])
                assert found.value.kind == hello.TIMEOUT

    run(scenario())


def test_who_stops_calling_leaves_nothing(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            async with ends(1) as (one,):
                task = asyncio.create_task(one.links.call("127.0.0.1", mute.getsockname()[1]))
                called, _ = await asyncio.to_thread(mute.accept)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                with called:
                    called.settimeout(30)
                    while await asyncio.to_thread(called.recv, 5_000):
                        pass

    run(scenario())


def test_who_stops_calling_when_the_link_is_up_leaves_it(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            told = one.links.on_up

            def on_up(peer: int, info: PeerInfo) -> None:
                told(peer, info)
                task.cancel()

            one.links.on_up = on_up
            task = asyncio.create_task(one.links.call("127.0.0.1", two.port))
            with pytest.raises(asyncio.CancelledError):
                await task
            await agreed(one, two)

    run(scenario())


# Trust.


@pytest.mark.parametrize("tls", [None, TLS_ON], ids=["plain", "tls"])
def test_another_cookie(run: Run, tls: LinkTlsSettings | None) -> None:
    async def scenario() -> None:
        one, two = End(1, tls=tls), End(2, cookie=OTHER_COOKIE, tls=tls)
        async with listening(one, two):
            for caller, callee in ((one, two), (two, one)):
                with pytest.raises(HelloError, match=r"without a word|failed") as found:
                    await caller.links.call("127.0.0.1", callee.port)
                assert "compare" in str(found.value)
                assert found.value.peer is None
                assert caller.told == callee.told == []
                (reason,) = callee.reasons()
                assert "does not know this cluster's cookie" in reason
                assert callee.links.refusals.counts == {"cookie": 1}

    run(scenario())


def test_tls_where_only_one_side_insists(run: Run) -> None:
    """Whoever is called speaks TLS with everybody who wants it, and plain only with whom it may."""

    async def scenario() -> None:
        on, off = End(1, tls=TLS_ON), End(2, tls=LinkTlsSettings(link_tls="off"))
        async with listening(on, off):
            with pytest.raises(HelloError, match="without a word"):
                await off.links.call("127.0.0.1", on.port)
            (reason,) = on.reasons()
            assert "without TLS" in reason
            await on.links.call("127.0.0.1", off.port)
            await until(lambda: off.sees(1))
            assert [link.is_encrypted for link in off.links.status()] == [True]
            assert await heard_after(off, on, b"encrypted") == []

    run(scenario())


@pytest.mark.parametrize("says", [b"", b"no TLS at all"], ids=["leaves", "nonsense"])
def test_a_tls_handshake_that_fails_is_told_with_its_cause(run: Run, says: bytes) -> None:
    async def scenario() -> None:
        async with ends(1, tls=TLS_ON) as (one,):
            caller = hello.Caller(one.links.key, PeerInfo(2, 1, 0), 1, True, bytes(32))
            _, writer = await asyncio.open_connection("127.0.0.1", one.port)
            writer.write(caller.hello() + says)
            await writer.drain()
            if not says:
                writer.transport.abort()
            found: list[str] = []

            def is_told() -> bool:
                found.extend(one.reasons())
                return bool(found)

            await until(is_told)
            writer.close()
            assert ": ." not in found[0]
            assert "()" not in found[0]
            assert found[0].startswith("TLS with the caller ")

    run(scenario())


def test_an_own_authority(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        authority = Authority(tmp_path)
        files = [authority.issue(name) for name in ("one", "two", "stranger")]
        own = [
            LinkTlsSettings(link_tls="on", cert_file=str(cert), key_file=str(key), ca_file=str(authority.file))
            for cert, key in files
        ]
        one, two = End(1, tls=own[0]), End(2, tls=own[1])
        stranger, without = End(3, tls=own[2], cookie=OTHER_COOKIE), End(4, tls=TLS_ON)
        async with listening(one, two, stranger, without):
            await one.links.call("127.0.0.1", two.port)
            assert await heard_after(two, one, b"mutual TLS") == []
            for other in (stranger, without):
                for caller, callee in ((one, other), (other, one)):
                    with pytest.raises(HelloError):
                        await caller.links.call("127.0.0.1", callee.port)
                assert other.told == []
            assert one.sees(2)

    run(scenario())


def test_a_certificate_of_another_node_is_none(run: Run) -> None:
    async def scenario() -> None:
        one, two = End(1, tls=TLS_ON), End(2, tls=TLS_ON)
        two.links.tls = LinkTls(TLS_ON, COOKIE, 3)
        async with listening(one, two):
            with pytest.raises(HelloError, match="certificate of another node"):
                await one.links.call("127.0.0.1", two.port)
            with pytest.raises(HelloError):
                await two.links.call("127.0.0.1", one.port)
            assert any("shows the certificate of another node" in reason for reason in one.reasons())
            assert one.told == two.told == []

    run(scenario())


def test_certificates_can_be_exchanged(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, 3, tls=TLS_ON) as (one, two, three):
            await one.links.call("127.0.0.1", two.port)
            one.links.tls = LinkTls(TLS_ON, COOKIE, 1)
            await one.links.call("127.0.0.1", three.port)
            assert await heard_after(one, two, b"the old link stays") == []
            assert await heard_after(three, one, b"the new one works") == []

    run(scenario())


# Addresses.


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_ipv6(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, host="::1") as (one, two):
            one.meet(two, "::1")
            await until(lambda: one.sees(2))
            assert await heard_after(two, one, b"over six") == []
            (link,) = one.links.status()
            assert link.address == f"[::1]:{two.port}"
            assert not link.is_encrypted

    run(scenario())


def test_everywhere(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, host="") as (one, two):
            hosts = ["127.0.0.1", "localhost", *(["::1"] if has_ipv6() else [])]
            for host in hosts:
                one.links.forget_peer(2)
                assert (await one.links.call(host, two.port)).node_id == 2

    run(scenario())


@pytest.mark.skipif(not own_address(), reason="this machine has no address but loopback")
def test_off_loopback_links_are_encrypted(run: Run) -> None:
    async def scenario() -> None:
        one, two, plain = End(1), End(2), End(3, tls=LinkTlsSettings(link_tls="off"))
        async with listening(one, two, plain, host=own_address()):
            await one.links.call(own_address(), two.port)
            await until(lambda: two.sees(1))
            assert [link.is_encrypted for link in one.links.status()] == [True]
            with pytest.raises(HelloError, match="without a word"):
                await plain.links.call(own_address(), two.port)
            assert "calls without TLS from another machine" in two.reasons()[0]
            await two.links.call(own_address(), plain.port)
            assert await heard_after(plain, two, b"but it can be called") == []

    run(scenario())


def test_a_port_that_is_taken(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            with pytest.raises(FlockError, match="another program uses it"):
                await one.links.listen("127.0.0.1", two.port)

    run(scenario())


# What a node is.


def ignore(*_: object) -> None:
    pass


def test_identities_that_can_not_be() -> None:
    async def scenario() -> None:
        for identity, problem in (
            (LinkIdentity(node_id=0, boot=1, cookie=COOKIE), "id can't be 0"),
            (LinkIdentity(node_id=1, boot=1, cookie=COOKIE, name="n" * 256), "more than 255 bytes"),
        ):
            with pytest.raises(ConfigError, match=problem):
                Links(identity, ignore, ignore, ignore, ignore, random.Random(1))

    asyncio.run(scenario())
    assert "0123456789" not in repr(LinkIdentity(node_id=1, boot=1, cookie=COOKIE))


def test_there_is_a_most_of_links(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, 3, settings=LinkSettings(links_max=1)) as (one, two, three):
            await two.links.call("127.0.0.1", one.port)
            with pytest.raises(HelloError, match="the most there may be") as found:
                await three.links.call("127.0.0.1", one.port)
            assert found.value.kind == hello.TOO_MANY
            assert await heard_after(two, one, b"undisturbed") == []

    run(scenario())
