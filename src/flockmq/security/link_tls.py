"""TLS 1.3 between nodes: certificates that every node makes for itself, or those of an own authority.

```
 cookie --> derive_key --> private key of the cluster's authority, the same on every node, kept nowhere
                               | signs, at every start
                               v
            certificate of this node: its id as name, a key that never leaves this process
```
Both sides show a certificate and both check the other's. With an own authority (``cert_file``, ``key_file``,
``ca_file``) the files decide instead; the proofs of the cookie are made over both certificates in either case
(``wire/hello.py``), so a certificate of that authority alone opens nothing.

Certificates that are made here do not expire: what ends them is another cookie. So a wrong clock parts no cluster.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
import tempfile
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flockmq.errors import ConfigError
from flockmq.security.cookie import derive_key
from flockmq.security.files import read_text
from flockmq.security.tls import TlsSettings, build_context, certificate_name

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES: Final = ("auto", "on", "off")
_VALID_FROM: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_VALID_UNTIL: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
"""What RFC 5280 (4.1.2.5) gives to certificates without an end."""
_AUTHORITY: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FlockMQ cluster")])


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTlsSettings:
    """How links between nodes are encrypted."""

    link_tls: str = "auto"
    """``auto``: everywhere but to loopback addresses. ``on``: there, too. ``off``: nowhere; any machine on the way can
    read and change what nodes say."""
    cert_file: str = ""
    """Certificate of this node in PEM, signed by an own authority; empty: made out of the cookie."""
    key_file: str = ""
    """Its private key."""
    key_password_file: str = ""
    """File with the password of an encrypted private key."""
    ca_file: str = ""
    """The own authority, in PEM."""


class LinkTls:
    """The TLS of one node's links: a context for each side, and the own certificate in DER.

    Make a new one when the files have changed.
    """

    def __init__(self, settings: LinkTlsSettings, cookie: bytes, node_id: int) -> None:
        """ConfigError tells what is wrong with the files."""
        if settings.link_tls not in MODES:
            raise ConfigError(f"cluster.link_tls is {settings.link_tls!r}; choose from {', '.join(MODES)}.")
        self.mode = settings.link_tls
        files = (settings.cert_file, settings.key_file, settings.ca_file)
        self.is_own_authority = any(files)
        if self.is_own_authority:
            if not all(files):
                raise ConfigError("An own authority for links needs all of cert_file, key_file and ca_file.")
            self.server, self.client, self.certificate = _from_files(settings)
        else:
            self.server, self.client, self.certificate = _from_cookie(cookie, node_id)

    def wants_tls(self, address: str) -> bool:
        """Whether to call this address with TLS."""
        return self.mode == "on" or (self.mode == "auto" and not is_loopback(address))

    def allows_plain(self, address: str) -> bool:
        """Whether a caller from this address may go without. With TLS any node may call."""
        return self.mode == "off" or (self.mode == "auto" and is_loopback(address))

    def is_of(self, connection: ssl.SSLObject, node_id: int) -> bool:
        """Whether the other side's certificate is that node's; names in those of an own authority are free."""
        return self.is_own_authority or certificate_name(connection) == node_name(node_id)


def node_name(node_id: int) -> str:
    """What a node's certificate calls it."""
    return f"{node_id:016x}"


def is_loopback(address: str) -> bool:
    """Whether an address (no name) stays on this machine."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def _from_cookie(cookie: bytes, node_id: int) -> tuple[ssl.SSLContext, ssl.SSLContext, bytes]:
    authority_key = Ed25519PrivateKey.from_private_bytes(derive_key(cookie, "authority of links"))
    authority = _sign(_AUTHORITY, authority_key, authority_key, is_authority=True)
    key = Ed25519PrivateKey.generate()
    certificate = _sign(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_name(node_id))]), key, authority_key, is_authority=False
    )
    own = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    contexts: list[ssl.SSLContext] = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        with _as_file(own) as path:
            context.load_cert_chain(path)
        context.load_verify_locations(cadata=authority.public_bytes(serialization.Encoding.DER))
        contexts.append(_strict(context))
    return contexts[0], contexts[1], certificate.public_bytes(serialization.Encoding.DER)


def _sign(
    subject: x509.Name, key: Ed25519PrivateKey, authority_key: Ed25519PrivateKey, *, is_authority: bool
) -> x509.Certificate:
    no = not is_authority
    usage = x509.KeyUsage(
        digital_signature=no,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_AUTHORITY)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if not is_authority:
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(both, critical=False)
    return builder.sign(authority_key, None)


def _from_files(settings: LinkTlsSettings) -> tuple[ssl.SSLContext, ssl.SSLContext, bytes]:
    server = build_context(
        TlsSettings(
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            key_password_file=settings.key_password_file,
            ca_file=settings.ca_file,
            client_certificates="required",
            version_min="1.3",
        )
    )
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    password = read_text(Path(settings.key_password_file), "key password file") if settings.key_password_file else ""
    client.load_cert_chain(settings.cert_file, settings.key_file, password.rstrip("\r\n"))
    client.load_verify_locations(settings.ca_file)
    first = read_text(Path(settings.cert_file), "certificate file")
    end = "-----END CERTIFICATE-----"
    start = first.index("-----BEGIN CERTIFICATE-----")  # there was one, OpenSSL has used it
    return _strict(server), _strict(client), ssl.PEM_cert_to_DER_cert(first[start : first.index(end, start) + len(end)])


def _strict(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # nodes are known by their id; the proof of the cookie covers both certificates
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nothing is resumed: every connection shows its certificate
    return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path for OpenSSL, which takes keys out of files only: in memory where the system can do that."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("link", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600
            file.write(data)
            file.flush()
            yield file.name
