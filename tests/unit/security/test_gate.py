"""The gate with real files, a real loop, real threads and real hashes (cheap ones)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt
import pytest

from flockmq.errors import ConfigError
from flockmq.node.ports import Accept, AuthRequest, Continue, Gate, Identity, Refuse, Verdict
from flockmq.security.passwords import HashCost, set_password
from flockmq.security.scram import ScramError
from scram_client import ScramClient

if TYPE_CHECKING:
    from unit.security.conftest import GateUnderTest

    GateOf = Callable[..., GateUnderTest]
    RequestOf = Callable[..., AuthRequest]

BAD_CREDENTIALS, NOT_AUTHORIZED, BUSY, BANNED, BAD_METHOD = 0x86, 0x87, 0x89, 0x8A, 0x8C
SECRET = b"0123456789abcdef" * 2
NOW_S = 1_000_000_000  # as the gate's wall clock says


def code(verdict: Verdict | None) -> int:
    assert isinstance(verdict, Refuse), verdict
    return verdict.reason_code


def accepted(verdict: Verdict | None) -> bool:
    return isinstance(verdict, Accept)


def identity(verdict: Verdict | None) -> Identity:
    assert isinstance(verdict, Accept), verdict
    return verdict.identity


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return str(path)


def token(**claims: Any) -> bytes:
    return jwt.encode({"exp": NOW_S + 60, "sub": "tina"} | claims, SECRET, "HS256").encode()


def acl_file(tmp_path: Path, *rules: tuple[str, str, str], default: str = "deny") -> str:
    path = tmp_path / "acl.toml"
    tables = [
        f'[[rule]]\nallow = true\nwho = "{who}"\naction = "{action}"\ntopics = ["{topic}"]\n'
        for who, action, topic in rules
    ]
    path.write_text(f'default = "{default}"\n' + "".join(tables))
    return str(path)


async def test_it_is_a_gate(gate_of: GateOf) -> None:
    gate: Gate = gate_of()
    assert gate.version > 0


# --- anonymous --------------------------------------------------------------------------------------------------------


async def test_nobody_comes_in_by_default(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of()
    for request in (request_of(), request_of(username="alice"), request_of(username="alice", password=b"x")):
        assert code(gate.authenticate(request)) == NOT_AUTHORIZED


async def test_anonymous_clients_have_no_name(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of(allow_anonymous=True, superusers=("admin",))
    for request in (request_of(), request_of(username="admin"), request_of(username="admin", password=b"x")):
        accepted = identity(gate.authenticate(request))
        assert accepted == Identity("c1", None, False, None, peer="192.0.2.1")


async def test_wrong_credentials_do_not_fall_through_to_anonymous(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, secret_file: str
) -> None:
    gate = gate_of(allow_anonymous=True, password_file=str(password_file), jwt_secret_file=secret_file)
    assert identity(await gate.judge(request_of())).username is None
    for wrong in (
        request_of(username="alice", password=b"wrong"),
        request_of(username="alice"),
        request_of(password=b"wonderland"),
        request_of(password=token() + b"x"),
    ):
        assert code(await gate.judge(wrong)) == BAD_CREDENTIALS
    only_tokens = gate_of(allow_anonymous=True, jwt_secret_file=secret_file)
    assert identity(only_tokens.authenticate(request_of())).username is None
    assert code(only_tokens.authenticate(request_of(username="alice", password=b"x"))) == BAD_CREDENTIALS
    assert code(only_tokens.authenticate(request_of(username="alice"))) == NOT_AUTHORIZED


# --- passwords --------------------------------------------------------------------------------------------------------


async def test_the_right_password_is_found_later(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file), superusers=("bob",))
    request = request_of(username="alice", password=b"wonderland")
    assert gate.authenticate(request) is None
    assert gate.logins_pending == 1
    delivered, verdict = await gate.delivered.get()
    assert delivered is request
    assert identity(verdict) == Identity("c1", "alice", False, None, peer="192.0.2.1")
    assert identity(await gate.judge(request_of(username="bob", password=b"builder"))).superuser


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("alice", b"wonderlan"),
        ("alice", b""),
        ("alice", b"\xff\x00"),
        ("eve", b"wonderland"),
        ("", b"x"),
        ("Alice", b"wonderland"),
    ],
)
async def test_wrong_credentials_are_all_refused_alike_and_all_cost_a_hash(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, username: str, password: bytes
) -> None:
    gate = gate_of(password_file=str(password_file))
    for attempt in range(1, 3):
        assert gate.authenticate(request_of(username=username, password=password)) is None, "also for unknown users"
        _, verdict = await gate.delivered.get()
        assert verdict == Refuse(BAD_CREDENTIALS, "The user name or password is wrong")
        assert gate.logins_checked == attempt, "failures are not cached"


async def test_a_password_that_nobody_can_have_is_refused_at_once(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file))
    assert code(gate.authenticate(request_of(username="alice", password=b"x" * 5_000))) == BAD_CREDENTIALS
    assert gate.logins_pending == 0


async def test_a_known_login_is_not_hashed_again_until_it_is_forgotten(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), login_cache_ms=1_000)
    assert accepted(await gate.judge(request_of(username="alice", password=b"wonderland", now_ms=0)))
    assert accepted(gate.authenticate(request_of(username="alice", password=b"wonderland", now_ms=999)))
    assert gate.logins_checked == 1
    assert code(await gate.judge(request_of(username="alice", password=b"wonderlanD", now_ms=999))) == BAD_CREDENTIALS
    assert accepted(await gate.judge(request_of(username="alice", password=b"wonderland", now_ms=1_000)))
    assert gate.logins_checked == 3


async def test_a_changed_password_counts_at_once(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, cheap: HashCost
) -> None:
    gate = gate_of(password_file=str(password_file))
    old, new = (request_of(username="alice", password=password) for password in (b"wonderland", b"looking-glass"))
    assert accepted(await gate.judge(old))
    set_password(password_file, "alice", b"looking-glass", cost=cheap)
    assert accepted(gate.authenticate(old)), "files are read when asked for, and logins known until then"
    assert gate.reload() == ["passwords"]
    assert code(await gate.judge(old)) == BAD_CREDENTIALS
    assert identity(await gate.judge(new)).username == "alice"


async def test_a_password_changed_while_the_old_one_is_being_checked_counts(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, cheap: HashCost
) -> None:
    gate = gate_of(password_file=str(password_file))
    old, new = (request_of(username="alice", password=password) for password in (b"wonderland", b"looking-glass"))
    assert gate.authenticate(old) is None
    assert gate.authenticate(new) is None
    set_password(password_file, "alice", b"looking-glass", cost=cheap)
    gate.reload()  # no answer can arrive before the next await
    verdicts = {}
    for _ in range(2):
        request, verdict = await gate.delivered.get()
        verdicts[request.password] = verdict
    assert code(verdicts[b"wonderland"]) == BAD_CREDENTIALS
    assert identity(verdicts[b"looking-glass"]).username == "alice"


async def test_too_many_logins_at_once_are_told_so(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file), hash_threads=1, hash_queue_max=2, hash_queue_per_peer_max=2)
    verdicts = [
        gate.authenticate(request_of(username="alice", password=b"wonderland", peer=peer))
        for peer in ("192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3")
    ]
    assert verdicts[:2] == [None, None]
    assert code(verdicts[2]) == BUSY
    assert verdicts[3] is None
    assert code(verdicts[4]) == BUSY
    for _ in range(3):
        _, verdict = await gate.delivered.get()
        assert identity(verdict).username == "alice"


async def test_after_close_nothing_is_delivered(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file))
    assert gate.authenticate(request_of(username="alice", password=b"wonderland")) is None
    gate.close()
    assert code(gate.authenticate(request_of(username="alice", password=b"wonderland"))) == BUSY
    await asyncio.sleep(0)
    assert gate.delivered.empty()


# --- failed logins ----------------------------------------------------------------------------------------------------


async def test_an_address_that_guesses_is_banned_for_a_while(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), failed_logins_per_peer_max=3, failed_logins_ban_ms=10_000)
    for guess in (b"1", b"2", b"3"):
        assert code(await gate.judge(request_of(username="alice", password=guess))) == BAD_CREDENTIALS
    checked = gate.logins_checked
    right = {"username": "alice", "password": b"wonderland"}
    refused = gate.authenticate(request_of(**right))
    assert refused == Refuse(BANNED, "Too many failed logins; try again in 10 s")
    assert gate.logins_checked == checked
    assert accepted(await gate.judge(request_of(**right, peer="192.0.2.99")))
    assert accepted(await gate.judge(request_of(**right, now_ms=11_000)))


async def test_guesses_made_at_once_count_one_by_one(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), failed_logins_per_peer_max=3, hash_threads=1)
    guesses = [b"1", b"2", b"3", b"4", b"wonderland"]
    for guess in guesses:
        assert gate.authenticate(request_of(username="alice", password=guess)) is None
    codes = [code((await gate.delivered.get())[1]) for _ in guesses]
    assert codes == [BAD_CREDENTIALS] * 3 + [BANNED] * 2


async def test_a_name_that_too_many_guess_at_is_refused_to_those_who_did_whether_it_exists_or_not(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), failed_logins_per_username_max=2, failed_logins_per_peer_max=0)
    for name in ("alice", "eve"):
        for peer in ("192.0.2.1", "192.0.2.2"):
            assert code(await gate.judge(request_of(username=name, password=b"x", peer=peer))) == BAD_CREDENTIALS
        for peer in ("192.0.2.1", "192.0.2.2"):
            assert code(gate.authenticate(request_of(username=name, password=b"x", peer=peer))) == BANNED
    right = {"username": "alice", "password": b"wonderland"}
    assert accepted(await gate.judge(request_of(**right, peer="198.51.100.9"))), "its user is not locked out"


async def test_a_login_that_is_remembered_is_served_from_an_address_that_guesses(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), failed_logins_per_peer_max=3, failed_logins_per_username_max=3)
    right = {"username": "alice", "password": b"wonderland"}
    assert accepted(await gate.judge(request_of(**right)))
    for guess in (b"1", b"2", b"3"):
        assert code(await gate.judge(request_of(username="alice", password=guess))) == BAD_CREDENTIALS
    assert code(gate.authenticate(request_of(username="alice", password=b"4"))) == BANNED
    assert identity(gate.authenticate(request_of(**right))).username == "alice"
    assert code(gate.authenticate(request_of(username="bob", password=b"builder"))) == BANNED
    gate.reload()
    assert code(gate.authenticate(request_of(**right))) == BANNED, "what was remembered is forgotten"


async def test_a_client_that_is_gone_costs_no_hash(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file), hash_threads=1)
    requests = [request_of(username="alice", password=b"%d" % number) for number in range(10)]
    for request in requests:
        assert gate.authenticate(request) is None
    for request in requests[:-1]:
        request.abandoned = True
    delivered = [(await gate.delivered.get())[0] for _ in range(2)]
    assert delivered == [requests[0], requests[-1]], "the first was being looked at already"
    assert gate.logins_checked == 2


async def test_the_longest_line_gives_way_to_another_address(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), hash_threads=1, hash_queue_max=4)
    for number in range(5):
        assert gate.authenticate(request_of(username="alice", password=b"%d" % number)) is None
    assert gate.authenticate(request_of(username="alice", password=b"wonderland", peer="192.0.2.9")) is None
    verdicts = [(request.password, verdict) for request, verdict in [await gate.delivered.get() for _ in range(6)]]
    busy = [password for password, verdict in verdicts if not accepted(verdict) and code(verdict) == BUSY]
    assert busy == [b"4"]
    assert [password for password, verdict in verdicts if accepted(verdict)] == [b"wonderland"]


async def test_forged_tokens_are_guesses_and_expired_ones_are_not(
    gate_of: GateOf, request_of: RequestOf, secret_file: str
) -> None:
    gate = gate_of(jwt_secret_file=secret_file, failed_logins_per_peer_max=2)
    for _ in range(5):
        assert code(gate.authenticate(request_of(password=token(exp=NOW_S - 1)))) == NOT_AUTHORIZED
    for _ in range(2):
        assert code(gate.authenticate(request_of(password=token()[:-6]))) == BAD_CREDENTIALS
    assert code(gate.authenticate(request_of(password=token()))) == BANNED


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_brings_its_name_and_its_end(gate_of: GateOf, request_of: RequestOf, secret_file: str) -> None:
    gate = gate_of(jwt_secret_file=secret_file, superusers=("admin",))
    gate.wall = NOW_S * 1000 + 250
    verdict = gate.authenticate(request_of(username="admin", password=token(), now_ms=5_000))
    assert isinstance(verdict, Accept)
    assert verdict.expires_at_ms == 5_000 + 60_000 - 250, "in the time of the request, not of the wall"
    tina = Identity("c1", "tina", False, None, peer="192.0.2.1")
    assert identity(verdict) == tina, "the client's word for its name does not count"
    endless = gate_of(jwt_secret_file=secret_file, jwt_require_expiry=False)
    verdict = endless.authenticate(request_of(password=token(exp=None)))
    assert isinstance(verdict, Accept)
    assert verdict.expires_at_ms == 0


async def test_passwords_and_tokens_live_side_by_side(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, secret_file: str
) -> None:
    gate = gate_of(password_file=str(password_file), jwt_secret_file=secret_file)
    assert identity(gate.authenticate(request_of(username="alice", password=token()))).username == "tina"
    assert identity(await gate.judge(request_of(username="alice", password=b"wonderland"))).username == "alice"


async def test_a_token_with_rights_of_its_own(
    gate_of: GateOf, request_of: RequestOf, secret_file: str, tmp_path: Path
) -> None:
    gate = gate_of(jwt_secret_file=secret_file, acl_file=acl_file(tmp_path, ("all", "all", "common/#")))
    rights = {"pub": ["out/%c/%u"], "sub": ["in/#", "$SYS/broker/#"]}
    own = identity(gate.authenticate(request_of(username="mallory", password=token(acl=rights))))
    assert gate.may_publish(own, b"out/c1/tina")
    assert not gate.may_publish(own, b"out/c1/mallory")
    assert gate.may_subscribe(own, b"in/+")
    assert gate.may_subscribe(own, b"$SYS/broker/uptime")
    assert not gate.may_subscribe(own, b"#")
    assert not gate.may_publish(own, b"common/x"), "its rights are all that it has"
    plain = identity(gate.authenticate(request_of(password=token())))
    assert gate.may_publish(plain, b"common/x")
    assert not gate.may_publish(plain, b"out/c1/tina")


# --- certificates -----------------------------------------------------------------------------------------------------


async def test_a_certificate_is_a_name(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file), superusers=("root",))
    assert identity(gate.authenticate(request_of(certificate_name="sensor", username="root"))).username == "sensor"
    assert identity(gate.authenticate(request_of(certificate_name="root"))).superuser
    guarded = gate_of(password_file=str(password_file), use_certificate_as_username=False)
    assert code(guarded.authenticate(request_of(certificate_name="sensor"))) == NOT_AUTHORIZED
    request = request_of(certificate_name="sensor", username="alice", password=b"wonderland")
    assert identity(await guarded.judge(request)).username == "alice"


async def test_a_certificate_with_several_names_is_nobodys(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file), allow_anonymous=True)
    for brought in ({}, {"username": "alice", "password": b"wonderland"}, {"method": "SCRAM-SHA-256"}):
        verdict = gate.authenticate(request_of(certificate_name="", **brought))
        assert isinstance(verdict, Refuse)
        assert verdict.reason_code == NOT_AUTHORIZED
        assert "one common name" in verdict.text
    guarded = gate_of(password_file=str(password_file), use_certificate_as_username=False)
    request = request_of(certificate_name="", username="alice", password=b"wonderland")
    assert identity(await guarded.judge(request)).username == "alice", "it only guards the line here"


# --- SCRAM ------------------------------------------------------------------------------------------------------------


def scram(gate: GateUnderTest, request: AuthRequest, client: ScramClient) -> Verdict | None:
    """A whole exchange up to the server's verdict."""
    request.data = client.first()
    challenge = gate.authenticate(request)
    if not isinstance(challenge, Continue):
        return challenge
    return gate.resume(request, client.respond(challenge.data))


async def test_scram_proves_both_sides(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file), superusers=("alice",))
    client = ScramClient("alice", "wonderland", "CLIENT")
    verdict = scram(gate, request_of(method="SCRAM-SHA-256"), client)
    assert isinstance(verdict, Accept)
    assert verdict.identity == Identity("c1", "alice", True, None, peer="192.0.2.1")
    assert verdict.data is not None
    client.verify(verdict.data)
    impostor = ScramClient("alice", "wonderland", "CLIENT")
    with pytest.raises(ScramError):
        impostor.verify(verdict.data)


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("eve", "x"), ("bob", "builder")])
async def test_scram_refuses_wrong_passwords_unknown_users_and_users_without_keys_alike(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, name: str, password: str
) -> None:
    gate = gate_of(password_file=str(password_file), failed_logins_per_username_max=2)
    salts = set()
    for _ in range(2):
        request = request_of(method="SCRAM-SHA-256")
        client = ScramClient(name, password, "CLIENT")
        request.data = client.first()
        challenge = gate.authenticate(request)
        assert isinstance(challenge, Continue)
        salts.add(challenge.data.partition(b",")[2])
        verdict = gate.resume(request, client.respond(challenge.data))
        assert verdict == Refuse(NOT_AUTHORIZED, "The user name or password is wrong")
    (salt,) = salts
    assert salt.endswith(b",i=4096"), "as that of the users there are"
    assert code(scram(gate, request_of(method="SCRAM-SHA-256"), ScramClient(name, password, "C"))) == BANNED


async def test_an_exchange_can_not_be_replayed_or_resumed_twice(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(password_file=str(password_file))
    client = ScramClient("alice", "wonderland", "CLIENT")
    request = request_of(method="SCRAM-SHA-256", data=client.first())
    challenge = gate.authenticate(request)
    assert isinstance(challenge, Continue)
    proof = client.respond(challenge.data)
    assert accepted(gate.resume(request, proof))
    assert code(gate.resume(request, proof)) == BAD_METHOD
    again = request_of(method="SCRAM-SHA-256", data=client.first())
    assert isinstance(gate.authenticate(again), Continue)
    assert code(gate.resume(again, proof)) == NOT_AUTHORIZED
    assert code(gate.resume(request_of(), b"")) == BAD_METHOD


async def test_re_authentication_keeps_the_user(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    set_password(password_file, "carol", b"x", cost=HashCost(1, 8, 1), scram_iterations=4_096)
    gate = gate_of(password_file=str(password_file))
    same = request_of(method="SCRAM-SHA-256", username="alice")
    assert identity(scram(gate, same, ScramClient("alice", "wonderland", "CLIENT"))).username == "alice"
    other = request_of(method="SCRAM-SHA-256", username="alice")
    assert code(scram(gate, other, ScramClient("carol", "x", "CLIENT"))) == NOT_AUTHORIZED
    certified = request_of(method="SCRAM-SHA-256", certificate_name="carol")
    assert code(scram(gate, certified, ScramClient("alice", "wonderland", "CLIENT"))) == NOT_AUTHORIZED


async def test_methods_that_are_not_offered(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, tmp_path: Path, cheap: HashCost
) -> None:
    first = ScramClient("alice", "wonderland", "CLIENT").first()
    no_keys = tmp_path / "no-keys"
    set_password(no_keys, "alice", b"wonderland", cost=cheap, scram_iterations=0)
    for gate, method in [
        (gate_of(password_file=str(password_file)), "SCRAM-SHA-1"),
        (gate_of(password_file=str(password_file)), ""),
        (gate_of(password_file=str(password_file), scram=False), "SCRAM-SHA-256"),
        (gate_of(password_file=str(no_keys)), "SCRAM-SHA-256"),
        (gate_of(allow_anonymous=True), "SCRAM-SHA-256"),
    ]:
        assert code(gate.authenticate(request_of(method=method, data=first))) == BAD_METHOD
    gate = gate_of(password_file=str(password_file))
    for data in (None, b"", b"garbage"):
        assert code(gate.authenticate(request_of(method="SCRAM-SHA-256", data=data))) == NOT_AUTHORIZED


# --- what -------------------------------------------------------------------------------------------------------------


async def test_without_rules_everything_but_sys_is_allowed(gate_of: GateOf) -> None:
    gate = gate_of(allow_anonymous=True)
    anybody, root = Identity("c1"), Identity("c1", "root", superuser=True)
    assert gate.may_publish(anybody, b"a/b")
    assert gate.may_subscribe(anybody, b"#")
    for topic in (b"$SYS/#", b"$SYS/broker/uptime", b"$SYS"):
        assert not gate.may_subscribe(anybody, topic)
        assert gate.may_subscribe(root, topic)
    assert not gate.may_publish(anybody, b"$SYS/x")
    assert gate.may_subscribe(anybody, b"$SYSTEM/x")


async def test_rules_hold_by_name_address_and_id(gate_of: GateOf, request_of: RequestOf, tmp_path: Path) -> None:
    rules = [
        ("user:sensor", "publish", "data/%u/%c"),
        ("ip:10.0.0.0/8", "subscribe", "inside/#"),
        ("client:c9", "publish", "nine"),
    ]
    gate = gate_of(allow_anonymous=True, acl_file=acl_file(tmp_path, *rules), superusers=("root",))
    sensor = identity(gate.authenticate(request_of(certificate_name="sensor")))
    assert gate.may_publish(sensor, b"data/sensor/c1")
    assert not gate.may_publish(sensor, b"data/sensor/c2")
    assert not gate.may_subscribe(sensor, b"inside/#")
    inside = identity(gate.authenticate(request_of(peer="10.1.1.1", username="sensor", client_id="c9")))
    assert gate.may_subscribe(inside, b"inside/#")
    assert gate.may_publish(inside, b"nine")
    assert not gate.may_publish(inside, b"data/sensor/c9"), "nobody proved to be that user"
    root = identity(gate.authenticate(request_of(certificate_name="root")))
    assert gate.may_publish(root, b"anything")
    bare = Identity("c9")  # one that did not come through authenticate
    assert gate.may_publish(bare, b"nine")
    assert not gate.may_subscribe(bare, b"inside/#")


async def test_a_delayed_message_is_judged_by_where_it_goes(
    gate_of: GateOf, request_of: RequestOf, tmp_path: Path
) -> None:
    gate = gate_of(allow_anonymous=True, acl_file=acl_file(tmp_path, ("all", "publish", "a/#")))
    anybody = identity(gate.authenticate(request_of()))
    assert gate.may_publish(anybody, b"$delayed/5/a/x")
    assert not gate.may_publish(anybody, b"$delayed/5/b")
    assert not gate.may_publish(anybody, b"$delayed/5/$delayed/5/b")
    assert not gate.may_publish(anybody, b"$delayed/a")
    open_gate = gate_of(allow_anonymous=True)
    assert not open_gate.may_publish(anybody, b"$delayed/5/$SYS/x")


async def test_new_rules_hold_for_those_who_are_already_in(
    gate_of: GateOf, request_of: RequestOf, tmp_path: Path
) -> None:
    gate = gate_of(allow_anonymous=True, acl_file=acl_file(tmp_path, ("all", "all", "old")))
    anybody = identity(gate.authenticate(request_of()))
    assert gate.may_publish(anybody, b"old")
    version = gate.version
    acl_file(tmp_path, ("all", "all", "new"))
    assert gate.may_publish(anybody, b"old"), "files are read when asked for"
    assert gate.reload() == ["acl"]
    assert gate.version > version
    assert not gate.may_publish(anybody, b"old")
    assert gate.may_publish(anybody, b"new")


async def test_a_failed_reload_keeps_everything(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, secret_file: str, tmp_path: Path, cheap: HashCost
) -> None:
    rules = acl_file(tmp_path, ("all", "all", "old"))
    gate = gate_of(password_file=str(password_file), jwt_secret_file=secret_file, acl_file=rules)
    alice = identity(await gate.judge(request_of(username="alice", password=b"wonderland")))
    version = gate.version
    set_password(password_file, "alice", b"looking-glass", cost=cheap)
    acl_file(tmp_path, default="none")
    with pytest.raises(ConfigError, match=r"acl\.toml must say"):
        gate.reload()
    assert gate.version == version
    assert gate.may_publish(alice, b"old")
    assert accepted(await gate.judge(request_of(username="alice", password=b"wonderland"))), "all files or none"
    acl_file(tmp_path, ("all", "all", "old"))
    assert gate.reload() == ["passwords", "tokens", "acl"]
    assert code(await gate.judge(request_of(username="alice", password=b"wonderland"))) == BAD_CREDENTIALS


@pytest.mark.parametrize(
    "setting", ["password_file", "acl_file", "jwt_secret_file", "jwt_public_key_file", "jwt_jwks_file"]
)
async def test_an_empty_or_missing_file_means_no_start(gate_of: GateOf, tmp_path: Path, setting: str) -> None:
    path = tmp_path / "file"
    with pytest.raises(ConfigError, match=str(path)):
        gate_of(**{setting: str(path)})
    path.touch()
    with pytest.raises(ConfigError, match=str(path)):
        gate_of(**{setting: str(path)})


async def test_no_refusal_gives_a_secret_away(
    gate_of: GateOf, request_of: RequestOf, password_file: Path, secret_file: str
) -> None:
    gate = gate_of(password_file=str(password_file), jwt_secret_file=secret_file)
    bad = token() + b"tampered"
    texts = [
        str(await gate.judge(request_of(username="alice", password=b"my-guess"))),
        str(await gate.judge(request_of(username="alice", password=bad))),
    ]
    assert not any(secret in text for text in texts for secret in ("my-guess", "tampered", "argon2", "eyJ"))
