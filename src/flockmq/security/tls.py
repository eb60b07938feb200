"""TLS for listeners: a context out of files, with errors that name the file, and certificates exchanged while running.

```
 ServerTls.context --> given to the listener once; each handshake asks for `current` and takes certificate and
                       authorities from there
 ServerTls.reload() -> builds a new `current` from the files, or keeps the old one and says why
```
Where clients prove themselves by certificate, a session from before a reload is not resumed: an authority that was
taken out of the file is out with the next connection.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.errors import ConfigError
from flockmq.security.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has no others."""
AMBIGUOUS: Final = ""
"""The name of a certificate with several common names, or one that can't be printed: the gate refuses it."""
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_CERTIFICATES: Final = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What a TLS listener is made of."""

    cert_file: str
    """Certificate in PEM, followed by those that lead to its authority."""
    key_file: str
    """Private key of the certificate, in PEM."""
    key_password_file: str = ""
    """File with the password of an encrypted private key."""
    ca_file: str = ""
    """Authorities that client certificates must come from, in PEM."""
    client_certificates: str = "off"
    """``off``, ``optional`` (clients without one go on to another way to log in) or ``required``."""
    version_min: str = "1.2"
    """Oldest TLS version spoken, ``1.2`` or ``1.3``."""
    ciphers: str = CIPHERS
    """TLS 1.2 cipher suites in OpenSSL's notation."""


class ServerTls:
    """The TLS of one listener; ``context`` is what asyncio gets, once."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._current = build_context(settings)
        self._reloaded_at_s = 0
        self.context = build_context(settings)
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read the files again for new connections; on ConfigError everything stays as it was."""
        self._current = build_context(self.settings)
        self._reloaded_at_s = int(time.time())

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        """OpenSSL calls this in every handshake, also without a server name; a number is an alert that ends it."""
        connection.context = self._current
        # Resuming skips the certificate. Tickets are off where that matters; sessions that OpenSSL keeps are not.
        if self.settings.client_certificates != "off" and connection.session_reused:
            session = connection.session
            if session is None or session.time <= self._reloaded_at_s:
                return ssl.ALERT_DESCRIPTION_CERTIFICATE_UNKNOWN
        return None


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """A server's context; ConfigError names the file that can't be used, and why."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if settings.version_min not in _VERSIONS:
        raise ConfigError(f"The oldest TLS version can't be {settings.version_min!r}; it is 1.2 or 1.3.")
    context.minimum_version = _VERSIONS[settings.version_min]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.set_ciphers(settings.ciphers)
    except ssl.SSLError:
        raise ConfigError(f"OpenSSL knows none of the TLS ciphers {settings.ciphers!r}.") from None
    _load_certificate(context, settings)
    _load_authorities(context, settings)
    return context


class PeerCertificate(Protocol):
    """What ``certificate_name`` needs of an ``ssl.SSLObject`` or ``ssl.SSLSocket``."""

    def getpeercert(self) -> Mapping[str, object] | None:
        """The verified certificate as Python describes it; empty when it was not verified."""


def certificate_name(connection: PeerCertificate | None) -> str | None:
    """The common name of the client's verified certificate, as ``subject_name`` tells it."""
    return subject_name(connection.getpeercert() if connection is not None else None)


def subject_name(certificate: Mapping[str, object] | None) -> str | None:
    """The user that a verified certificate names, or AMBIGUOUS; None without a certificate or a common name.

    It is the only place that decides so. A certificate with two common names names no user: which one the authority
    checked is not to be seen, and the holder must not be the one to choose.
    """
    subject = certificate.get("subject", ()) if certificate else ()
    names = [value for key, value in _attributes(subject) if key == "commonName"]
    if not names:
        return None
    return names[0] if len(names) == 1 and names[0].isprintable() else AMBIGUOUS


def _attributes(subject: object) -> Sequence[tuple[str, str]]:
    assert isinstance(subject, tuple)
    return [attribute for group in subject for attribute in group]


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for file, what in ((settings.cert_file, "certificate file"), (settings.key_file, "key file")):
        if b"-----BEGIN" not in read_bytes(Path(file), what):
            raise ConfigError(f"The {what} {file} is not in PEM format; it should begin with -----BEGIN.")
    password = b""
    if settings.key_password_file:
        password = read_bytes(Path(settings.key_password_file), "key password file").rstrip(b"\r\n")
    asked = False

    def give_password() -> bytes:  # without this OpenSSL would ask on the terminal
        nonlocal asked
        asked = True
        return password

    try:
        context.load_cert_chain(settings.cert_file, settings.key_file, give_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(_certificate_problem(settings, error, asked=asked)) from None


def _certificate_problem(settings: TlsSettings, error: Exception, *, asked: bool) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"The key in {settings.key_file} does not belong to the certificate in {settings.cert_file}."
    if asked:
        hint = (
            "its password is not the one in the key password file"
            if settings.key_password_file
            else ("it is encrypted; name a file with its password, or decrypt it: openssl pkey -in KEY -out PLAIN")
        )
        return f"The key file {settings.key_file} can't be used: {hint}."
    if reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        return f"The certificate in {settings.cert_file} is too weak for OpenSSL ({reason}); make a stronger one."
    return (
        f"The certificate file {settings.cert_file} and the key file {settings.key_file} can't be used "
        f"({reason or 'malformed'}); both must be in PEM format, the certificate first in its file."
    )


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.client_certificates not in _CLIENT_CERTIFICATES:
        raise ConfigError(f"client_certificates is {settings.client_certificates!r}; it is off, optional or required.")
    context.verify_mode = _CLIENT_CERTIFICATES[settings.client_certificates]
    if settings.client_certificates == "off":
        return
    if not settings.ca_file:
        raise ConfigError("Client certificates need a ca_file that says whose certificates to believe.")
    data = read_bytes(Path(settings.ca_file), "CA file")
    try:
        context.load_verify_locations(cadata=data.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"The CA file {settings.ca_file} holds no certificate in PEM format.") from None
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
