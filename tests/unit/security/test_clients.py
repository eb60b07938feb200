"""Clients of the cluster at the gate: logins, rights, and what a change means for whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jwt
import pytest

from flockmq.cluster.model import AclRecord, AclRule, ClientRecord
from flockmq.errors import ConfigError
from flockmq.node.ports import Accept, AuthRequest, Continue, Identity, OpenGate, Refuse, Verdict
from flockmq.security.clients import ClientChanges, Clients
from flockmq.security.passwords import HashCost, make_secret, parse_secret
from flockmq.session.space import Space, Spaces
from scram_client import ScramClient

if TYPE_CHECKING:
    from unit.security.conftest import GateUnderTest

    GateOf = Callable[..., GateUnderTest]
    RequestOf = Callable[..., AuthRequest]

CHEAP = HashCost(iterations=1, memory_kib=8, lanes=1)
SPACES = Spaces()
SPACES.by_name["acme"] = Space("acme")
KEY = b"0123456789abcdef" * 2


def secret(password: bytes) -> str:
    return make_secret("any", password, cost=CHEAP)


ALICE = ClientRecord("default", "alice", secret(b"in wonderland"))
BOB = ClientRecord("acme", "bob", secret(b"builder"), publish=("out/%u/#",), subscribe=("in/#",))


def located(request: AuthRequest) -> AuthRequest:
    """As the broker asks: with the namespace that the user name means."""
    request.spaces = SPACES
    if request.username is not None:
        request.namespace, request.username = SPACES.locate(request.username, request.listener)
    return request


def identity(verdict: Verdict | None) -> Identity:
    assert isinstance(verdict, Accept), verdict
    return verdict.identity


def code(verdict: Verdict | None) -> int:
    assert isinstance(verdict, Refuse), verdict
    return verdict.reason_code


# --- who ---


async def test_passwords_of_records(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of()
    assert code(gate.authenticate(located(request_of(username="alice", password=b"in wonderland")))) == 0x87
    gate.set_clients([ALICE, BOB])
    found = identity(await gate.judge(located(request_of(username="alice", password=b"in wonderland"))))
    assert (found.username, found.namespace) == ("alice", "default")
    found = identity(await gate.judge(located(request_of(username="acme/bob", password=b"builder"))))
    assert (found.username, found.namespace) == ("acme/bob", "acme")
    for name, password in (("acme/alice", b"in wonderland"), ("bob", b"builder"), ("alice", b"builder"), ("eve", b"")):
        assert code(await gate.judge(located(request_of(username=name, password=password)))) == 0x86
    checked = gate.logins_checked
    gate.set_clients([])
    assert code(gate.authenticate(located(request_of(username="alice", password=b"in wonderland")))) == 0x87
    assert gate.logins_checked == checked


async def test_scram_of_records(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of()
    gate.set_clients([BOB])
    for connect_name, scram_name in (("acme/bob", "bob"), ("acme/bob", "acme/bob"), (None, "acme/bob")):
        client = ScramClient(scram_name, "builder", "nonce")
        request = located(request_of(username=connect_name, method="SCRAM-SHA-256", data=client.first()))
        challenge = gate.authenticate(request)
        assert isinstance(challenge, Continue)
        found = identity(gate.resume(request, client.respond(challenge.data)))
        assert (found.username, found.namespace) == ("acme/bob", "acme")
    request = located(request_of(method="SCRAM-SHA-256", data=ScramClient("bob", "builder", "n").first()))
    challenge = gate.authenticate(request)
    assert isinstance(challenge, Continue), "an unknown name gets a challenge, too"
    assert code(gate.resume(request, ScramClient("bob", "builder", "n").first())) == 0x87


async def test_a_record_with_scram_alone_takes_no_password(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of()
    gate.set_clients([ClientRecord("default", "alice", ALICE.secret.partition(":")[2])])
    assert code(await gate.judge(located(request_of(username="alice", password=b"in wonderland")))) == 0x86
    client = ScramClient("alice", "in wonderland", "nonce")
    request = located(request_of(method="SCRAM-SHA-256", data=client.first()))
    challenge = gate.authenticate(request)
    assert isinstance(challenge, Continue)
    assert identity(gate.resume(request, client.respond(challenge.data))).username == "alice"


async def test_the_file_wins(gate_of: GateOf, request_of: RequestOf, password_file: Path) -> None:
    gate = gate_of(password_file=str(password_file))
    named_in_file = ClientRecord("default", "alice", secret(b"other"), publish=(), subscribe=())
    assert gate.set_clients([named_in_file, BOB]) == ClientChanges(rights=frozenset({"acme/bob"}))
    assert code(await gate.judge(located(request_of(username="alice", password=b"other")))) == 0x86
    alice = identity(await gate.judge(located(request_of(username="alice", password=b"wonderland"))))
    assert gate.may_publish(alice, b"anything"), "nor do the lists of the record count"
    assert identity(await gate.judge(located(request_of(username="acme/bob", password=b"builder")))).namespace == "acme"
    assert not gate.set_clients([BOB])


async def test_a_password_that_changed_while_it_was_checked(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of()
    gate.set_clients([ALICE])
    request = located(request_of(username="alice", password=b"in wonderland"))
    assert gate.authenticate(request) is None
    gate.set_clients([ClientRecord("default", "alice", secret(b"new"))])
    assert code((await gate.delivered.get())[1]) == 0x86


async def test_anonymous_clients_stay_in_the_namespace_of_their_listener(
    gate_of: GateOf, request_of: RequestOf
) -> None:
    gate = gate_of(allow_anonymous=True)
    gate.set_clients([BOB])
    assert identity(gate.authenticate(located(request_of()))).namespace == "default"
    assert identity(gate.authenticate(located(request_of(username="somebody")))).username is None
    assert code(await gate.judge(located(request_of(username="acme/eve")))) == 0x86


async def test_names_that_are_proved_otherwise_bring_their_namespace(
    gate_of: GateOf, request_of: RequestOf, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(KEY)
    gate = gate_of(jwt_secret_file=str(tmp_path / "key"))

    def token(**claims: object) -> bytes:
        return jwt.encode({"exp": 1_000_000_060, **claims}, KEY, "HS256").encode()

    def where(**options: object) -> tuple[str | None, str]:
        found = identity(gate.authenticate(located(request_of(**options))))
        return found.username, found.namespace

    assert where(certificate_name="acme/bob") == ("acme/bob", "acme")
    assert where(certificate_name="bob") == ("bob", "default")
    assert where(password=token(sub="acme/bob")) == ("acme/bob", "acme")
    assert where(username="acme/bob", password=token(sub="bob")) == ("bob", "default"), "the client's word is nothing"
    assert where(username="bob", password=token(sub="acme/bob")) == ("acme/bob", "acme")
    rights = {"pub": ["of/%u"]}
    bob = identity(gate.authenticate(located(request_of(password=token(sub="acme/bob", acl=rights)))))
    assert gate.may_publish(bob, b"$ns/acme/of/bob"), "%u is the name in the namespace"
    assert not gate.may_publish(bob, b"$ns/acme/of/eve")
    assert not gate.may_publish(bob, b"$ns/other/of/bob")


async def test_who_may_be_a_client_that_is_not_known_yet_is_asked_to_come_again(
    gate_of: GateOf, request_of: RequestOf, password_file: Path
) -> None:
    gate = gate_of(allow_anonymous=True)
    SPACES.is_known = False
    try:
        for asked in (
            request_of(username="alice", password=b"in wonderland"),
            request_of(username="alice"),
            request_of(method="SCRAM-SHA-256", data=ScramClient("alice", "in wonderland", "n").first()),
        ):
            assert code(gate.authenticate(located(asked))) == 0x88
        assert identity(gate.authenticate(located(request_of()))).username is None
        with_file = gate_of(password_file=str(password_file))
        found = identity(await with_file.judge(located(request_of(username="bob", password=b"builder"))))
        assert found.username == "bob", "who is in a file need not wait"
    finally:
        SPACES.is_known = True


# --- what ---


def may(gate: GateUnderTest, who: Identity, publish: bytes = b"", subscribe: bytes = b"") -> bool:
    return gate.may_publish(who, publish) if publish else gate.may_subscribe(who, subscribe)


async def test_rights_of_a_record(gate_of: GateOf) -> None:
    gate = gate_of()
    gate.set_clients([ALICE, BOB])
    bob = Identity("c", "acme/bob", namespace="acme")
    assert may(gate, bob, publish=b"$ns/acme/out/bob/1")
    assert may(gate, bob, publish=b"$delayed/5/$ns/acme/out/bob/1")
    assert not may(gate, bob, publish=b"$ns/acme/out/eve/1")
    assert not may(gate, bob, publish=b"$ns/other/out/bob/1")
    assert may(gate, bob, subscribe=b"$ns/acme/in/#")
    assert not may(gate, bob, subscribe=b"$ns/acme/#")
    alice = Identity("c", "alice")
    assert may(gate, alice, publish=b"a")
    assert not may(gate, alice, publish=b"$ns/acme/a")
    assert not may(gate, alice, subscribe=b"$SYS/#")


async def test_denied_filters_come_first(gate_of: GateOf) -> None:
    gate = gate_of()
    gate.set_clients([ClientRecord("default", "eve", "", publish_deny=("secret/#",), subscribe_deny=("secret/#",))])
    eve = Identity("c", "eve")
    assert may(gate, eve, publish=b"public")
    assert not may(gate, eve, publish=b"secret/1")
    assert not may(gate, eve, subscribe=b"#"), "it would read what is denied"
    assert may(gate, eve, subscribe=b"public/#")


async def test_superusers_of_a_namespace(gate_of: GateOf) -> None:
    gate = gate_of(superusers=("acme/root",))
    gate.set_clients([ClientRecord("acme", "admin", "", publish=(), superuser=True)])
    admin = Identity("c", "acme/admin", namespace="acme")
    assert may(gate, admin, publish=b"$ns/acme/a")
    assert not may(gate, admin, publish=b"$ns/other/a")
    root = gate.identify("c", "acme/root", "acme", "")
    assert root is not None
    assert root.superuser
    assert not may(gate, root, subscribe=b"$ns/other/#")


async def test_rules_of_a_namespace(gate_of: GateOf, tmp_path: Path) -> None:
    acl = tmp_path / "acl.toml"
    acl.write_text('default = "deny"\n[[rule]]\nallow = true\nwho = "all"\naction = "all"\ntopics = ["file/#"]\n')
    gate = gate_of(acl_file=str(acl), allow_anonymous=True)
    rules = (
        AclRule(False, ("all",), "publish", ("locked/#",)),
        AclRule(True, ("user:bob",), "all", ("#",)),
        AclRule(True, ("all",), "subscribe", ("news/#",)),
    )
    everything = ClientRecord("acme", "bob", "")
    changes = gate.set_clients([everything], [AclRecord("acme", False, rules)])
    assert changes == ClientChanges(rights=frozenset({"acme/bob"}), namespaces=frozenset({"acme"}))
    bob = Identity("c", "acme/bob", namespace="acme")
    anybody = Identity("c", None, namespace="acme")
    assert may(gate, bob, publish=b"$ns/acme/a")
    assert not may(gate, bob, publish=b"$ns/acme/locked/a")
    assert may(gate, anybody, subscribe=b"$ns/acme/news/#")
    assert not may(gate, anybody, publish=b"$ns/acme/file/1")
    assert may(gate, Identity("c"), publish=b"file/1"), "the default namespace has its file"
    assert gate.set_clients([everything], [AclRecord("acme", False, rules)]) == ClientChanges()
    assert gate.set_clients([everything], []).namespaces == {"acme"}
    assert may(gate, anybody, publish=b"$ns/acme/file/1"), "without rules of its own a namespace has those of the file"


async def test_the_acl_file_knows_users_by_their_whole_name(gate_of: GateOf, tmp_path: Path) -> None:
    acl = tmp_path / "acl.toml"
    acl.write_text(
        'default = "deny"\n'
        '[[rule]]\nallow = true\nwho = "user:acme/bob"\naction = "publish"\ntopics = ["named"]\n'
        '[[rule]]\nallow = true\nwho = "all"\naction = "publish"\ntopics = ["of/%u"]\n'
    )
    gate = gate_of(acl_file=str(acl))
    bob, namesake = Identity("c", "acme/bob", namespace="acme"), Identity("c", "bob")
    assert may(gate, bob, publish=b"$ns/acme/named")
    assert not may(gate, namesake, publish=b"named")
    for who, prefix in ((bob, b"$ns/acme/"), (namesake, b"")):
        assert may(gate, who, publish=prefix + b"of/bob")
        assert not may(gate, who, publish=prefix + b"of/eve")


async def test_rules_count_at_once_for_who_is_connected(gate_of: GateOf, request_of: RequestOf) -> None:
    gate = gate_of()
    gate.set_clients([BOB])
    bob = identity(await gate.judge(located(request_of(username="acme/bob", password=b"builder"))))
    assert may(gate, bob, publish=b"$ns/acme/out/bob/1")
    version = gate.version
    gate.set_clients([ClientRecord("acme", "bob", BOB.secret, publish=("other",))])
    assert gate.version > version
    assert not may(gate, bob, publish=b"$ns/acme/out/bob/1")
    assert may(gate, bob, publish=b"$ns/acme/other")


async def test_rules_that_come_later_know_the_address_of_who_is_connected(
    gate_of: GateOf, request_of: RequestOf
) -> None:
    gate = gate_of(allow_anonymous=True)
    earlier = identity(OpenGate().authenticate(request_of(peer="192.0.2.1")))
    here, there = (identity(gate.authenticate(request_of(peer=peer))) for peer in ("192.0.2.1", "198.51.100.1"))
    assert may(gate, here, publish=b"a"), "there are no rules yet"
    gate.set_clients([], [AclRecord("default", True, (AclRule(False, ("ip:192.0.2.0/24",), "all", ("#",)),))])
    assert not may(gate, here, publish=b"a")
    assert not may(gate, earlier, publish=b"a"), "it came in when the broker let everybody in"
    assert may(gate, there, publish=b"a")
    gate.set_clients([], [])
    assert may(gate, here, publish=b"a")


# --- changes ---


def test_what_changed() -> None:
    clients = Clients()
    assert clients.replace([ALICE, BOB], []).rights == {"alice", "acme/bob"}
    same = ClientRecord("default", "alice", ALICE.secret)
    assert not clients.replace([same, BOB], []), "the same again, as after a restart"
    assert clients.replace([ALICE, ClientRecord("acme", "bob", "", publish=BOB.publish)], []) == ClientChanges(
        changed=frozenset({"acme/bob"}), rights=frozenset({"acme/bob"})
    )
    assert clients.replace([ALICE], []) == ClientChanges(removed=frozenset({"acme/bob"}))
    assert not clients.has_logins("acme")
    assert len(clients) == 1


@pytest.mark.parametrize(
    "broken",
    [
        ClientRecord("default", "eve", "$argon2id$nonsense", publish=("a/#/b", "%z")),
        ClientRecord("default", "eve", "$scram-sha-256$nonsense", publish=(), publish_deny=("%z",)),
    ],
)
def test_a_record_that_makes_no_sense_allows_nothing(broken: ClientRecord) -> None:
    clients = Clients()
    clients.replace([broken], [AclRecord("default", True, (AclRule(True, ("nobody",), "all", ("#",)),))])
    client = clients.get("eve")
    assert client is not None
    assert client.user is None
    gate_rules = clients.acl("default")
    assert gate_rules is not None
    assert not gate_rules.default


def test_secrets_there_and_back() -> None:
    user = parse_secret("bob", secret(b"builder"))
    assert user.password_hash.startswith("$argon2id$")
    assert user.scram is not None
    assert parse_secret("bob", "$scram-sha-256$" + secret(b"x").partition("$scram-sha-256$")[2]).password_hash == ""
    assert parse_secret("bob", make_secret("bob", b"\xff\xfe", cost=CHEAP)).scram is None, "no text, so no SCRAM"
    for wrong in ("", "plain", "$argon2id$x", "$scram-sha-256$x", f"{user.password_hash}:x"):
        with pytest.raises(ConfigError):
            parse_secret("bob", wrong)
    with pytest.raises(ConfigError):
        make_secret("bob", b"", cost=CHEAP)
