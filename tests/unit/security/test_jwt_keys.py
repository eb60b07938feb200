from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from flockmq.errors import ConfigError
from flockmq.security.jwt_keys import VerificationKey, find_key, load_keys
from flockmq.security.settings import SecuritySettings

EC = ec.generate_private_key(ec.SECP256R1())


def pem(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def ec_jwk(key: ec.EllipticCurvePrivateKey = EC, **more: object) -> dict[str, object]:
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), **more}


def jwks(tmp_path: Path, *keys: object) -> tuple[VerificationKey, ...]:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return load_keys(SecuritySettings(jwt_jwks_file=str(path)))


@pytest.mark.parametrize(
    ("data", "algorithms"),
    [
        (b"s" * 32, {"HS256"}),
        (b"s" * 48 + b"\n", {"HS256", "HS384"}),
        (b"s" * 64 + b"\r\n", {"HS256", "HS384", "HS512"}),
    ],
)
def test_a_secret_is_good_for_hashes_of_its_length(tmp_path: Path, data: bytes, algorithms: set[str]) -> None:
    path = tmp_path / "secret"
    path.write_bytes(data)
    (key,) = load_keys(SecuritySettings(jwt_secret_file=str(path)))
    assert key.algorithms == algorithms
    assert key.material == data.rstrip()
    assert "sss" not in repr(key)


def test_what_a_public_key_is_decides_its_algorithms(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    cases = [
        (pem(rsa.generate_private_key(65537, 2048).public_key()), {"RS256", "RS384", "RS512"}),
        (pem(EC.public_key()), {"ES256"}),
        (pem(ec.generate_private_key(ec.SECP384R1()).public_key()), {"ES384"}),
        (pem(ec.generate_private_key(ec.SECP521R1()).public_key()), {"ES512"}),
    ]
    for data, algorithms in cases:
        path.write_bytes(data)
        (key,) = load_keys(SecuritySettings(jwt_public_key_file=str(path)))
        assert key.algorithms == algorithms


def test_a_key_set_keeps_ids_and_pins_algorithms(tmp_path: Path) -> None:
    rsa_jwk = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True)
    secret = {"kty": "oct", "k": "A" * 86, "kid": "h", "alg": "HS256"}
    keys = jwks(tmp_path, ec_jwk(kid="e"), {**rsa_jwk, "kid": "r", "alg": "RS384"}, secret)
    assert [(key.kid, set(key.algorithms)) for key in keys] == [("e", {"ES256"}), ("r", {"RS384"}), ("h", {"HS256"})]


def test_keys_for_other_purposes_are_passed_over(tmp_path: Path) -> None:
    others = [
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
        ec_jwk(use="enc", kid="1"),
        ec_jwk(key_ops=["deriveKey"], kid="2"),
        ec_jwk(alg="ECDH-ES", kid="3"),
    ]
    assert [key.kid for key in jwks(tmp_path, *others, ec_jwk(kid="good"))] == ["good"]
    with pytest.raises(ConfigError, match="no key that"):
        jwks(tmp_path, *others)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "holds no keys"),
        ([1], "key 1: it is not an object"),
        ([ec_jwk(kid="a"), ec_jwk(kid="a")], "key 2: another key has the same kid 'a'"),
        ([ec_jwk(kid=7)], "kid is not text"),
        ([ec_jwk(x="AAAA")], "key 1: it is malformed"),
        ([{"kty": "EC"}], "malformed"),
        ([{"kty": "RSA", "n": "AQAB"}], "malformed"),
        ([{"kty": "oct", "k": "AAAA"}], "at least 32"),
        ([{"kty": "oct"}], "malformed"),
        ([{**ECAlgorithm.to_jwk(EC, as_dict=True)}], "private key"),
        ([ec_jwk(kid=str(number)) for number in range(300)], "more than 256"),
    ],
)
def test_key_sets_that_are_refused_with_the_place(tmp_path: Path, keys: list[object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        jwks(tmp_path, *keys)
    assert "jwks.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', "{", "[" * 100_000])
def test_files_that_are_no_key_set_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"jwks\.json"):
        load_keys(SecuritySettings(jwt_jwks_file=str(path)))


def test_secrets_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for data, message in [
        (b"", "at least 32"),
        (b"short\n", "5 bytes"),
        (pem(EC.public_key()), "public key"),
        (json.dumps({"keys": [ec_jwk()]}).encode(), "key set"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=message):
            load_keys(SecuritySettings(jwt_secret_file=str(path)))
    path.unlink()
    with pytest.raises(ConfigError, match="can't be read"):
        load_keys(SecuritySettings(jwt_secret_file=str(path)))


def test_public_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    private = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for data, message in [
        (b"", "not a PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not a PEM"),
        (private, "private key"),
        (pem(ec.generate_private_key(ec.SECP256K1()).public_key()), "P-256"),
        (pem(ed25519.Ed25519PrivateKey.generate().public_key()), "P-256"),
        (pem(rsa.generate_private_key(65537, 1024).public_key()), "1024 bits"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=message):
            load_keys(SecuritySettings(jwt_public_key_file=str(path)))


def test_finding_the_key_of_a_token() -> None:
    hs = VerificationKey(frozenset({"HS256"}), material=b"h")
    first = VerificationKey(frozenset({"HS512"}), "1", material=b"1")
    second = VerificationKey(frozenset({"HS512"}), "2", material=b"2")
    keys = (hs, first, second)
    assert find_key(keys, "HS512", "2") is second
    assert find_key(keys, "HS512", "3") is None
    assert find_key(keys, "HS512", None) is None, "there is a choice"
    assert find_key(keys, "HS256", None) is hs
    assert find_key(keys, "HS256", "any") is hs, "a key without id does not mind"
    assert find_key(keys, "HS256", "1") is hs
    assert find_key(keys, "none", None) is None
