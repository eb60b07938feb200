"""`k8s` against an HTTPS server that speaks the EndpointSlices API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flockmq.discovery import registry
from flockmq.discovery.k8s import K8sDiscovery
from flockmq.discovery.ports import DiscoveryError, Surroundings
from flockmq.discovery.settings import K8sSettings
from flockmq.errors import ConfigError
from flockmq.peering.contact import Contact
from integration.support.certificates import Authority
from integration.support.k8s import Api, endpoint_slice, pod
from integration.support.node import Run


@asynccontextmanager
async def asking(api: Api, **settings: Any) -> AsyncIterator[K8sDiscovery]:
    """A discovery that asks this API, which serves meanwhile."""
    async with api.serving():
        given = {"service": "broker", "api_url": api.url, "account_dir": str(api.account)}
        discovery = make(**given | settings)
        try:
            yield discovery
        finally:
            await discovery.stop()


def make(**settings: Any) -> K8sDiscovery:
    made = registry.make("k8s", K8sSettings(**settings), Surroundings(node_id=1))
    assert isinstance(made, K8sDiscovery)
    return made


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def test_all_pages_are_read(run: Run, api: Api) -> None:
    api.slices = [endpoint_slice("IPv4", pod(f"p{number}", f"10.0.0.{number}")) for number in range(1, 6)]

    async def scenario() -> None:
        async with asking(api) as discovery:
            await discovery.start(Contact("me", 1))
            assert await discovery.find() == [Contact(f"10.0.0.{number}", 16_000) for number in range(1, 6)]
            assert len(api.asked) == 5

    run(scenario())


def test_pods_not_ready_are_listed_and_leaving_ones_are_not(run: Run, api: Api) -> None:
    api.slices = [
        endpoint_slice(
            "IPv4",
            pod("ready", "10.0.0.1", ready=True, serving=True, terminating=False),
            pod("starting", "10.0.0.2", ready=False, serving=False, terminating=False),
            pod("leaving", "10.0.0.3", ready=False, serving=True, terminating=True),
            pod("unknown", "10.0.0.4", ready=None),
            {"addresses": []},
            {"addresses": ["10.0.0.5"]},
            port=17_000,
        )
    ]

    async def scenario() -> None:
        async with asking(api) as discovery:
            assert [contact.host[-1] for contact in await discovery.find()] == ["1", "2", "4", "5"]
        async with asking(api, ready_only=True) as discovery:
            found = await discovery.find()
            assert [contact.host[-1] for contact in found] == ["1", "4", "5"]
            assert {contact.port for contact in found} == {17_000}

    run(scenario())


def test_a_pod_with_two_families_is_one_node(run: Run, api: Api) -> None:
    api.slices = [
        endpoint_slice("IPv6", pod("a", "fd00::a"), pod("b", "fd00::b"), pod("six", "fd00::6")),
        endpoint_slice("IPv4", pod("a", "10.0.0.1"), pod("b", "10.0.0.2"), port=None),
        endpoint_slice("FQDN", {"addresses": ["outside.example"]}),
        endpoint_slice("Carrier pigeon", {"addresses": ["loft"]}),
        endpoint_slice("IPv4"),
    ]

    async def scenario() -> None:
        async with asking(api, port=15_000) as discovery:
            assert await discovery.find() == [
                Contact("10.0.0.1", 15_000),
                Contact("10.0.0.2", 15_000),
                Contact("fd00::6", 16_000),
                Contact("outside.example", 16_000),
            ]
        async with asking(api, address_type="IPv6") as discovery:
            assert [contact.host for contact in await discovery.find()] == ["fd00::a", "fd00::b", "fd00::6"]

    run(scenario())


def test_no_endpoints_is_an_empty_list(run: Run, api: Api) -> None:
    async def scenario() -> None:
        async with asking(api) as discovery:
            assert await discovery.find() == []

    run(scenario())


def test_a_new_token_is_read(run: Run, api: Api) -> None:
    async def scenario() -> None:
        async with asking(api) as discovery:
            assert await discovery.find() == []
            api.token = "second"
            with pytest.raises(DiscoveryError, match=r"token was not accepted.*discovery\.k8s\.token_file"):
                await discovery.find()
            (api.account / "token").write_text("second")
            assert await discovery.find() == []
            (api.account / "token").unlink()
            with pytest.raises(DiscoveryError, match="can't be read"):
                await discovery.find()

    run(scenario())


def test_a_list_that_changed_between_pages_is_read_again(run: Run, api: Api) -> None:
    api.slices = [endpoint_slice("IPv4", pod(f"p{number}", f"10.0.0.{number}")) for number in (1, 2)]
    gone = [web.json_response({"code": 410, "reason": "Expired"}, status=410) for _ in range(3)]

    async def scenario() -> None:
        api.before_page = lambda page: gone.pop() if page == 1 and len(gone) > 2 else None
        async with asking(api) as discovery:
            assert len(await discovery.find()) == 2
            api.before_page = lambda page: gone.pop() if page == 1 else None
            with pytest.raises(DiscoveryError, match="change faster"):
                await discovery.find()

    run(scenario())


@pytest.mark.parametrize(
    ("response", "match"),
    [
        (lambda: web.json_response({}, status=403), "Role and a RoleBinding"),
        (lambda: web.json_response({}, status=404), "Kubernetes 1.21"),
        (lambda: web.json_response({}, status=500), "status 500"),
        (lambda: web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"}), "status 302"),
        (lambda: web.Response(text="<html>"), "something else than slices"),
        (lambda: web.json_response({"items": [{"endpoints": [{"addresses": [5]}]}]}), "something else than slices"),
    ],
)
def test_other_answers_are_sentences(run: Run, api: Api, response: Callable[[], web.Response], match: str) -> None:
    async def scenario() -> None:
        api.before_page = lambda page: response()
        async with asking(api) as discovery:
            with pytest.raises(DiscoveryError, match=match):
                await discovery.find()

    run(scenario())


def test_pages_without_end_are_bounded(run: Run, api: Api) -> None:
    async def scenario() -> None:
        page = {"metadata": {"continue": "0"}, "items": [endpoint_slice("IPv4", pod("p", "10.0.0.1"))]}
        api.before_page = lambda number: web.json_response(page)
        async with asking(api) as discovery:
            assert await discovery.find() == [Contact("10.0.0.1", 16_000)]

    run(scenario())


def test_another_authority_is_not_asked(run: Run, api: Api, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "somebody else")

    async def scenario() -> None:
        async with asking(api, ca_file=str(stranger.file)) as discovery:
            with pytest.raises(DiscoveryError, match="can't be asked"):
                await discovery.find()
            assert api.asked == []  # the token stayed here

    run(scenario())


def test_where_the_api_is(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        make(account_dir=str(api.account))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    for host, url in (
        ("10.0.0.1", "https://10.0.0.1:6443"),
        ("fd00::1", "https://[fd00::1]:6443"),
        ("k", "https://k:6443"),
    ):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        assert make(account_dir=str(api.account))._api_url == url


def test_outside_of_a_pod(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this is no pod"):
        make(account_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"ca\.crt can't be read"):
        make(account_dir=str(tmp_path), namespace="n", api_url="https://x")
