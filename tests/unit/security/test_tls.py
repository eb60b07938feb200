from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from flockmq.errors import ConfigError
from flockmq.security.tls import AMBIGUOUS, ServerTls, TlsSettings, build_context, certificate_name, subject_name


@dataclass
class Authority:
    """Signs certificates for a test."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign([self.name], self.key, authority=True)
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(self, *names: str, password: bytes | None = None) -> tuple[str, str]:
        """Paths of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        stem = f"{self.name}-{'-'.join(names)}"
        cert_file, key_file = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        cert_file.write_bytes(self._sign(list(names), key).public_bytes(Encoding.PEM))
        encryption: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return str(cert_file), str(key_file)

    def _sign(self, names: list[str], key: ec.EllipticCurvePrivateKey, *, authority: bool = False) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, *, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory; an SSLError of either side comes out."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_end = server.wrap_bio(up, down, server_side=True)
    client_end = client.wrap_bio(down, up, server_hostname="localhost", session=session)
    waiting = [client_end, server_end]
    for _ in range(20):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            break
    assert not waiting
    server_end.write(b"!")  # in TLS 1.3 the server may refuse a certificate after the client is done
    assert client_end.read(1) == b"!"
    return server_end, client_end


def client_context(trusted: Authority, *own: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(trusted.file))
    if own:
        context.load_cert_chain(*own)
    return context


def subject_of(end: ssl.SSLObject) -> str | None:
    return certificate_name(end)


def test_a_server_proves_itself(authority: Authority) -> None:
    cert_file, key_file = authority.issue("server")
    tls = ServerTls(TlsSettings(cert_file=cert_file, key_file=key_file))
    server_end, client_end = handshake(tls.context, client_context(authority))
    assert subject_of(client_end) == "server"
    assert certificate_name(server_end) is None
    assert certificate_name(None) is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_clients_certificate_names_it(authority: Authority, version: ssl.TLSVersion) -> None:
    cert_file, key_file = authority.issue("server")
    tls = ServerTls(
        TlsSettings(cert_file=cert_file, key_file=key_file, ca_file=str(authority.file), client_certificates="required")
    )
    client = client_context(authority, *authority.issue("sensor 7"))
    client.maximum_version = version
    server_end, _ = handshake(tls.context, client)
    assert certificate_name(server_end) == "sensor 7"


def test_two_names_name_nobody(authority: Authority) -> None:
    cert_file, key_file = authority.issue("server")
    tls = ServerTls(
        TlsSettings(cert_file=cert_file, key_file=key_file, ca_file=str(authority.file), client_certificates="optional")
    )
    server_end, _ = handshake(tls.context, client_context(authority, *authority.issue("alice", "admin")))
    assert certificate_name(server_end) == AMBIGUOUS


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], None),
        (["alice"], "alice"),
        (["alice", "alice"], AMBIGUOUS),
        ([""], ""),
        (["al\x00ice"], AMBIGUOUS),
        (["Ålice 7"], "Ålice 7"),
    ],
)
def test_whom_a_certificate_names(names: list[str], found: str | None) -> None:
    subject = ((("countryName", "SE"),), *((("commonName", name),) for name in names))
    assert subject_name({"subject": subject}) == found


def test_certificates_of_strangers_and_missing_ones(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    cert_file, key_file = authority.issue("server")

    def listener(client_certificates: str) -> ssl.SSLContext:
        ca_file = str(authority.file)
        settings = TlsSettings(
            cert_file=cert_file, key_file=key_file, ca_file=ca_file, client_certificates=client_certificates
        )
        return ServerTls(settings).context

    forged = client_context(authority, *stranger.issue("alice"))
    for kind in ("optional", "required"):
        with pytest.raises(ssl.SSLError):
            handshake(listener(kind), forged)
    with pytest.raises(ssl.SSLError):
        handshake(listener("required"), client_context(authority))
    server_end, _ = handshake(listener("optional"), client_context(authority))
    assert certificate_name(server_end) is None
    server_end, _ = handshake(listener("off"), forged)
    assert certificate_name(server_end) is None, "what nobody asked for and verified is no name"


def test_old_protocols_and_weak_ciphers_are_not_spoken(authority: Authority) -> None:
    cert_file, key_file = authority.issue("server")
    context = build_context(TlsSettings(cert_file=cert_file, key_file=key_file))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in context.get_ciphers()}
    assert names
    assert all("GCM" in name or "CHACHA20" in name for name in names)
    old = client_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    only_new = ServerTls(TlsSettings(cert_file=cert_file, key_file=key_file, version_min="1.3"))
    with pytest.raises(ssl.SSLError):
        handshake(only_new.context, old)


def test_new_connections_get_the_new_certificate(authority: Authority) -> None:
    cert_file, key_file = authority.issue("old")
    tls = ServerTls(TlsSettings(cert_file=cert_file, key_file=key_file))
    client = client_context(authority)
    first, _ = handshake(tls.context, client)
    for source, target in zip(authority.issue("new"), (cert_file, key_file), strict=True):
        Path(target).write_bytes(Path(source).read_bytes())
    assert subject_of(handshake(tls.context, client)[1]) == "old", "nothing is read behind our back"
    tls.reload()
    assert subject_of(handshake(tls.context, client)[1]) == "new"
    nameless = ssl.create_default_context(cafile=str(authority.file))
    nameless.check_hostname = False
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_end = tls.context.wrap_bio(up, down, server_side=True)
    client_end = nameless.wrap_bio(down, up)  # sends no server name
    for end in (client_end, server_end, client_end, server_end):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert subject_of(client_end) == "new"
    assert first.version() is not None


def test_an_authority_that_was_taken_out_is_out(authority: Authority, tmp_path: Path) -> None:
    second = Authority(tmp_path, "second")
    cert_file, key_file = authority.issue("server")
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(authority.file.read_bytes() + second.file.read_bytes())
    tls = ServerTls(
        TlsSettings(cert_file=cert_file, key_file=key_file, ca_file=str(ca_file), client_certificates="required")
    )
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        ca_file.write_bytes(authority.file.read_bytes() + second.file.read_bytes())
        tls.reload()
        client = client_context(authority, *second.issue("alice"))
        client.maximum_version = version
        server_end, client_end = handshake(tls.context, client)
        assert certificate_name(server_end) == "alice"
        ca_file.write_bytes(authority.file.read_bytes())
        tls.reload()
        for session in (None, client_end.session):
            with pytest.raises(ssl.SSLError):
                handshake(tls.context, client, session=session)


def test_a_failed_reload_keeps_what_was(authority: Authority) -> None:
    cert_file, key_file = authority.issue("server")
    tls = ServerTls(TlsSettings(cert_file=cert_file, key_file=key_file))
    Path(cert_file).write_text("broken")
    with pytest.raises(ConfigError, match=cert_file):
        tls.reload()
    assert subject_of(handshake(tls.context, client_context(authority))[1]) == "server"


def test_an_encrypted_key_needs_its_password_and_never_the_terminal(authority: Authority, tmp_path: Path) -> None:
    cert_file, key_file = authority.issue("server", password=b"open sesame")
    with pytest.raises(ConfigError, match=f"{key_file} can't be used: it is encrypted"):
        build_context(TlsSettings(cert_file=cert_file, key_file=key_file))
    password_file = tmp_path / "password"
    password_file.write_text("wrong\n")
    settings = TlsSettings(cert_file=cert_file, key_file=key_file, key_password_file=str(password_file))
    with pytest.raises(ConfigError, match="its password is not the one"):
        build_context(settings)
    password_file.write_text("open sesame\n")
    build_context(settings)


def test_files_that_can_not_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    cert_file, key_file = authority.issue("server")
    _, other_key = authority.issue("other")
    missing, text, broken = str(tmp_path / "missing"), tmp_path / "text", tmp_path / "broken"
    text.write_text("hello")
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    cases = [
        (TlsSettings(cert_file=missing, key_file=key_file), f"certificate file {missing} can't be read"),
        (TlsSettings(cert_file=cert_file, key_file=missing), f"key file {missing} can't be read"),
        (TlsSettings(cert_file=str(text), key_file=key_file), f"certificate file {text} is not in PEM format"),
        (TlsSettings(cert_file=cert_file, key_file=str(text)), f"key file {text} is not in PEM format"),
        (TlsSettings(cert_file=str(broken), key_file=key_file), f"{broken}.*can't be used"),
        (TlsSettings(cert_file=cert_file, key_file=cert_file), f"{cert_file}.*can't be used"),
        (TlsSettings(cert_file=cert_file, key_file=other_key), f"{other_key} does not belong to the certificate"),
        (TlsSettings(cert_file=cert_file, key_file=key_file, client_certificates="required"), "ca_file"),
        (TlsSettings(cert_file=cert_file, key_file=key_file, client_certificates="maybe"), "'maybe'"),
        (TlsSettings(cert_file=cert_file, key_file=key_file, version_min="1.1"), "'1.1'"),
        (TlsSettings(cert_file=cert_file, key_file=key_file, ciphers="nonsense"), "'nonsense'"),
        (
            TlsSettings(cert_file=cert_file, key_file=key_file, ca_file=str(text), client_certificates="required"),
            f"CA file {text} holds no certificate",
        ),
        (
            TlsSettings(cert_file=cert_file, key_file=key_file, ca_file=missing, client_certificates="required"),
            f"CA file {missing} can't be read",
        ),
    ]
    for settings, message in cases:
        with pytest.raises(ConfigError, match=message):
            build_context(settings)
