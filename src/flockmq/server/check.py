"""Checks the files that a configuration names, as a start reads them, and advises on probable mistakes.

```
 Config --> check_files: passwords, token keys, ACL, certificates, admin token read as a start reads them, and the
       |                 discovery plugin made as a start makes it, without starting it
       `--> advice: settings that work and still deserve a word, with the addresses that are or would be served
```
A start ends at the first file that can't be used; ``flockmq config check`` wants to tell all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flockmq.errors import ConfigError
from flockmq.security.files import exposure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flockmq.config.bind import Address
    from flockmq.config.sections import Config


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice; ``event`` is its name in the log."""

    event: str
    message: str
    fields: dict[str, object] = field(default_factory=dict)


def check_files(config: Config) -> None:
    """Read every file; a ConfigError holds one sentence a line, one line a file that can't be used."""
    problems = []
    for read in _readers(config):
        try:
            read()
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))


def _readers(config: Config) -> Iterator[Callable[[], object]]:
    from flockmq.security.acl_file import load_acl
    from flockmq.security.jwt_auth import TokenVerifier
    from flockmq.security.passwords import load_users
    from flockmq.security.tls import build_context
    from flockmq.server.token import read_token

    security = config.security
    if security.password_file:
        yield partial(load_users, Path(security.password_file))
    if security.has_jwt:
        yield partial(TokenVerifier, security)
    if security.acl_file:
        yield partial(load_acl, Path(security.acl_file))
    for listener in config.listeners:
        if listener.tls is not None:
            yield partial(build_context, listener.tls)
    if config.admin is not None and config.admin.token_file:
        yield partial(read_token, Path(config.admin.token_file))
    if config.cluster.enabled:
        yield partial(_make_discovery, config)


def _make_discovery(config: Config) -> object:
    """Make the discovery as a start makes it; what it refuses to be made of is a ConfigError."""
    from flockmq.discovery import registry
    from flockmq.discovery.ports import Surroundings
    from flockmq.discovery.settings import NoSettings
    from flockmq.peering.contact import parse_contact

    surroundings = Surroundings(
        node_id=0,
        node_name=config.broker.node_name,
        cookie=b"a start reads it, or makes it",
        contact_points=tuple(parse_contact(point) for point in config.cluster.contact_points),
    )
    settings = config.discovery if config.discovery is not None else NoSettings()
    return registry.make(config.cluster.discovery, settings, surroundings)


def secret_files(config: Config) -> dict[str, str]:
    """Files that only the broker's user should be able to read, each with what it is. The cookie is checked apart."""
    security, cluster = config.security, config.cluster
    found = {security.password_file: "password file", security.jwt_secret_file: "secret of tokens"}
    for tls in (*(one.tls for one in config.listeners), config.admin.tls if config.admin is not None else None):
        if tls is not None:
            found |= {tls.key_file: "private key", tls.key_password_file: "password of the private key"}
    found[cluster.key_file] = "private key of links"
    if config.admin is not None:
        found[config.admin.token_file] = "admin token"
    return {path: what for path, what in found.items() if path}


def _exposed(config: Config) -> list[Advice]:
    """Secrets that other users can read. No refusal: container platforms pass secrets in files that all can read."""
    found = []
    for path, what in secret_files(config).items():
        done = exposure(Path(path))
        if done:
            message = f"other users of this machine can {done} the {what} {path}; make it private: chmod 600 {path}"
            found.append(Advice("secret_exposed", message, {"file": path}))
    return found


def advice(config: Config, addresses: Sequence[Address]) -> list[Advice]:
    """Advice on probable mistakes, with MQTT served on these addresses."""
    security = config.security
    certificates = any(one.tls and one.tls.client_certificates != "off" for one in config.listeners)
    open_to = [str(address) for address in addresses if not address.loopback]
    found = [Advice("unknown_variable", note) for note in config.notes]
    if security.allow_anonymous and open_to:
        found.append(
            Advice(
                "anonymous_from_everywhere",
                "every client that reaches these addresses may publish and subscribe; bind to 127.0.0.1, or set "
                "security.password_file instead of security.allow_anonymous",
                {"addresses": open_to},
            )
        )
    if not (security.allow_anonymous or security.password_file or security.has_jwt or certificates):
        found.append(
            Advice(
                "nobody_can_log_in",
                "no way to log in is set up, so every client will be refused that is not registered in the cluster; "
                "register some (see flockmq client create), set security.password_file (see flockmq passwd), or use "
                "--allow-anonymous on a machine of your own",
            )
        )
    return found + _exposed(config)
