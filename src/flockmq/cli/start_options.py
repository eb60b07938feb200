"""The options of ``flockmq start`` as a table, and a parser for the usual case that loads nothing.

```
 OPTIONS --> start.py: the typer command, with its help and its errors
        `--> parse(): the same values from a command line without mistakes, a third of a second sooner; None otherwise
```
A broker that restarts is a broker that is away: what its command line costs, its clients wait for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flockmq.config.load import Loaded
    from flockmq.config.sources import Setting

TEXT: Final = "text"
PATH: Final = "path"
PORT: Final = "port"
SWITCH: Final = "switch"
REPEATED: Final = "repeated"

CONFIG: Final = "--config"
CONFIG_VARIABLE: Final = "FLOCKMQ_CONFIG"
CONFIG_HELP: Final = "Configuration file, in TOML."
SET: Final = "--set"
SET_HELP: Final = "Any setting, like limits.packet_bytes_max=64KB; may repeat."


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOption:
    """One option. ``setting`` is what it sets, where that is a setting of its own; ``listener`` whose port it is."""

    flag: str
    kind: str
    text: str
    metavar: str = ""
    setting: str = ""
    listener: str = ""
    choices: tuple[str, ...] = ()
    value: str = ""
    """What a switch sets."""

    @property
    def name(self) -> str:
        """Its name among the values."""
        return self.flag[2:].replace("-", "_")


OPTIONS: Final = (
    StartOption(flag=CONFIG, kind=PATH, metavar="FILE", text=CONFIG_HELP),
    StartOption(flag="--name", kind=TEXT, metavar="NAME@HOST", setting="node.name", text="Name of this node."),
    StartOption(
        flag="--data-dir", kind=PATH, metavar="DIR", setting="node.data_dir", text="Folder of this node alone."
    ),
    StartOption(
        flag="--host",
        kind=TEXT,
        metavar="ADDRESS",
        text="Address to listen on, for clients, API and other nodes; * is every address.",
    ),
    StartOption(
        flag="--advertise-host",
        kind=TEXT,
        metavar="ADDRESS",
        setting="cluster.advertise_host",
        text="Address that other nodes reach this one by (--host, else the name of this machine).",
    ),
    StartOption(flag="--port", kind=PORT, setting="cluster.port", text="Port for other nodes, TCP and UDP (16000)."),
    StartOption(
        flag="--join",
        kind=REPEATED,
        metavar="HOST:PORT",
        setting="cluster.contact_points",
        text="Any node of the cluster to join; may repeat.",
    ),
    StartOption(
        flag="--cookie-file",
        kind=PATH,
        metavar="FILE",
        setting="cluster.cookie_file",
        text="Secret that the nodes of a cluster share.",
    ),
    StartOption(
        flag="--role",
        kind=TEXT,
        setting="cluster.role",
        choices=("core", "edge"),
        text="core nodes keep data and vote, edge nodes only hold clients.",
    ),
    StartOption(flag="--mqtt-port", kind=PORT, listener="tcp", text="Port for MQTT (1883); 0 takes a free one."),
    StartOption(flag="--mqtts-port", kind=PORT, listener="tls", text="Port for MQTT over TLS (8883)."),
    StartOption(flag="--ws-port", kind=PORT, listener="ws", text="Port for MQTT over WebSocket (8083)."),
    StartOption(flag="--wss-port", kind=PORT, listener="wss", text="Port for MQTT over secure WebSocket (8084)."),
    StartOption(flag="--api-port", kind=PORT, listener="admin", text="Port of the admin API (18083)."),
    StartOption(
        flag="--allow-anonymous",
        kind=SWITCH,
        setting="security.allow_anonymous",
        value="true",
        text="Let clients in without credentials; from this machine only, unless --host says otherwise.",
    ),
    StartOption(
        flag="--password-file",
        kind=PATH,
        metavar="FILE",
        setting="security.password_file",
        text="Users, as flockmq passwd writes them.",
    ),
    StartOption(
        flag="--acl-file",
        kind=PATH,
        metavar="FILE",
        setting="security.acl_file",
        text="Which clients may publish and subscribe to what.",
    ),
    StartOption(
        flag="--tls-cert",
        kind=PATH,
        metavar="FILE",
        setting="tls.cert_file",
        text="Certificate, in PEM; with it TLS is served, too.",
    ),
    StartOption(
        flag="--tls-key",
        kind=PATH,
        metavar="FILE",
        setting="tls.key_file",
        text="Private key of the certificate, in PEM.",
    ),
    StartOption(
        flag="--log-level",
        kind=TEXT,
        setting="log.level",
        choices=("debug", "info", "warning", "error"),
        text="Least level to log.",
    ),
    StartOption(flag="--json", kind=SWITCH, setting="log.format", value="json", text="Log JSON, for programs."),
    StartOption(flag=SET, kind=REPEATED, metavar="KEY=VALUE", text=SET_HELP),
)
_BY_FLAG: Final = {option.flag: option for option in OPTIONS}


def parse(arguments: list[str], environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """The values of a command line without mistakes; None leaves it to typer, which says what is wrong."""
    values: dict[str, Any] = {option.name: None for option in OPTIONS}
    if environ.get(CONFIG_VARIABLE):
        values["config"] = Path(environ[CONFIG_VARIABLE])
    rest = list(reversed(arguments))
    while rest:
        flag, equals, text = rest.pop().partition("=")
        option = _BY_FLAG.get(flag)
        if option is None or (option.kind == SWITCH and equals):
            return None
        if option.kind == SWITCH:
            values[option.name] = True
            continue
        if not equals:
            if not rest or rest[-1].startswith("-"):
                return None
            text = rest.pop()
        if not _fits(option, text):
            return None
        if option.kind == REPEATED:
            values[option.name] = [*(values[option.name] or []), text]
        else:
            values[option.name] = _convert(option, text)
    return values


def _fits(option: StartOption, text: str) -> bool:
    if option.kind == PORT:
        return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535
    if option.flag == SET:
        return "=" in text
    return bool(text) and (not option.choices or text in option.choices)


def _convert(option: StartOption, text: str) -> object:
    if option.kind == PORT:
        return int(text)
    return Path(text) if option.kind == PATH else text


def load_chosen(values: Mapping[str, Any]) -> Loaded:
    """Read the configuration under these values."""
    from flockmq.config.load import Flags, load
    from flockmq.config.sources import Origin, Setting

    settings = []
    for option in OPTIONS:
        value = values[option.name]
        if option.setting and value is not None and value is not False:
            text = option.value if option.kind == SWITCH else str(value)
            if option.kind == REPEATED:
                text = ",".join(value)
            settings.append(Setting(tuple(option.setting.split(".")), text, Origin("flag", option.flag)))
    chosen_ports = {option.listener: values[option.name] for option in OPTIONS if option.listener}
    flags = Flags(
        settings=(*settings, *set_settings(values["set"])),
        host=values["host"],
        ports={listener: port for listener, port in chosen_ports.items() if port is not None},
    )
    return load(values["config"], os.environ, flags)


def set_settings(texts: list[str] | None) -> tuple[Setting, ...]:
    """What ``--set KEY=VALUE`` says."""
    from flockmq.config.sources import Origin, Setting

    pairs = [text.partition("=") for text in texts or []]
    return tuple(
        Setting(tuple(path.strip().split(".")), value, Origin("flag", f"--set {path.strip()}"))
        for path, _, value in pairs
    )


def run(values: Mapping[str, Any]) -> None:
    """Run a broker as these values say."""
    from flockmq.config.show import as_tree
    from flockmq.server.run import run_server

    loaded = load_chosen(values)
    run_server(loaded.config, lambda: as_tree(loaded.values))
