"""The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), as a client of the broker would have it."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode

from flockmq.security.saslprep import saslprep
from flockmq.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramError, ScramMismatchError

CHALLENGE = re.compile(r"r=([!-+\--~]+),s=([^,]+),i=([1-9][0-9]{0,8})(?:,[A-Za-z]=[^,]*)*", re.DOTALL)


class ScramClient:
    """The client's side of one exchange; ``nonce`` is fresh randomness, printable and without commas."""

    def __init__(self, username: str, password: str, nonce: str) -> None:
        try:
            self._username = saslprep(username)
            self._password = saslprep(password)
        except ValueError as error:
            raise ScramError(f"The user name or password can't be used with SCRAM: {error}") from None
        escaped = self._username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._nonce = nonce
        self._server_signature = b""

    def __repr__(self) -> str:
        return f"ScramClient(username={self._username!r})"

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Prove the password to a server that sent this challenge."""
        text = _text(challenge)
        match = CHALLENGE.fullmatch(text)
        if match is None:
            raise ScramError("The server's SCRAM challenge is malformed")
        nonce, salt, iterations = match[1], _bytes(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("The server's SCRAM challenge belongs to another exchange")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(f"The server asks for {iterations} SCRAM iterations, which is not safe or not reasonable")
        bare = f"c=biws,r={nonce}"
        transcript = f"{self._bare},{text},{bare}".encode()
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        signature = _hmac(hashlib.sha256(client_key).digest(), transcript)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = _hmac(_hmac(salted, b"Server Key"), transcript)
        return bare.encode() + b",p=" + b64encode(proof)

    def verify(self, answer: bytes) -> None:
        """Check that the server knows the password's keys; ScramError when it does not."""
        text = _text(answer)
        if text.startswith("e="):
            raise ScramError(f"The server refused the login: {text[2:].partition(',')[0]}")
        signature = _bytes(text[2:].partition(",")[0]) if text.startswith("v=") else b""
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise ScramMismatchError("The server could not prove that it knows this user; it may be an impostor")


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ScramError("A SCRAM message holds base64 that is none") from None


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("A SCRAM message is not UTF-8") from None
