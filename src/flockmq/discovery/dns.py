"""`dns`: a name stands for all nodes, by A, AAAA or SRV records that an operator or a platform keeps.

```
 A, AAAA  --> address of a node, port of the settings
 SRV      --> port and target --> address of the target, where ``nameservers`` are set: from the same answer, else asked
          `-> without them the target's name: links ask the system's servers themselves
```
A name that does not exist, or has no such records, is an error and not an empty list: with a misspelt name a node must
wait, not form a cluster of its own.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast

import dns.asyncresolver
import dns.exception
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from flockmq.discovery.ports import DiscoveryError, Plugin, Surroundings
from flockmq.discovery.settings import DnsSettings
from flockmq.errors import ConfigError, FlockError
from flockmq.peering.contact import Contact, make_contact, parse_contact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dns.rdtypes.IN.A import A
    from dns.rdtypes.IN.AAAA import AAAA
    from dns.rdtypes.IN.SRV import SRV

NODES_MAX: Final = 1_000
ASKED_AT_ONCE_MAX: Final = 16
"""Most targets of SRV records that are asked for at the same time."""


class DnsDiscovery:
    """Nodes by the records of a name."""

    lists_peers = True

    def __init__(self, settings: DnsSettings, surroundings: Surroundings) -> None:  # noqa: ARG002
        if not settings.name:
            raise ConfigError('cluster.discovery is "dns" and discovery.dns.name is empty; name what to ask DNS for.')
        try:
            dns.name.from_text(settings.name)
        except (dns.exception.DNSException, UnicodeError):
            raise ConfigError(f"discovery.dns.name is {settings.name!r}, which can't be a name in DNS.") from None
        _nameservers(settings)
        self._settings = settings
        self._resolver: dns.asyncresolver.Resolver | None = None

    async def start(self, me: Contact) -> None:
        """Records are not this node's to write."""

    async def find(self) -> list[Contact]:
        """Ask for the records; what they hold beyond a bound is left out."""
        settings = self._settings
        if self._resolver is None:
            self._resolver = _resolver(settings)
        try:
            answer = await self._resolver.resolve(
                settings.name, settings.record, lifetime=settings.timeout_ms / 1000, search=not settings.nameservers
            )
        except dns.resolver.NXDOMAIN:
            raise DiscoveryError(
                f"DNS knows no name {settings.name!r}; create {settings.record} records for it, or check "
                "discovery.dns.name."
            ) from None
        except dns.resolver.NoAnswer:
            raise DiscoveryError(
                f"The name {settings.name!r} has no {settings.record} records in DNS; check discovery.dns.record."
            ) from None
        except dns.exception.Timeout:
            raise DiscoveryError(
                f"No DNS server answered about {settings.name!r} in time; check discovery.dns.nameservers."
            ) from None
        except (dns.exception.DNSException, OSError) as error:
            raise DiscoveryError(f"DNS can't answer about {settings.name!r}: {str(error).rstrip('.')}.") from None
        if settings.record != "SRV":
            return _contacts((cast("A | AAAA", record).address, settings.port) for record in list(answer)[:NODES_MAX])
        services = [cast("SRV", record) for record in list(answer)[:NODES_MAX]]
        services = [one for one in services if one.target != dns.name.root]  # which says: decidedly not here
        hosts = await self._hosts(answer, list(dict.fromkeys(one.target for one in services)))
        return _contacts((hosts[one.target], one.port) for one in services)

    async def stop(self) -> None:
        """Nothing to let go of."""

    async def _hosts(self, answer: dns.resolver.Answer, targets: list[dns.name.Name]) -> dict[dns.name.Name, str]:
        """What nodes are reached by: an address where nameservers are set, else, or without an address, the name."""
        hosts = {target: target.to_text(omit_final_dot=True) for target in targets}
        if not self._settings.nameservers:
            return hosts
        hosts |= {target: address for target in targets if (address := _told_besides(answer, target))}
        asked = [target for target in targets if hosts[target] == target.to_text(omit_final_dot=True)]
        for start in range(0, len(asked), ASKED_AT_ONCE_MAX):
            some = asked[start : start + ASKED_AT_ONCE_MAX]
            found = await asyncio.gather(*(self._address(target) for target in some))
            hosts |= {target: address for target, address in zip(some, found, strict=True) if address}
        return hosts

    async def _address(self, target: dns.name.Name) -> str | None:
        """An address of this name, IPv4 first; None when the nameservers know none."""
        assert self._resolver is not None
        for record in ("A", "AAAA"):
            try:
                answer = await self._resolver.resolve(
                    target, record, lifetime=self._settings.timeout_ms / 1000, search=False
                )
            except (dns.exception.DNSException, OSError):
                continue
            return min(str(cast("A | AAAA", one).address) for one in answer)
        return None


def _contacts(places: Iterable[tuple[str, int]]) -> list[Contact]:
    found: dict[Contact, None] = {}
    for host, port in places:
        try:
            found[make_contact(host, port)] = None
        except FlockError:
            continue  # a name that no machine can have
    return list(found)


def _told_besides(answer: dns.resolver.Answer, target: dns.name.Name) -> str | None:
    """The address of a target that a DNS server sent along with its SRV record, IPv4 first."""
    for kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
        for records in answer.response.additional:
            if records.name == target and records.rdtype == kind:
                return min(str(cast("A | AAAA", one).address) for one in records)
    return None


def _resolver(settings: DnsSettings) -> dns.asyncresolver.Resolver:
    if not settings.nameservers:
        try:
            return _without_cache(dns.asyncresolver.Resolver())
        except dns.resolver.NoResolverConfiguration:
            raise DiscoveryError("This system names no DNS servers; set discovery.dns.nameservers.") from None
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers = list(_nameservers(settings))
    return _without_cache(resolver)


def _nameservers(settings: DnsSettings) -> list[dns.nameserver.Nameserver]:
    found: list[dns.nameserver.Nameserver] = []
    for text in settings.nameservers:
        try:
            host, port = parse_contact(text, 53)
            ip_address(host)
        except (FlockError, ValueError):
            raise ConfigError(
                f"discovery.dns.nameservers holds {text!r}; write an IP address with an optional port, like 192.0.2.53."
            ) from None
        found.append(dns.nameserver.Do53Nameserver(host, port))
    return found


def _without_cache(resolver: dns.asyncresolver.Resolver) -> dns.asyncresolver.Resolver:
    resolver.cache = None  # asked every few seconds at most; records of the moment are what counts
    return resolver


PLUGIN: Final = Plugin(DnsSettings, DnsDiscovery)
