"""``flockmq start``: run a broker in the foreground. Everything else about it is in ``flockmq.server``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flockmq.cli.settings_options import ConfigOption, SetOption, setting, settings

if TYPE_CHECKING:
    from flockmq.config.load import Loaded


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("start")(start)


def _port(name: str, text: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(name, min=0, max=65_535, help=text)
    return info


def start(
    *,
    config: ConfigOption = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME@HOST", help="Name of this node.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder of this node alone.")] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on, for clients and API; * is every address.")
    ] = None,
    mqtt_port: Annotated[int | None, _port("--mqtt-port", "Port for MQTT (1883); 0 takes a free one.")] = None,
    mqtts_port: Annotated[int | None, _port("--mqtts-port", "Port for MQTT over TLS (8883).")] = None,
    ws_port: Annotated[int | None, _port("--ws-port", "Port for MQTT over WebSocket (8083).")] = None,
    wss_port: Annotated[int | None, _port("--wss-port", "Port for MQTT over secure WebSocket (8084).")] = None,
    api_port: Annotated[int | None, _port("--api-port", "Port of the admin API (18083).")] = None,
    allow_anonymous: Annotated[
        bool | None,
        typer.Option("--allow-anonymous", help="Let clients in without credentials, from this machine unless --host."),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Users, as flockmq passwd writes them.")
    ] = None,
    acl_file: Annotated[Path | None, typer.Option("--acl-file", help="Who may publish and subscribe to what.")] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate, in PEM: serves TLS, too.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Private key of the certificate, in PEM.")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option("--log-level", help="Least level to log.")
    ] = None,
    as_json: Annotated[bool | None, typer.Option("--json", help="Log JSON, for programs.")] = None,
    set_: SetOption = None,
) -> None:
    """Run a broker in the foreground until Ctrl-C. Logs go to standard error, one line an event."""
    named = [
        setting("--name", "node.name", name),
        setting("--data-dir", "node.data_dir", data_dir),
        setting("--allow-anonymous", "security.allow_anonymous", allow_anonymous),
        setting("--password-file", "security.password_file", password_file),
        setting("--acl-file", "security.acl_file", acl_file),
        setting("--tls-cert", "tls.cert_file", tls_cert),
        setting("--tls-key", "tls.key_file", tls_key),
        setting("--log-level", "log.level", log_level),
        setting("--json", "log.format", "json" if as_json else None),
    ]
    ports = {"tcp": mqtt_port, "tls": mqtts_port, "ws": ws_port, "wss": wss_port, "admin": api_port}
    run(load_flags(config, named, host, ports, set_))


def load_flags(
    config: Path | None,
    named: list[tuple[str, str, object]],
    host: str | None,
    ports: dict[str, int | None],
    set_: list[str] | None,
) -> Loaded:
    """Read the configuration under these flags."""
    from flockmq.config.load import Flags, load

    flags = Flags(
        settings=settings([one for one in named if one[2] is not None], set_),
        host=host,
        ports={kind: port for kind, port in ports.items() if port is not None},
    )
    return load(config, os.environ, flags)


def run(loaded: Loaded) -> None:
    """Run a broker with this configuration."""
    from flockmq.config.show import as_tree
    from flockmq.server.run import run_server

    run_server(loaded.config, lambda: as_tree(loaded.values))
