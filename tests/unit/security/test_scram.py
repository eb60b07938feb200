from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from flockmq.security.scram import (
    ScramError,
    ScramKeys,
    ScramMismatchError,
    ScramServer,
    derive_keys,
    fake_keys,
)
from scram_client import ScramClient

ITERATIONS = 4_096


def keys_of(password: str) -> ScramKeys:
    return derive_keys(password, b"0123456789abcdef", ITERATIONS)


def server_for(password: str = "pencil", nonce: str = "SERVER") -> ScramServer:
    return ScramServer(lambda _name: keys_of(password), nonce)


def test_the_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = ScramServer(lambda _name: derive_keys("pencil", salt, 4096), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient("user", "pencil", "rOprNGfwEbeRWgbNEkqO")

    first = client.first()
    challenge = server.first(first)
    proof = client.respond(challenge)
    answer = server.final(proof)
    client.verify(answer)

    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert proof == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.username == "user"


@pytest.mark.parametrize("name", ["a=b,c", "=2C", "=3D2C", "Jürgen", "x y"])
def test_names_survive_the_escaping(name: str) -> None:
    server = server_for()
    client = ScramClient(name, "pencil", "CLIENT")
    client.verify(server.final(client.respond(server.first(client.first()))))
    assert server.username == name


def test_names_and_passwords_that_look_alike_are_alike() -> None:
    server = server_for("Ⅸ")  # SASLprep makes IX of it
    client = ScramClient("user", "I\u00adX", "CLIENT")
    client.verify(server.final(client.respond(server.first(client.first()))))


def test_a_wrong_password_is_found_in_the_last_step() -> None:
    server = server_for("pencil")
    client = ScramClient("user", "crayon", "CLIENT")
    proof = client.respond(server.first(client.first()))
    with pytest.raises(ScramMismatchError, match="wrong"):
        server.final(proof)


def test_an_unknown_user_gets_a_salt_that_stays_the_same_and_fails_like_a_wrong_password() -> None:
    first, again, other = (fake_keys(name, b"secret of this boot", ITERATIONS) for name in ("eve", "eve", "mallory"))
    assert first == again
    assert first.salt != other.salt
    assert len(first.salt) == 16
    assert fake_keys("eve", b"secret of another boot", ITERATIONS).salt != first.salt

    server = ScramServer(lambda _name: first, "SERVER")
    client = ScramClient("eve", "pencil", "CLIENT")
    proof = client.respond(server.first(client.first()))
    with pytest.raises(ScramMismatchError, match="The user name or password is wrong"):
        server.final(proof)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n=user,r=CLIENT",
        b"p=tls-unique,,n=user,r=CLIENT",  # channel binding, which we never offered
        b"x,,n=user,r=CLIENT",
        b"n,,m=extension,n=user,r=CLIENT",  # a mandatory extension must fail
        b"n,,n=,r=CLIENT",
        b"n,,n=us=er,r=CLIENT",
        b"n,,n=user,r=",
        b"n,,n=user,r=CLI\x01ENT",
        b"n,,n=user\x00,r=CLIENT",
        b"n,,n=us\xffer,r=CLIENT",
        b"n,a=admin,n=user,r=CLIENT",  # to act as somebody else
        "n,,n=\u0627a,r=CLIENT".encode(),  # both directions
        b"n,,n=" + b"u" * 5000 + b",r=CLIENT",
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        server_for().first(message)


@pytest.mark.parametrize(
    "message", [b"n,,n=user,r=CLIENT", b"y,,n=user,r=CLIENT", b"n,a=user,n=user,r=CLIENT", b"n,,n=user,r=CLIENT,x=new"]
)
def test_first_messages_that_are_understood(message: bytes) -> None:
    assert server_for().first(message).startswith(b"r=CLIENTSERVER,s=")


def good_proof() -> tuple[ScramServer, bytes]:
    server = server_for()
    client = ScramClient("user", "pencil", "CLIENT")
    return server, client.respond(server.first(client.first()))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"c=biws", b"c=" + b64encode(b"y,,")),  # a man in the middle changed the header
        (b"c=biws", b"c=###"),
        (b"CLIENTSERVER", b"CLIENTSERVEr"),
        (b"CLIENTSERVER", b"CLIENT"),
        (b",p=", b",q="),
        (b",p=", b",p=!"),
        (b",p=", b",p=AAAA"),
    ],
)
def test_last_messages_that_are_refused(before: bytes, after: bytes) -> None:
    server, proof = good_proof()
    assert before in proof
    with pytest.raises(ScramError):
        server.final(proof.replace(before, after))


def test_a_message_that_is_not_due_is_refused() -> None:
    with pytest.raises(ScramError, match="not expected"):
        server_for().final(b"c=biws,r=x,p=AAAA")
    server, proof = good_proof()
    server.final(proof)
    with pytest.raises(ScramError, match="not expected"):
        server.final(proof)
    with pytest.raises(ScramError, match="not expected"):
        server.first(b"n,,n=user,r=CLIENT")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=OTHER,s=AAAA,i=4096",
        b"r=CLIENT,s=AAAA,i=4096",  # the server added nothing
        b"r=CLIENTSERVER,s=AAAA,i=1",  # would make the password cheap to guess
        b"r=CLIENTSERVER,s=AAAA,i=999999999",
        b"r=CLIENTSERVER,s=!,i=4096",
        b"r=CLIENTSERVER,i=4096",
        b"e=other-error",
    ],
)
def test_challenges_that_a_client_does_not_answer(challenge: bytes) -> None:
    client = ScramClient("user", "pencil", "CLIENT")
    with pytest.raises(ScramError):
        client.respond(challenge)


def test_a_client_finds_an_impostor() -> None:
    server, _ = good_proof()
    client = ScramClient("user", "pencil", "CLIENT")
    with pytest.raises(ScramMismatchError):
        client.verify(b"v=AAAA")
    client.respond(server_for().first(client.first()))
    for answer in (b"v=AAAA", b"v=", b"", b"v=" + b64encode(bytes(32))):
        with pytest.raises(ScramError):
            client.verify(answer)
    with pytest.raises(ScramError, match="invalid-proof"):
        client.verify(b"e=invalid-proof")
    assert server.username == "user"


def test_nothing_secret_is_shown() -> None:
    server, proof = good_proof()
    client = ScramClient("user", "pencil", "CLIENT")
    shown = repr(server) + repr(client) + repr(keys_of("pencil"))
    assert "pencil" not in shown
    assert "SERVER" not in shown
    assert "stored" not in shown
    assert proof.decode() not in shown
