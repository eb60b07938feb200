"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, as a state machine without IO, clock or randomness.

```
 client                                                   ScramServer
              -- n,,n=alice,r=CLIENT ------------------->   first()
              <- r=CLIENT+SERVER,s=SALT,i=ITERATIONS -----
              -- c=biws,r=CLIENT+SERVER,p=PROOF -------->   final()
              <- v=SIGNATURE -----------------------------
```
The server keeps keys that can check a proof and can't make one; the client learns that the server has those keys.
A client can't tell an unknown user by the answers: the salt is made of the name and a secret, the same each time, and
the exchange fails in its last step with the words of a wrong password. Channel binding is not offered.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.security.saslprep import saslprep

if TYPE_CHECKING:
    from collections.abc import Callable

METHOD: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4_096
"""What RFC 7677 asks for at least."""
ITERATIONS_MAX: Final = 10_000_000
"""Most that a client has to compute."""
ITERATIONS_DEFAULT: Final = 32_768
SALT_BYTES: Final = 16
KEY_BYTES: Final = 32
MESSAGE_BYTES_MAX: Final = 4_096

_FIRST: Final = re.compile(r"([ny]),(?:a=([^,]*))?,(n=([^,]*),r=([!-+\--~]+)(?:,[A-Za-z]=[^,]*)*)", re.DOTALL)
_FINAL: Final = re.compile(r"(c=([^,]*),r=([!-+\--~]+)(?:,[A-Za-z]=[^,]*)*),p=([^,]*)", re.DOTALL)


class ScramError(FlockError):
    """The exchange failed; the sentence gives away no secret."""


class ScramMismatchError(ScramError):
    """The proof is wrong, or the user unknown: which one is not told."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server knows of a password."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def derive_keys(password: str, salt: bytes, iterations: int) -> ScramKeys:
    """The keys of a password; ValueError when SASLprep refuses it. Slow on purpose."""
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    stored_key = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return ScramKeys(iterations, salt, stored_key, _hmac(salted, b"Server Key"))


def fake_keys(username: str, secret: bytes, iterations: int) -> ScramKeys:
    """Keys for a user that does not exist: the same salt each time, and no password that fits."""
    name = username.encode("utf-8", "surrogatepass")
    salt = _hmac(secret, b"salt:" + name)[:SALT_BYTES]
    return ScramKeys(iterations, salt, _hmac(secret, b"stored:" + name), _hmac(secret, b"server:" + name))


class ScramServer:
    """The server's side of one exchange. ``lookup`` gives every name keys, ``fake_keys`` where it must."""

    def __init__(self, lookup: Callable[[str], ScramKeys], nonce: str) -> None:
        self.username = ""
        """The name that the client claims; proved once ``final`` returned."""
        self._lookup = lookup
        self._nonce = nonce
        self._step = "first"
        self._header = ""
        self._transcript = ""
        self._keys: ScramKeys | None = None

    def __repr__(self) -> str:
        return f"ScramServer(username={self.username!r}, step={self._step!r})"

    def is_current(self) -> bool:
        """Whether the user still has the keys that the exchange began with."""
        return self._keys == self._lookup(self.username)

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message with salt and nonce."""
        self._advance("first", "final")
        text = _text(message)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ScramError(
                "The first SCRAM message is not one that is understood here (channel binding and extensions are not)"
            )
        _, authorization, bare, name, client_nonce = match.groups()
        self.username = _prepare_name(_unescape(name))
        if authorization is not None and _unescape(authorization) != self.username:
            raise ScramError("The SCRAM message asks to act as another user, which is not possible here")
        self._keys = self._lookup(self.username)
        self._header = text[: match.start(3)]
        self._nonce = client_nonce + self._nonce
        answer = f"r={self._nonce},s={_base64(self._keys.salt)},i={self._keys.iterations}"
        self._transcript = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof; the answer proves the server to the client."""
        self._advance("final", "done")
        match = _FINAL.fullmatch(_text(message))
        if match is None or self._keys is None:
            raise ScramError("The last SCRAM message is malformed")
        bare, binding, nonce, proof_text = match.groups()
        if _bytes(binding) != self._header.encode():
            raise ScramError("The channel binding of the last SCRAM message is not that of the first")
        if not hmac.compare_digest(nonce, self._nonce):
            raise ScramError("The nonce of the last SCRAM message is not that of this exchange")
        proof = _bytes(proof_text)
        transcript = f"{self._transcript},{bare}".encode()
        signature = _hmac(self._keys.stored_key, transcript)
        client_key = _xor(proof, signature) if len(proof) == KEY_BYTES else b""
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._keys.stored_key):
            raise ScramMismatchError("The user name or password is wrong")
        return b"v=" + b64encode(_hmac(self._keys.server_key, transcript))

    def _advance(self, expected: str, following: str) -> None:
        if self._step != expected:
            raise ScramError("This SCRAM message was not expected now")
        self._step = following


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("A SCRAM message holds base64 that is none") from None


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(f"A SCRAM message is longer than {MESSAGE_BYTES_MAX} bytes")
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise ScramError("A SCRAM message is not UTF-8") from None


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise ScramError("The user name in the SCRAM message is not escaped as RFC 5802 says")
    return name.replace("=2C", ",").replace("=3D", "=")


def _prepare_name(name: str) -> str:
    try:
        prepared = saslprep(name)
    except ValueError as error:
        raise ScramError(f"The user name in the SCRAM message can't be used: {error}") from None
    if not prepared:
        raise ScramError("The user name in the SCRAM message is empty")
    return prepared
