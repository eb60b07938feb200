"""Certificates out of a cookie: two ends in memory, with all that TLS checks."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from flockmq.errors import ConfigError
from flockmq.security.link_tls import LinkTls, LinkTlsSettings, is_loopback, node_name
from flockmq.wire.hello import HELLO_BYTES
from integration.support.certificates import Authority

COOKIE = b"0123456789abcdef0123456789abcdef"


def made(node_id: int, *, cookie: bytes = COOKIE, **settings: str) -> LinkTls:
    return LinkTls(LinkTlsSettings(**settings), cookie, node_id)


def connect(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject, tuple[int, int]]:
    """A TLS connection without a network: both ends, and the bytes that each sent."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = client.wrap_bio(to_client, to_server, server_side=False, server_hostname=None)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    sent = [0, 0]
    done = [False, False]
    for _ in range(10):
        for number, (end, out) in enumerate(((calling, to_server), (called, to_client))):
            try:
                end.do_handshake()
                done[number] = True
            except ssl.SSLWantReadError:
                pass
            if number:
                sent[1] = max(sent[1], out.pending)
            else:
                sent[0] = max(sent[0], out.pending)
    assert done == [True, True]
    return calling, called, (sent[0], sent[1])


def test_nodes_with_the_same_cookie_trust_each_other() -> None:
    one, two = made(1), made(2)
    calling, called, _ = connect(one.client, two.server)
    assert calling.version() == called.version() == "TLSv1.3"
    assert calling.getpeercert(binary_form=True) == two.certificate
    assert called.getpeercert(binary_form=True) == one.certificate
    assert one.is_of(calling, 2)
    assert not one.is_of(calling, 3)
    assert two.is_of(called, 1)


def test_the_answer_to_a_stranger_is_smaller_than_what_it_must_send_for_it() -> None:
    """What TLS says before the caller is proved is no more than was heard, even with nothing but HELLO."""
    _, _, (_, by_server) = connect(made(1).client, made(2).server)
    assert 0 < by_server <= HELLO_BYTES


def test_another_cookie_is_another_authority() -> None:
    one, stranger = made(1), made(2, cookie=COOKIE[::-1])
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(one.client, stranger.server)
    stranger.client.verify_mode = ssl.CERT_NONE  # it trusts anybody; nobody trusts it
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(stranger.client, one.server)


def test_who_shows_no_certificate_is_refused() -> None:
    naked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    naked.check_hostname = False
    naked.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        connect(naked, made(1).server)


def test_older_versions_are_not_spoken() -> None:
    old = made(1)
    old.client.minimum_version = ssl.TLSVersion.TLSv1_2
    old.client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        connect(old.client, made(2).server)


def test_every_start_has_its_own_key_and_the_node_as_name() -> None:
    first, second = (x509.load_der_x509_certificate(made(0xABC).certificate) for _ in range(2))
    assert first.public_key() != second.public_key()
    assert first.issuer == second.issuer
    assert first.subject.rfc4514_string() == f"CN={node_name(0xABC)}" == "CN=0000000000000abc"
    assert first.not_valid_after_utc.year == 9999


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Any]:
    authority = Authority(tmp_path)
    cert, key = authority.issue("node one")
    return {"cert_file": str(cert), "key_file": str(key), "ca_file": str(authority.file)}


def test_an_own_authority(own: dict[str, Any], tmp_path: Path) -> None:
    one, two = made(1, **own), made(2, cookie=b"another cookie, which is not asked here", **own)
    calling, called, _ = connect(one.client, two.server)
    assert calling.version() == "TLSv1.3"
    assert calling.getpeercert(binary_form=True) == two.certificate
    assert two.is_of(called, 1), "names are the authority's business"
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(made(1).client, two.server)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    cert, key = other.issue("node two")
    stranger = made(2, cert_file=str(cert), key_file=str(key), ca_file=own["ca_file"])
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(stranger.client, one.server)


def test_all_of_an_own_authority_or_nothing(own: dict[str, Any]) -> None:
    for missing in own:
        with pytest.raises(ConfigError, match="needs all of cert_file, key_file and ca_file"):
            made(1, **{**own, missing: ""})


def test_files_that_are_no_certificates(own: dict[str, Any]) -> None:
    Path(own["ca_file"]).write_text("nonsense")
    with pytest.raises(ConfigError, match=r"The CA file .*authority.pem holds no certificate"):
        made(1, **own)


def test_modes(own: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.link_tls is 'maybe'; choose from auto, on, off"):
        made(1, link_tls="maybe")
    table = {
        ("auto", "127.0.0.1"): (False, True),
        ("auto", "::1"): (False, True),
        ("auto", "192.0.2.1"): (True, False),
        ("on", "127.0.0.1"): (True, False),
        ("on", "192.0.2.1"): (True, False),
        ("off", "127.0.0.1"): (False, True),
        ("off", "192.0.2.1"): (False, True),
    }
    for (mode, address), (wants_tls, allows_plain) in table.items():
        tls = made(1, link_tls=mode)
        assert (tls.wants_tls(address), tls.allows_plain(address)) == (wants_tls, allows_plain), (mode, address)


@pytest.mark.parametrize(
    ("address", "stays"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("0.0.0.0", False),
        ("fe80::1%eth0", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_loopback(address: str, stays: bool) -> None:
    assert is_loopback(address) is stays
