"""From the name in ``cluster.discovery`` to the plugin: FlockMQ's own, or one that another package brings.

A package adds a plugin by an entry point, and FlockMQ finds it by name once it is installed:

```toml
[project.entry-points."flockmq.discovery"]
consul = "my_package.consul:PLUGIN"        # a flockmq.discovery.ports.Plugin
```
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from flockmq.discovery.ports import Discovery, Plugin, Surroundings
from flockmq.discovery.settings import NoSettings
from flockmq.errors import ConfigError

GROUP: Final = "flockmq.discovery"
BUILT_IN: Final = ("manual", "static", "mcast", "dns", "etcd", "k8s")
"""The same as in pyproject.toml; here, too, so that they work from a source tree that was not installed."""


def names() -> list[str]:
    """All plugins that can be named in ``cluster.discovery``."""
    others = {entry.name for entry in entry_points(group=GROUP)} - set(BUILT_IN)
    return [*BUILT_IN, *sorted(others)]


def load(name: str) -> Plugin:
    """The plugin of this name; ConfigError when there is none, or it can't be used."""
    if name in BUILT_IN:
        plugin = import_module(f"flockmq.discovery.{name}").PLUGIN
        assert isinstance(plugin, Plugin)
        return plugin
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise ConfigError(f"cluster.discovery is {name!r}, which is not one of {', '.join(names())}.")
    if len({entry.value for entry in found}) > 1:
        raise ConfigError(f"Several packages bring a discovery plugin called {name!r}; uninstall all but one of them.")
    return _load(found[0])


def make(name: str, settings: object, surroundings: Surroundings) -> Discovery:
    """A discovery, ready to be started.

    ``settings`` is an instance of the plugin's settings class, or NoSettings where a configuration has no section for
    it: then the plugin's own defaults hold.
    """
    plugin = load(name)
    if isinstance(settings, NoSettings):
        settings = plugin.settings()
    if not isinstance(settings, plugin.settings):
        raise ConfigError(f"The discovery plugin {name!r} wants {plugin.settings.__name__} as its settings.")
    return plugin.make(settings, surroundings)


def _load(entry: EntryPoint) -> Plugin:
    try:
        plugin = entry.load()
    except Exception as error:
        raise ConfigError(
            f"The discovery plugin {entry.name!r} ({entry.value}) can't be loaded: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(plugin, Plugin):
        raise ConfigError(
            f"The discovery plugin {entry.name!r} ({entry.value}) is not a flockmq.discovery.ports.Plugin."
        )
    return plugin
