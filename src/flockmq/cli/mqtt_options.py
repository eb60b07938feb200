"""Options that ``pub`` and ``sub`` share: which broker, as whom, in which version of MQTT."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from flockmq.errors import FlockError

if TYPE_CHECKING:
    import ssl

    from flockmq.client.mqtt import Options
    from flockmq.mqtt.properties import Properties

VERSIONS: Final = {"5": 5, "3.1.1": 4}

HostOption = Annotated[str, typer.Option("--host", "-H", help="Host of the broker's MQTT listener.")]
PortOption = Annotated[
    int | None, typer.Option("--port", "-p", min=1, max=65_535, help="Its port; 1883, or 8883 with TLS.")
]
VersionOption = Annotated[Literal["5", "3.1.1"], typer.Option("--mqtt", help="Version of MQTT to speak.")]
ClientIdOption = Annotated[str, typer.Option("--client-id", "-i", help="Client id; without it the broker chooses one.")]
UsernameOption = Annotated[str | None, typer.Option("--username", "-u", help="User name.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--password-file", help="File whose first line is the password; without it, it is asked for."),
]
TlsOption = Annotated[bool, typer.Option("--tls", help="Connect with TLS.")]
CaOption = Annotated[
    Path | None, typer.Option("--ca-file", help="Authority to trust, in PEM; without it, the system's.")
]
CertOption = Annotated[Path | None, typer.Option("--cert-file", help="Client certificate, in PEM.")]
KeyOption = Annotated[Path | None, typer.Option("--key-file", help="Private key of the client certificate, in PEM.")]
QosOption = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service: 0, 1 or 2.")]
UserPropertyOption = Annotated[
    list[str] | None, typer.Option("--user-property", "-U", metavar="NAME=VALUE", help="A user property; may repeat.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker to talk to, as the command line says it."""

    host: str
    port: int | None
    version: str
    client_id: str
    username: str | None
    password_file: Path | None
    tls: bool
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None

    def options(self, *, clean_start: bool = True, properties: Properties | None = None) -> Options:
        """What the client needs to connect; files are read and a password asked for here."""
        from flockmq.client.mqtt import Options

        tls = self.tls or self.port == 8883 or self.ca_file is not None or self.cert_file is not None
        return Options(
            host=self.host,
            port=self.port or (8883 if tls else 1883),
            version=VERSIONS[self.version],
            client_id=self.client_id,
            clean_start=clean_start,
            username=self.username,
            password=self._password(),
            properties=properties,
            tls=self._tls_context() if tls else None,
        )

    def _password(self) -> bytes | None:
        if self.password_file is not None:
            return _read(self.password_file).splitlines()[0] if _read(self.password_file) else b""
        if self.username is None:
            return None
        if "FLOCKMQ_PASSWORD" in os.environ:
            return os.environ["FLOCKMQ_PASSWORD"].encode()
        if not sys.stdin.isatty():
            raise FlockError("--username needs a password; name a file with --password-file, or set FLOCKMQ_PASSWORD.")
        import getpass

        return getpass.getpass(f"Password for {self.username}: ").encode()

    def _tls_context(self) -> ssl.SSLContext:
        import ssl

        try:
            context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise FlockError(
                f"The certificates can't be used ({error}); check --ca-file, --cert-file, --key-file."
            ) from None
        return context


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FlockError(f"{path} can't be read ({error.strerror}); check its name.") from None


def pairs(texts: list[str] | None, option: str) -> list[tuple[str, str]]:
    """``NAME=VALUE`` texts as pairs, in their order."""
    found = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        found.append((name, value))
    return found
