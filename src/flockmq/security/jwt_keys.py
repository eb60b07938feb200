"""Keys that tokens are verified with. What a key is decides which algorithms it verifies, never what a token says.

```
 secret file ----> bytes            HS256 from 32 bytes, HS384 from 48, HS512 from 64 (RFC 7518, section 3.2)
 PEM ------------> RSA              RS256, RS384, RS512, from 2048 bits
 JWKS -----------> EC               P-256: ES256   P-384: ES384   P-521: ES512
```
So a public key can't be used as the secret of an HS token, and there is no key at all for ``none``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, RSAAlgorithm

from flockmq.errors import ConfigError
from flockmq.security.files import read_bytes

if TYPE_CHECKING:
    from flockmq.security.settings import SecuritySettings

Material = bytes | RSAPublicKey | EllipticCurvePublicKey

KEYS_MAX: Final = 256
_SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS_MIN: Final = 2048


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key with all that it may be used for."""

    algorithms: frozenset[str]
    kid: str | None = None
    material: Material = field(repr=False, kw_only=True)


class _UnusableError(ValueError):
    """A key that this broker has no use for: of another kind or for another purpose, and no mistake."""


def find_key(keys: tuple[VerificationKey, ...], algorithm: str, kid: str | None) -> VerificationKey | None:
    """The one key for a token: by its id where it has one, else only if there is no choice."""
    fitting = [key for key in keys if algorithm in key.algorithms]
    if kid is not None:
        fitting = [key for key in fitting if key.kid == kid] or [key for key in fitting if key.kid is None]
    return fitting[0] if len(fitting) == 1 else None


def load_keys(settings: SecuritySettings) -> tuple[VerificationKey, ...]:
    """All keys of the files that the settings name; ConfigError tells what is wrong with which."""
    keys: list[VerificationKey] = []
    if settings.jwt_secret_file:
        keys.append(_load_secret(Path(settings.jwt_secret_file)))
    if settings.jwt_public_key_file:
        keys.append(_load_pem(Path(settings.jwt_public_key_file)))
    if settings.jwt_jwks_file:
        keys += _load_jwks(Path(settings.jwt_jwks_file))
    return tuple(keys)


def _load_secret(path: Path) -> VerificationKey:
    data = read_bytes(path, "JWT secret file")
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret or b"-")
    except PyJWTError:
        raise ConfigError(
            f"The JWT secret file {path} holds a public key or a key set, which are no secret; "
            "set security.jwt_public_key_file or security.jwt_jwks_file instead."
        ) from None
    try:
        return _secret_key(secret)
    except ValueError as error:
        raise ConfigError(f"The JWT secret file {path}: {error}.") from None


def _load_pem(path: Path) -> VerificationKey:
    data = read_bytes(path, "JWT public key file")
    if b"PRIVATE KEY-----" in data:
        raise ConfigError(
            f"The JWT public key file {path} holds a private key, which a broker should not have; "
            "make a public one of it: openssl pkey -in PRIVATE.pem -pubout"
        )
    try:
        if b"-----BEGIN CERTIFICATE-----" in data:
            return _public_key(x509.load_pem_x509_certificate(data).public_key())
        return _public_key(load_pem_public_key(data))
    except (ValueError, UnsupportedAlgorithm) as error:
        why = str(error) if isinstance(error, _UnusableError) else "it is not a PEM public key or certificate"
        raise ConfigError(f"The JWT public key file {path} can't be used: {why}.") from None


def _load_jwks(path: Path) -> list[VerificationKey]:
    what = f"The JWKS file {path}"
    try:
        tree = msgspec.json.decode(read_bytes(path, "JWKS file"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{what} is not valid JSON ({error}).") from None
    entries = tree.get("keys") if isinstance(tree, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f'{what} holds no keys; it must look like {{"keys": [...]}}.')
    if len(entries) > KEYS_MAX:
        raise ConfigError(f"{what} holds more than {KEYS_MAX} keys; is that the right file?")
    keys: list[VerificationKey] = []
    for number, entry in enumerate(entries, 1):
        try:
            key = _jwk(entry)
        except _UnusableError:
            continue  # a set may hold keys for other purposes
        except (ValueError, TypeError, KeyError, PyJWTError, UnsupportedAlgorithm) as error:
            why = error if type(error) is ValueError else "it is malformed"
            raise ConfigError(f"{what}, key {number}: {why}.") from None
        if key.kid is not None and any(key.kid == other.kid for other in keys):
            raise ConfigError(f"{what}, key {number}: another key has the same kid {key.kid!r}.")
        keys.append(key)
    if not keys:
        raise ConfigError(f"{what} holds no key that HS, RS or ES tokens could be verified with.")
    return keys


def _jwk(entry: object) -> VerificationKey:
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  (all that is wrong with a key is a ValueError here)
    kid = entry.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("its kid is not text")
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        raise _UnusableError("it is not for signatures")
    kind = entry.get("kty")
    if kind in ("RSA", "EC") and "d" in entry:
        raise ValueError("it is a private key, which a broker should not have; leave only the public part")
    if kind == "oct":
        key = _secret_key(HMACAlgorithm.from_jwk(entry))
    elif kind == "RSA":
        key = _public_key(RSAAlgorithm.from_jwk(entry))
    elif kind == "EC":
        key = _public_key(ECAlgorithm(ECAlgorithm.SHA256).from_jwk(entry))
    else:
        raise _UnusableError(f"it is of kind {kind!r}")
    algorithms = key.algorithms & {entry["alg"]} if "alg" in entry else key.algorithms
    if not algorithms:
        raise _UnusableError("it is for another algorithm")
    return VerificationKey(algorithms, kid, material=key.material)


def _secret_key(secret: bytes) -> VerificationKey:
    algorithms = frozenset(name for name, size in _SECRET_BYTES.items() if len(secret) >= size)
    if not algorithms:
        raise ValueError(
            f"the secret has {len(secret)} bytes and needs at least 32; make one with: openssl rand -base64 48"
        )
    return VerificationKey(algorithms, material=secret)


def _public_key(key: object) -> VerificationKey:
    if isinstance(key, RSAPublicKey):
        if key.key_size < _RSA_BITS_MIN:
            raise _UnusableError(f"an RSA key of {key.key_size} bits is too short, {_RSA_BITS_MIN} is the least")
        return VerificationKey(_RSA_ALGORITHMS, material=key)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return VerificationKey(frozenset({_CURVES[key.curve.name]}), material=key)
    raise _UnusableError("only RSA keys and EC keys on P-256, P-384 and P-521 are understood")
