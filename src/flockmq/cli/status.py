"""``flockmq status``: is a broker there, is it well, and what does it do."""

from __future__ import annotations

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.output import JsonOption, print_fields, print_json


def status(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Say which node answers, since when, where it listens and how much it has to do."""
    client = admin_client(server)
    node = client.node()
    stats = client.stats()
    if as_json:
        import msgspec

        print_json({"node": msgspec.to_builtins(node), "stats": msgspec.to_builtins(stats)})
        return
    fields: list[tuple[str, object]] = [
        ("node", node.name),
        ("state", node.state),
        ("version", f"{node.version} ({node.build})"),
        ("up", _duration(node.uptime_s)),
    ]
    fields += [(f"listener {one.name}", _where(one.host, one.port)) for one in node.listeners]
    figures = {**stats.gauges, **stats.counters}
    fields += [(name.replace("_", " "), value) for name, value in figures.items() if value and name not in _SAID]
    members = [one for one in client.cluster().members if one.state == "alive"]
    if len(members) > 1:
        fields.append(("nodes of the cluster", len(members)))
        fields.append(("clients of the cluster", sum(one.clients or 0 for one in members)))
    print_fields(fields)


_SAID = {"uptime_seconds", "ready"}


def _where(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (whole % 60, "s")]
    shown = [f"{number}{unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or "0s"
