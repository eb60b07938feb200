"""`dns`: a name stands for all nodes, by A, AAAA or SRV records that somebody else keeps.

A name that does not exist, or has no such records, is an error and not an empty list: with a misspelt name a node must
wait, not form a cluster of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import dns.asyncresolver
import dns.exception
import dns.name
import dns.nameserver
import dns.resolver

from flockmq.discovery.ports import DiscoveryError, Plugin, Surroundings
from flockmq.discovery.settings import DnsSettings
from flockmq.errors import ConfigError, FlockError
from flockmq.peering.contact import Contact, make_contact, parse_contact

if TYPE_CHECKING:
    from dns.rdtypes.IN.A import A
    from dns.rdtypes.IN.AAAA import AAAA
    from dns.rdtypes.IN.SRV import SRV

NODES_MAX: Final = 1_000


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
        return self._contacts(answer)

    async def stop(self) -> None:
        """Nothing to let go of."""

    def _contacts(self, answer: dns.resolver.Answer) -> list[Contact]:
        found: dict[Contact, None] = {}
        for record in list(answer)[:NODES_MAX]:
            try:
                if self._settings.record == "SRV":
                    service = cast("SRV", record)
                    if service.target != dns.name.root:  # which says: decidedly not here
                        found[make_contact(service.target.to_text(omit_final_dot=True), service.port)] = None
                else:
                    found[make_contact(cast("A | AAAA", record).address, self._settings.port)] = None
            except FlockError:
                continue  # a name that no machine can have
        return list(found)


def _resolver(settings: DnsSettings) -> dns.asyncresolver.Resolver:
    if not settings.nameservers:
        try:
            return _without_cache(dns.asyncresolver.Resolver())
        except dns.resolver.NoResolverConfiguration:
            raise DiscoveryError("This system names no DNS servers; set discovery.dns.nameservers.") from None
    resolver = dns.asyncresolver.Resolver(configure=False)
    servers = [parse_contact(text, 53) for text in settings.nameservers]
    try:
        resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in servers]
    except ValueError as error:
        raise DiscoveryError(f"discovery.dns.nameservers can't be used: {error}.") from None
    return _without_cache(resolver)


def _without_cache(resolver: dns.asyncresolver.Resolver) -> dns.asyncresolver.Resolver:
    resolver.cache = None  # asked every few seconds at most; records of the moment are what counts
    return resolver


PLUGIN: Final = Plugin(DnsSettings, DnsDiscovery)
