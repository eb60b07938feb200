from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.discovery import registry
from flockmq.discovery.manual import ManualDiscovery
from flockmq.discovery.ports import Claim, Plugin, Surroundings, claim
from flockmq.discovery.settings import DnsSettings, EtcdSettings, NoSettings
from flockmq.errors import ConfigError
from flockmq.peering.contact import Contact

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
HERE = Surroundings(node_id=1)
CONTACT = Contact("a", 1)


def test_entry_points_and_the_source_tree_name_the_same_plugins() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["entry-points"][registry.GROUP]
    assert tuple(declared) == registry.BUILT_IN
    for name, value in declared.items():
        module, _, attribute = value.partition(":")
        __import__(module)
        assert registry.load(name) is getattr(sys.modules[module], attribute)


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of somebody else, installed as pip would."""
    info = tmp_path / "flock_consul-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flock-consul\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[flockmq.discovery]\n"
        "consul = flock_consul:PLUGIN\n"
        "broken = flock_consul:NOTHING\n"
        "wrong = flock_consul:NUMBER\n"
        "twice = flock_consul:PLUGIN\n"
        "etcd = flock_consul:PLUGIN\n"
    )
    second = tmp_path / "flock_second-1.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: flock-second\nVersion: 1.0\n")
    (second / "entry_points.txt").write_text("[flockmq.discovery]\ntwice = flock_second:PLUGIN\n")
    (tmp_path / "flock_consul.py").write_text(
        "from dataclasses import dataclass\n"
        "from flockmq.discovery.manual import ManualDiscovery\n"
        "from flockmq.discovery.ports import Plugin\n"
        "@dataclass(frozen=True)\n"
        "class ConsulSettings:\n"
        "    url: str = ''\n"
        "PLUGIN = Plugin(ConsulSettings, ManualDiscovery)\n"
        "NUMBER = 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("flock_consul", None)


@pytest.mark.usefixtures("other_package")
def test_other_packages_bring_plugins() -> None:
    assert {"consul", "broken", "manual"} <= set(registry.names())
    plugin = registry.load("consul")
    made = registry.make("consul", plugin.settings(url="x"), HERE)
    assert isinstance(made, ManualDiscovery)
    assert registry.load("etcd").settings is EtcdSettings  # nobody takes the name of a built-in one


@pytest.mark.usefixtures("other_package")
@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("zeroconf", "not one of manual, static"),
        ("broken", "can't be loaded: AttributeError"),
        ("wrong", "is not a flockmq.discovery.ports.Plugin"),
        ("twice", "Several packages"),
    ],
)
def test_plugins_that_cannot_be_used(name: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        registry.load(name)


def test_settings_of_another_plugin_are_refused() -> None:
    with pytest.raises(ConfigError, match="wants EtcdSettings"):
        registry.make("etcd", DnsSettings(), HERE)


@pytest.mark.usefixtures("other_package")
def test_without_a_section_the_defaults_of_a_plugin_hold() -> None:
    assert isinstance(registry.make("consul", NoSettings(), HERE), ManualDiscovery)


async def test_manual_is_a_list_that_people_feed() -> None:
    manual = registry.make("manual", NoSettings(), Surroundings(node_id=1, contact_points=(CONTACT, CONTACT)))
    assert isinstance(manual, ManualDiscovery)
    assert not manual.lists_peers
    await manual.start(Contact("me", 1))
    assert await manual.find() == [CONTACT]
    await manual.stop()


async def test_static_is_what_the_configuration_says() -> None:
    static = registry.make("static", NoSettings(), Surroundings(node_id=1, contact_points=(CONTACT, CONTACT)))
    assert static.lists_peers
    await static.start(Contact("me", 1))
    assert await static.find() == [CONTACT]
    await static.stop()
    with pytest.raises(ConfigError, match="contact_points is empty"):
        registry.make("static", NoSettings(), HERE)


async def test_who_cannot_hold_claims_lets_the_node_decide() -> None:
    assert await claim(ManualDiscovery(NoSettings(), HERE), 7) == Claim(7, mine=True)


def test_a_plugin_is_two_things() -> None:
    assert Plugin(NoSettings, ManualDiscovery).make(NoSettings(), HERE).lists_peers is False
