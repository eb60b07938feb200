"""The little of an HTTP client that plugins need: JSON both ways, bounded in time and size, errors as sentences."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import msgspec

from flockmq.discovery.ports import DiscoveryError
from flockmq.errors import ConfigError
from flockmq.security.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY_BYTES_MAX: Final = 8 * 1024 * 1024


class Answer(NamedTuple):
    """Status and body of an answer."""

    status: int
    body: bytes


class Web:
    """Requests to a few servers; ``close`` when done. No redirects, no proxies: a token goes where it was meant to."""

    def __init__(self, tls: ssl.SSLContext | None, timeout_ms: int) -> None:
        self._tls = tls
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        self._session: aiohttp.ClientSession | None = None

    async def request(self, method: str, url: str, headers: Mapping[str, str], body: object = None) -> Answer:
        """One request; DiscoveryError when no answer came."""
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(ssl=self._tls if self._tls is not None else True, limit=4)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, trust_env=False)
        data = None if body is None else msgspec.json.encode(body)
        sent = {"Accept": "application/json", **headers}
        if data is not None:
            sent["Content-Type"] = "application/json"
        host = url.split("?", maxsplit=1)[0]
        try:
            async with self._session.request(method, url, data=data, headers=sent, allow_redirects=False) as answer:
                return Answer(answer.status, await _read(answer, host))
        except TimeoutError:
            raise DiscoveryError(
                f"{host} did not answer in time; check that it is up and reachable from here."
            ) from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            raise DiscoveryError(f"{host} can't be asked: {_reason(error)}.") from None

    async def close(self) -> None:
        """Close idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _read(answer: aiohttp.ClientResponse, host: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_chunked(65_536):
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise DiscoveryError(f"{host} answered with more than {BODY_BYTES_MAX:,} bytes; is it the right server?")
        parts.append(part)
    return b"".join(parts)


def _reason(error: Exception) -> str:
    """What is wrong, without the names of classes and sockets around it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    text = str(error).strip().rstrip(".")
    return text or type(error).__name__


def client_tls(ca_file: str, cert_file: str = "", key_file: str = "") -> ssl.SSLContext:
    """TLS towards a server: 1.2 at least, its name is checked; ConfigError names the file that can't be used."""
    for file, what in ((ca_file, "authority file"), (cert_file, "certificate file"), (key_file, "key file")):
        if file and b"-----BEGIN" not in read_bytes(Path(file), what):
            raise ConfigError(f"The {what} {file} is not in PEM format; it should begin with -----BEGIN.")
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if cert_file:
            context.load_cert_chain(cert_file, key_file, password=lambda: b"")
    except (ssl.SSLError, ValueError, OSError) as error:
        files = ", ".join(file for file in (ca_file, cert_file, key_file) if file)
        raise ConfigError(f"TLS can't be set up with {files}: {_reason(error)}.") from None
    return context
