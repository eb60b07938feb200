from __future__ import annotations

import pytest

from flockmq.config.sections import ClusterConfig
from flockmq.peering.contact import Contact
from flockmq.server.link_address import advertised_host, listening_host, unreachable_from

HERE = Contact("127.0.0.1", 16_001)
ELSEWHERE = Contact("b.example", 16_000)


def test_what_others_are_told_follows_the_table() -> None:
    """--host and --advertise-host: said, else what is listened on, else what the system calls this machine."""
    assert advertised_host("10.0.0.1", "node.example") == "node.example"
    assert advertised_host("", "node.example") == "node.example"
    assert advertised_host("10.0.0.1", "") == "10.0.0.1"
    assert advertised_host("", "")
    assert advertised_host("*", "") == advertised_host("", "")


@pytest.mark.parametrize(
    ("config", "known", "host"),
    [
        (ClusterConfig(), [], "127.0.0.1"),
        (ClusterConfig(), [HERE, Contact("localhost", 1), Contact("::1", 2)], "127.0.0.1"),
        (ClusterConfig(), [HERE, ELSEWHERE], ""),
        (ClusterConfig(host="10.0.0.1"), [], "10.0.0.1"),
        (ClusterConfig(host="*"), [], "*"),
        (ClusterConfig(advertise_host="a.example"), [], ""),
        (ClusterConfig(contact_points=("a.example:16000",)), [], ""),
        (ClusterConfig(discovery="mcast"), [], ""),
    ],
)
def test_a_node_listens_on_loopback_until_other_machines_are_spoken_of(
    config: ClusterConfig, known: list[Contact], host: str
) -> None:
    assert listening_host(config, known) == host


def test_who_can_not_be_joined_from_a_node_on_loopback() -> None:
    assert "--advertise-host" in unreachable_from(ELSEWHERE, HERE)
    assert not unreachable_from(HERE, HERE)
    assert not unreachable_from(ELSEWHERE, Contact("a.example", 16_000))
