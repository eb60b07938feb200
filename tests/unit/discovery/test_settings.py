from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from flockmq.config.reference import field_docs
from flockmq.config.schema import Key
from flockmq.discovery import registry
from flockmq.discovery.settings import SECTIONS, DnsSettings, EtcdSettings, K8sSettings, McastSettings
from flockmq.errors import ConfigError


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_sections_are_what_the_configuration_can_fill(section: type) -> None:
    section()
    hints = get_type_hints(section)
    docs = field_docs(section)
    for item in fields(section):
        assert hints[item.name] in (bool, int, str, tuple[str, ...]), item.name
        assert docs[item.name], item.name
        assert not Key(("discovery", item.name), hints[item.name], item.default).secret, item.name


def test_plugins_have_these_sections() -> None:
    assert {name: registry.load(name).settings for name in SECTIONS} == SECTIONS


@pytest.mark.parametrize(
    ("section", "values", "match"),
    [
        (McastSettings, {"groups": ()}, "groups is empty"),
        (McastSettings, {"groups": ("10.0.0.1",)}, "not a multicast address"),
        (McastSettings, {"groups": ("fleet",)}, "not a multicast address"),
        (McastSettings, {"interval_ms": 5_000, "expiry_ms": 5_000}, "longer than interval_ms"),
        (McastSettings, {"port": 70_000}, "port is 70000"),
        (DnsSettings, {"record": "MX"}, "one of A, AAAA, SRV"),
        (DnsSettings, {"timeout_ms": 0}, "timeout_ms is 0"),
        (EtcdSettings, {"endpoints": ()}, "endpoints is empty"),
        (EtcdSettings, {"endpoints": ("etcd:2379",)}, "write a URL"),
        (EtcdSettings, {"prefix": "/"}, "prefix is empty"),
        (EtcdSettings, {"username": "u"}, "username and password_file"),
        (EtcdSettings, {"password_file": "p"}, "username and password_file"),
        (EtcdSettings, {"cert_file": "c"}, "cert_file and key_file"),
        (EtcdSettings, {"ttl_s": 0}, "ttl_s is 0"),
        (K8sSettings, {"service": ""}, "service is empty"),
        (K8sSettings, {"api_url": "http://k"}, "begin with https"),
        (K8sSettings, {"address_type": "ipv4"}, "address_type is 'ipv4'"),
    ],
)
def test_contradictions_are_refused(section: type, values: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        section(**values)
