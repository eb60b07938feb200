from __future__ import annotations

from flockmq.node.bans import BanList


def test_a_ban_holds_for_its_kind_until_it_ends() -> None:
    bans = BanList()
    assert bans.check("c", "u", "10.0.0.1", 0) is None
    bans.add("client", "c", 1_000, "noisy", 0)
    bans.add("username", "u", 0, "left", 0)
    bans.add("address", "10.0.0.1", 500, "scan", 0)
    for client_id, username, peer, reason in [
        ("c", None, "x", "noisy"),
        ("x", "u", "x", "left"),
        ("x", None, "10.0.0.1", "scan"),
    ]:
        ban = bans.check(client_id, username, peer, 499)
        assert ban is not None
        assert ban.reason == reason
    assert bans.check("x", None, "10.0.0.1", 500) is None
    assert bans.check("c", None, "x", 1_000) is None
    assert {ban.value for ban in bans.list(1_000)} == {"u"}
    assert bans.remove("username", "u")
    assert not bans.remove("username", "u")
    assert bans.list(1_000) == []


def test_the_list_is_bounded_but_makes_room_by_forgetting() -> None:
    from flockmq.node import bans as module

    bans = BanList()
    for number in range(module.BANS_MAX):
        assert bans.add("client", str(number), 10, "", 0)
    assert not bans.add("client", "one more", 10, "", 5)
    assert bans.add("client", "0", 20, "again", 5)
    assert bans.add("client", "one more", 30, "", 15)
