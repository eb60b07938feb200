"""Options that ``pub`` and ``sub`` share: which broker, as which user, in which version of MQTT.

``Target`` is both the value and, by the annotations of its fields, the description of the options; ``takes_target``
puts them behind the options of a command.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints

import typer

from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError, RemoteProtocolError

if TYPE_CHECKING:
    import ssl

    from flockmq.client.mqtt import Options
    from flockmq.mqtt.properties import Properties

VERSIONS: Final = {"5": 5, "3.1.1": 4}
TLS_PORT: Final = 8883


def check_topic(topic: str) -> str:
    """Refuse what no message can be published to."""
    from flockmq.mqtt.topics import check_topic_name

    try:
        check_topic_name(topic.encode("utf-8", "surrogateescape"))
    except RemoteProtocolError as error:
        raise typer.BadParameter(str(error)) from None
    return topic


TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic name, without wildcards.", callback=check_topic)
]
QosOption = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service: 0, 1 or 2.")]
UserPropertyOption = Annotated[
    list[str] | None, typer.Option("--user-property", "-U", metavar="NAME=VALUE", help="A user property; may repeat.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker to talk to, as the command line says it."""

    host: Annotated[str, typer.Option("--host", "-H", help="Host of the broker's MQTT listener.")] = "127.0.0.1"
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65_535, help="Its port; 1883, or 8883 with TLS.")
    ] = None
    version: Annotated[Literal["5", "3.1.1"], typer.Option("--mqtt", help="Version of MQTT to speak.")] = "5"
    client_id: Annotated[
        str, typer.Option("--client-id", "-i", help="Client id; without it the broker chooses one.")
    ] = ""
    username: Annotated[str | None, typer.Option("--username", "-u", help="User name.")] = None
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help="File whose first line is the password; else FLOCKMQ_PASSWORD, else it is asked for.",
        ),
    ] = None
    tls: Annotated[bool, typer.Option("--tls", help="Connect with TLS.")] = False
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="Authority to trust, in PEM; without it, the system's.")
    ] = None
    cert_file: Annotated[Path | None, typer.Option("--cert-file", help="Client certificate, in PEM.")] = None
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="Private key of the client certificate, in PEM.")
    ] = None

    def options(self, *, clean_start: bool = True, properties: Properties | None = None) -> Options:
        """What the client needs to connect; files are read and a password asked for here."""
        from flockmq.client.mqtt import Options

        tls = self.tls or self.port == TLS_PORT or self.ca_file is not None or self.cert_file is not None
        return Options(
            host=self.host,
            port=self.port or (TLS_PORT if tls else 1883),
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
            return read(self.password_file).partition(b"\n")[0].rstrip(b"\r")
        if self.username is None:
            return None
        if "FLOCKMQ_PASSWORD" in os.environ:
            return os.environ["FLOCKMQ_PASSWORD"].encode()
        if not sys.stdin.isatty():
            raise UsageError("--username needs a password; name a file with --password-file, or set FLOCKMQ_PASSWORD.")
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


def takes_target(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with a parameter ``target`` the options of Target in its place."""
    hints = get_type_hints(Target, include_extras=True)
    names = [field.name for field in fields(Target)]

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        target = Target(**{name: values.pop(name) for name in names})
        command(target=target, **values)

    own = inspect.signature(command, eval_str=True)
    parameters = [one for one in own.parameters.values() if one.name != "target"]
    for field in fields(Target):
        option = inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        parameters.insert(-1, option)  # --json stays the last one
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    del with_options.__wrapped__  # its signature is not the one to look at
    return with_options


def read(path: Path) -> bytes:
    """All of a file that the command line names."""
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
