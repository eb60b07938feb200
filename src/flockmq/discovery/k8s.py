"""`k8s`: the endpoints of a service, from the EndpointSlices of the Kubernetes API, with the pod's own token.

```
 GET /apis/discovery.k8s.io/v1/namespaces/NS/endpointslices?labelSelector=kubernetes.io/service-name=SERVICE
     page by page (limit, continue) --> slices of IPv4, IPv6, FQDN --> one contact per pod
```
Pods that are not ready are listed: a node becomes ready by joining. Pods that are going away are not.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from flockmq.discovery.ports import DiscoveryError, Plugin, Surroundings
from flockmq.discovery.settings import K8sSettings
from flockmq.discovery.web import Answer, Web, client_tls
from flockmq.errors import ConfigError, FlockError
from flockmq.peering.contact import Contact, make_contact
from flockmq.security.files import read_text

PAGE_SLICES: Final = 100
PAGES_MAX: Final = 100
_GONE: Final = 410
_ADVICE: Final = {
    401: "its token was not accepted; check discovery.k8s.token_file",
    403: "its service account may not list endpointslices of discovery.k8s.io; give it a Role and a RoleBinding",
    404: "it has no EndpointSlices (discovery.k8s.io/v1); Kubernetes 1.21 or later is needed",
}


class Conditions(msgspec.Struct):
    """What Kubernetes thinks of an endpoint; None means that it does not know, which is to be taken as fine."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(msgspec.Struct):
    """The object behind an endpoint."""

    uid: str = ""
    name: str = ""


class Endpoint(msgspec.Struct):
    """One pod of one family."""

    addresses: list[str] = []
    conditions: Conditions | None = None
    target: TargetRef | None = msgspec.field(default=None, name="targetRef")


class Port(msgspec.Struct):
    """A named port of a slice."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Slice(msgspec.Struct):
    """Up to a hundred endpoints of one family."""

    address_type: str = msgspec.field(default="IPv4", name="addressType")
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class ListMeta(msgspec.Struct):
    """Where the next page begins."""

    continue_: str = msgspec.field(default="", name="continue")


class SliceList(msgspec.Struct):
    """One page."""

    items: list[Slice] | None = None
    metadata: ListMeta | None = None


class K8sDiscovery:
    """Nodes by the pods of a service."""

    lists_peers = True

    def __init__(self, settings: K8sSettings, surroundings: Surroundings) -> None:  # noqa: ARG002
        account = Path(settings.account_dir)
        self._settings = settings
        self._token_file = Path(settings.token_file) if settings.token_file else account / "token"
        self._namespace = settings.namespace or _namespace(account / "namespace")
        self._api_url = (settings.api_url or _api_url()).rstrip("/")
        self._web = Web(client_tls(settings.ca_file or str(account / "ca.crt")), settings.timeout_ms)

    async def start(self, me: Contact) -> None:
        """Kubernetes lists the pod by itself."""

    async def find(self) -> list[Contact]:
        """Read all slices; one contact per pod."""
        slices = await self._slices()
        if slices is None:  # the list changed too much between two pages
            slices = await self._slices()
        if slices is None:
            raise DiscoveryError("The endpoints of the service change faster than the Kubernetes API lists them.")
        return contacts(slices, self._settings)

    async def stop(self) -> None:
        """Let go of connections."""
        await self._web.close()

    async def _slices(self) -> list[Slice] | None:
        found: list[Slice] = []
        following = ""
        for _ in range(PAGES_MAX):
            answer = await self._page(following)
            if answer.status == _GONE and following:
                return None
            if answer.status != 200:
                self._refuse(answer)
            try:
                page = msgspec.json.decode(answer.body, type=SliceList)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DiscoveryError(f"{self._api_url} answered with something else than slices: {error}.") from None
            found += page.items or []
            following = page.metadata.continue_ if page.metadata is not None else ""
            if not following:
                break
        return found

    async def _page(self, following: str) -> Answer:
        try:
            token = read_text(self._token_file, "token file").strip()
        except ConfigError as error:
            raise DiscoveryError(str(error)) from None
        query = {
            "labelSelector": f"kubernetes.io/service-name={self._settings.service}",
            "limit": str(PAGE_SLICES),
            **({"continue": following} if following else {}),
        }
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices"
        url = f"{self._api_url}{path}?{urlencode(query)}"
        return await self._web.request("GET", url, {"Authorization": f"Bearer {token}"})

    def _refuse(self, answer: Answer) -> None:
        advice = _ADVICE.get(answer.status, f"it answered with status {answer.status}")
        raise DiscoveryError(f"The Kubernetes API at {self._api_url} can't be asked for endpoints: {advice}.")


def contacts(slices: list[Slice], settings: K8sSettings) -> list[Contact]:
    """One contact per pod: of the family that was asked for, else IPv4 before IPv6 before names."""
    order = {"IPv4": 0, "IPv6": 1, "FQDN": 2}
    chosen: dict[str, Contact] = {}
    for piece in sorted(slices, key=lambda one: order.get(one.address_type, 3)):
        if piece.address_type not in order or settings.address_type not in ("", piece.address_type):
            continue
        port = _port(piece, settings)
        for endpoint in piece.endpoints or []:
            if not endpoint.addresses or not _wanted(endpoint.conditions or Conditions(), settings):
                continue
            try:
                contact = make_contact(endpoint.addresses[0], port)  # the API says: further addresses mean the same
            except FlockError:
                continue
            target = endpoint.target
            chosen.setdefault((target.uid or target.name if target is not None else "") or str(contact), contact)
            if len(chosen) >= settings.nodes_max:
                return list(dict.fromkeys(chosen.values()))
    return list(dict.fromkeys(chosen.values()))


def _wanted(conditions: Conditions, settings: K8sSettings) -> bool:
    if conditions.terminating:
        return False
    return not settings.ready_only or conditions.ready is not False


def _port(piece: Slice, settings: K8sSettings) -> int:
    for port in piece.ports or []:
        if port.name == settings.port_name and port.port and port.protocol in (None, "TCP"):
            return port.port
    return settings.port


def _namespace(file: Path) -> str:
    try:
        return read_text(file, "namespace file").strip()
    except ConfigError:
        raise ConfigError(
            f"{file} can't be read, so this is no pod with a service account; set discovery.k8s.namespace, or use "
            "another cluster.discovery."
        ) from None


def _api_url() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set, so this is no pod; set discovery.k8s.api_url.")
    try:
        return f"https://[{host}]:{port}" if ip_address(host).version == 6 else f"https://{host}:{port}"
    except ValueError:
        return f"https://{host}:{port}"


PLUGIN: Final = Plugin(K8sSettings, K8sDiscovery)
