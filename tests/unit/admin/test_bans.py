from __future__ import annotations

import pytest

from flockmq.admin import bans, model
from flockmq.errors import INVALID_BODY, INVALID_PARAMETER, NO_QUORUM, NOT_FOUND, REFUSED, ApiError
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Disconnect
from flockmq.node.bans import BANS_MAX
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import MemoryDurable


async def test_a_ban_by_client_id_disconnects_and_keeps_out() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    request = model.BanRequest(kind="client", value="c", duration_s=60, reason="noise")
    result = await bans.add_ban(make_desk(harness), call(body=request))
    assert client.closed
    assert client.expect(Disconnect).reason == reasons.ADMINISTRATIVE_ACTION
    assert (result.kicked, result.ban.reason) == (1, "noise")
    assert result.ban.expires_at == "2023-11-14T22:14:20.000Z"
    with pytest.raises(AssertionError):
        harness.client("c")
    harness.advance(60_000)
    harness.client("c")


@pytest.mark.parametrize(
    ("kind", "value"), [("username", "ada"), ("address", "192.0.2.1"), ("address", "::ffff:192.0.2.1")]
)
async def test_a_ban_hits_everybody_it_names_and_nobody_else(
    kind: model.BanKind, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bans, "CLIENTS_PER_SLICE", 2)
    harness = BrokerHarness()
    hit = [harness.client(f"hit{number}", username="ada", peer="192.0.2.1") for number in range(5)]
    spared = [harness.client(f"spared{number}", username="bob", peer="192.0.2.2") for number in range(5)]
    result = await bans.add_ban(make_desk(harness), call(body=model.BanRequest(kind=kind, value=value)))
    assert result.kicked == 5
    assert result.ban.expires_at is None
    assert all(client.closed for client in hit)
    assert not any(client.closed for client in spared)


async def test_an_address_is_one_address() -> None:
    desk = make_desk(BrokerHarness())
    for value in ("192.0.2.0/24", "host.example", "300.1.1.1"):
        with pytest.raises(ApiError) as refused:
            await bans.add_ban(desk, call(body=model.BanRequest(kind="address", value=value)))
        assert refused.value.kind is INVALID_BODY


async def test_a_full_list_is_told() -> None:
    harness = BrokerHarness()
    for number in range(BANS_MAX):
        harness.broker.bans.add("client", str(number), 0, "", harness.now)
    with pytest.raises(ApiError) as refused:
        await bans.add_ban(make_desk(harness), call(body=model.BanRequest(kind="client", value="c")))
    assert refused.value.kind is REFUSED


async def test_a_removed_ban_lets_in_again() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    await bans.add_ban(desk, call(body=model.BanRequest(kind="address", value="2001:DB8::0:1")))
    await bans.remove_ban(desk, call(kind="address", value="2001:db8::1"))
    assert bans.list_bans(desk, call(model.BanQuery())).items == []
    with pytest.raises(ApiError) as refused:
        await bans.remove_ban(desk, call(kind="address", value="2001:db8::1"))
    assert refused.value.kind is NOT_FOUND


async def test_bans_have_three_kinds() -> None:
    with pytest.raises(ApiError) as refused:
        await bans.remove_ban(make_desk(BrokerHarness()), call(kind="topic", value="a"))
    assert refused.value.kind is INVALID_PARAMETER


async def test_a_ban_becomes_cluster_state_where_there_is_one() -> None:
    port = MemoryDurable()
    harness = BrokerHarness()
    desk = make_desk(harness, durable=port)
    port.now_ms = desk.moments.wall_ms
    request = model.BanRequest(kind="address", value="::ffff:192.0.2.1", duration_s=60, reason="scan")
    result = await bans.add_ban(desk, call(body=request))
    record = port.state().bans["address", "192.0.2.1"]
    assert (record.reason, record.until_ms - record.since_ms) == ("scan", 60_000)
    assert (result.ban.value, result.ban.expires_at) == ("192.0.2.1", "2023-11-14T22:14:20.000Z")
    await bans.remove_ban(desk, call(kind="address", value="192.0.2.1"))
    assert not port.state().bans
    with pytest.raises(ApiError) as refused:
        await bans.remove_ban(desk, call(kind="address", value="192.0.2.1"))
    assert refused.value.kind is NOT_FOUND


async def test_without_a_majority_nobody_is_told_that_a_ban_holds() -> None:
    port = MemoryDurable()
    port.no_quorum = True
    desk = make_desk(BrokerHarness(), durable=port)
    with pytest.raises(ApiError) as refused:
        await bans.add_ban(desk, call(body=model.BanRequest(kind="client", value="c")))
    assert refused.value.kind is NO_QUORUM
