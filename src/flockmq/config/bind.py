"""Where a listener listens: from what people write to addresses that can be bound.

```
 "192.0.2.1:1883" "[::1]:1883"   that address
 "localhost:1883"                127.0.0.1 and ::1
 "*:1883"                        0.0.0.0 and ::
 ":1883" "1883"                  the safe choice: like "*" when clients must authenticate,
                                 like "localhost" when anonymous clients are let in
```
The last line is the rule behind "secure by default": a broker that lets every client in listens on this machine
only, until an address is named. Of a pair that was not named address by address the IPv6 half is optional, because
machines without IPv6 are common.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from flockmq.errors import ConfigError

LOOPBACK: Final = ("127.0.0.1", "::1")
EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  (bound only when clients must authenticate, or when asked for)


@dataclass(frozen=True, slots=True)
class Address:
    """One address to bind. ``optional`` ones are skipped on machines that don't have that address family."""

    host: str
    port: int
    optional: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False


def split_bind(text: str) -> tuple[str, int]:
    """Split ``host:port`` into a host (empty when none is named) and a port; ConfigError when it is neither."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text!r} is not an address; write an IPv6 address in brackets, like [::1]:1883")
    elif not colon and not port_text.isdigit():
        raise ConfigError(f"{text!r} has no port; write it like {port_text or '127.0.0.1'}:1883")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65_535):
        raise ConfigError(f"{text!r} is not an address; expected host:port with a port from 0 to 65535")
    return host, int(port_text)


def addresses(binds: tuple[str, ...], *, anonymous: bool) -> tuple[Address, ...]:
    """All addresses that these binds stand for, each once, in order."""
    found: dict[tuple[str, int], Address] = {}
    for text in binds:
        host, port = split_bind(text)
        hosts: tuple[str, ...] = (host,)
        if not host:
            hosts = LOOPBACK if anonymous else EVERYWHERE
        elif host in ("*", "localhost"):
            hosts = EVERYWHERE if host == "*" else LOOPBACK
        for one in hosts:
            found.setdefault((one, port), Address(one, port, optional=len(hosts) > 1 and ":" in one))
    return tuple(found.values())


def rebind(binds: tuple[str, ...], host: str | None, port: int | None) -> tuple[str, ...]:
    """Replace the host or the port of binds, as ``--host`` and ``--mqtt-port`` do."""
    if host is not None and ":" in host and not host.startswith("["):
        host = f"[{host}]"
    changed: dict[str, None] = {}
    for text in binds:
        old_host, old_port = split_bind(text)
        if ":" in old_host:
            old_host = f"[{old_host}]"
        changed[f"{old_host if host is None else host}:{old_port if port is None else port}"] = None
    return tuple(changed)
