from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from flockmq.security.jwt_auth import Token, TokenError, TokenVerifier, looks_like_token
from flockmq.security.settings import SecuritySettings

WALL_MS = 1_000_000_000_000  # long ago: whoever asked the real clock would find every token here expired
NOW = WALL_MS // 1000
SECRET = b"0123456789abcdef" * 4
RSA = rsa.generate_private_key(65537, 2048)
EC1, EC2 = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
RSA_PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

Check = Callable[..., Token]


@pytest.fixture
def verify(tmp_path: Path) -> Check:
    """Verifies a token with all three kinds of keys set up."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "key.pem").write_bytes(RSA_PEM)
    jwks = [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid} for key, kid in ((EC1, "1"), (EC2, "2"))]
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": jwks}))

    def check(token: str | bytes, client_id: str = "c1", username: str | None = "u1", **settings: Any) -> Token:
        files = {"jwt_secret_file": "secret", "jwt_public_key_file": "key.pem", "jwt_jwks_file": "jwks.json"}
        paths = {name: str(tmp_path / file) for name, file in files.items()}
        verifier = TokenVerifier(SecuritySettings(**(paths | settings)))
        data = token.encode() if isinstance(token, str) else token
        return verifier.verify(data, client_id, username, WALL_MS)

    return check


def sign(algorithm: str = "HS256", key: Any = SECRET, headers: dict[str, Any] | None = None, **claims: Any) -> str:
    claims = {name: value for name, value in ({"exp": NOW + 60, "sub": "alice"} | claims).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers=headers)


def by_hand(header: object, claims: object, secret: bytes = SECRET) -> str:
    """A token that no decent library would make."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    signature = hmac.digest(secret, b".".join(parts), hashlib.sha256)
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.parametrize(
    "token",
    [
        sign("HS256"),
        sign("HS384"),
        sign("HS512"),
        sign("RS256", RSA),
        sign("RS384", RSA),
        sign("RS512", RSA),
        sign("ES256", EC1, {"kid": "1"}),
        sign("ES256", EC2, {"kid": "2"}),
    ],
    ids=lambda token: str(jwt.get_unverified_header(token)["alg"]),
)
def test_good_tokens_of_each_kind(verify: Check, token: str) -> None:
    assert looks_like_token(token.encode())
    assert verify(token) == Token("alice", (NOW + 60) * 1000, None)


def test_a_public_key_is_no_secret(verify: Check) -> None:
    """The classic confusion: sign with HS256, taking the RSA public key (known to all) as the secret."""
    for public in (RSA_PEM, RSA_PEM.rstrip(b"\n"), json.dumps(RSAAlgorithm.to_jwk(RSA.public_key())).encode()):
        forged = by_hand({"alg": "HS256", "typ": "JWT"}, {"sub": "admin", "exp": NOW + 60}, public)
        with pytest.raises(TokenError) as caught:
            verify(forged)
        assert not caught.value.genuine
        with pytest.raises(TokenError):
            verify(forged, jwt_secret_file="")


def test_none_is_no_algorithm(verify: Check) -> None:
    for algorithm in ("none", "None", "NONE", ""):
        header, claims, _ = by_hand({"alg": algorithm}, {"sub": "admin", "exp": NOW + 60}).split(".")
        for signature in ("", "AAAA"):
            with pytest.raises(TokenError, match="not known here"):
                verify(f"{header}.{claims}.{signature}")


def test_other_algorithms_are_not_spoken(verify: Check) -> None:
    for token in (sign("PS256", RSA), sign("ES384", ec.generate_private_key(ec.SECP384R1()), {"kid": "1"})):
        with pytest.raises(TokenError, match="not known here"):
            verify(token)


def test_every_changed_character_is_noticed(verify: Check) -> None:
    token = sign()
    header, claims, signature = token.split(".")
    forged_claims = (
        base64.urlsafe_b64encode(json.dumps({"sub": "admin", "exp": NOW + 60}).encode()).decode().rstrip("=")
    )
    forgeries = [
        f"{header}.{forged_claims}.{signature}",
        f"{header}.{claims}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}",
        f"{header}.{claims}.{signature[:-4]}",
        f"{header}.{claims}.",
        sign(key=b"another secret, just as long as the right one...."),
        sign("ES256", EC1, {"kid": "2"}),
    ]
    for forgery in forgeries:
        with pytest.raises(TokenError, match="signature is wrong") as caught:
            verify(forgery)
        assert not caught.value.genuine


def test_a_key_that_is_not_known_or_not_named_is_refused(verify: Check) -> None:
    for headers in ({"kid": "3"}, None):
        with pytest.raises(TokenError, match="a key that is not known here") as caught:
            verify(sign("ES256", EC1, headers))
        assert not caught.value.genuine


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"eyJ",
        b"..",
        b"eyJ..",
        b"eyJhbGciOiJIUzI1NiJ9.e30",
        b"\xff.\xff.\xff",
        b"eyJhbGciOiJIUzI1NiJ9." * 5,
        b"e30.e30.e30",
        b"W10.e30.e30",
        base64.urlsafe_b64encode(b"[" * 9_000) + b".e30.e30",
        base64.urlsafe_b64encode(b'{"x":' * 1_900) + b".e30.e30",
        by_hand({"alg": ["HS256"]}, {}).encode(),
        by_hand({"alg": "HS256", "kid": {}}, {}).encode(),
        by_hand({"alg": "HS256", "crit": ["exp"]}, {"exp": NOW + 60}).encode(),
        by_hand({"alg": "HS256", "b64": True}, {"exp": NOW + 60}).encode(),
        b"eyJ" + b"a" * 20_000 + b".e30.e30",
    ],
)
def test_garbage_is_refused_and_breaks_nothing(verify: Check, token: bytes) -> None:
    with pytest.raises(TokenError) as caught:
        verify(token)
    assert not caught.value.genuine


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": NOW - 1}, "has expired"),
        ({"exp": NOW}, "has expired"),
        ({"exp": None}, "no expiry"),
        ({"nbf": NOW + 1}, "not valid yet"),
    ],
)
def test_tokens_out_of_their_time_are_refused_as_genuine(verify: Check, claims: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenError, match=message) as caught:
        verify(sign(**claims))
    assert caught.value.genuine


@pytest.mark.parametrize("exp", ["soon", True, [], {}, -1, 1e30, 10**30, float("nan"), float("inf")], ids=repr)
def test_an_expiry_that_is_no_moment_is_refused(verify: Check, exp: object) -> None:
    with pytest.raises(TokenError):
        verify(by_hand({"alg": "HS256"}, {"sub": "alice", "exp": exp}))


def test_leeway_and_optional_expiry(verify: Check) -> None:
    assert verify(sign(exp=NOW - 4, nbf=NOW + 4), jwt_leeway_s=5).expires_at_wall_ms == (NOW + 1) * 1000
    with pytest.raises(TokenError, match="expired"):
        verify(sign(exp=NOW - 5), jwt_leeway_s=5)
    assert verify(sign(exp=None), jwt_require_expiry=False).expires_at_wall_ms is None
    assert verify(sign(exp=NOW + 0.5)).expires_at_wall_ms == WALL_MS + 500


def test_issuer_and_audience(verify: Check) -> None:
    assert verify(sign(iss="x", aud="y")).username == "alice"
    settings = {"jwt_issuer": "idp", "jwt_audience": "mqtt"}
    assert verify(sign(iss="idp", aud="mqtt"), **settings).username == "alice"
    assert verify(sign(iss="idp", aud=["other", "mqtt"]), **settings).username == "alice"
    for claims in ({}, {"iss": "idp"}, {"aud": "mqtt"}, {"iss": "x", "aud": "mqtt"}, {"iss": "idp", "aud": ["mqt"]}):
        with pytest.raises(TokenError, match=r"another (issuer|audience)"):
            verify(sign(**claims), **settings)
    with pytest.raises(TokenError, match="aud"):
        verify(sign(iss="idp", aud="mqtt and more"), **settings)


def test_claims_that_must_fit_the_client(verify: Check) -> None:
    settings = {"jwt_verify_claims": ("sub=%u", "device=%c", "tenant=acme")}
    good: dict[str, Any] = {"sub": "u1", "device": "c1", "tenant": "acme"}
    assert verify(sign(**good), **settings).username == "u1"
    for wrong in ({"sub": "u2"}, {"device": "c2"}, {"tenant": "other"}, {"device": None}, {"device": ["c1"]}):
        with pytest.raises(TokenError, match="does not fit this client"):
            verify(sign(**(good | wrong)), **settings)
    with pytest.raises(TokenError, match="'sub' does not fit"):
        verify(sign(**good), username=None, **settings)


def test_the_user_name_comes_from_the_token_and_not_from_the_client(verify: Check) -> None:
    assert verify(sign(sub="alice"), username="admin").username == "alice"
    assert verify(sign(sub=None), username="admin").username is None
    assert verify(sign(sub="x", name="bob"), jwt_username_claim="name").username == "bob"
    for name in ("", ["alice"]):
        with pytest.raises(TokenError, match="is not a name"):
            verify(sign(name=name), jwt_username_claim="name")


def test_rights_in_the_token(verify: Check) -> None:
    rights = verify(sign(acl={"pub": ["out/%c"], "sub": ["in/#"], "all": ["x"]})).rights
    assert rights is not None
    assert (len(rights.publish), len(rights.subscribe)) == (2, 2)
    assert rights.capture is None
    bound = verify(sign(acl={"sub": ["#"], "capture": []})).rights
    assert bound is not None
    assert bound.capture == ()
    assert verify(sign(acl={})).rights is not None, "no rights are rights, too"
    assert verify(sign(acl={"pub": ["a"]}), jwt_acl_claim="").rights is None
    assert verify(sign(rules={"pub": ["a"]}), jwt_acl_claim="rules").rights is not None


@pytest.mark.parametrize(
    "acl",
    [
        [],
        "x",
        {"pub": "a"},
        {"pub": [1]},
        {"capture": "a"},
        {"publish": ["a"]},
        {"sub": ["a/#/b"]},
        {"all": ["%x"]},
        {"pub": ["a"] * 1001},
    ],
)
def test_rights_that_are_not_understood_are_no_way_in(verify: Check, acl: object) -> None:
    with pytest.raises(TokenError, match="'acl'") as caught:
        verify(sign(acl=acl))
    assert caught.value.genuine


def test_a_genuine_token_without_claims_is_refused(verify: Check) -> None:
    with pytest.raises(TokenError, match="no claims"):
        verify(by_hand({"alg": "HS256"}, ["not", "an", "object"]))


def test_what_looks_like_a_token() -> None:
    assert not looks_like_token(b"wonderland")
    assert not looks_like_token(b"a.b.c")
    assert not looks_like_token(b"eyJ.a")


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    verifier = TokenVerifier(SecuritySettings(jwt_secret_file=str(tmp_path / "secret")))
    assert repr(verifier) == "TokenVerifier(1 keys)"
