"""Nodes tell each other what limited namespaces use."""

from __future__ import annotations

from flockmq.durable.usage import KEY, NamespaceUsage
from flockmq.session.space import Space, Spaces
from maps_network import Network


def spaces(connections: int, sessions: int, limit: int = 10) -> Spaces:
    found = Spaces()
    for name in ("acme", "free"):
        found.by_name[name] = Space(name)
    found.by_name["acme"].limit(limit, 0, 0, 0)
    found.by_name["acme"].connections = connections
    found.by_name["acme"].sessions = sessions
    found.by_name["free"].connections = 99
    return found


def test_limits_are_for_all_nodes_together() -> None:
    network = Network(3, checked=False)
    network.join(1, 2)
    network.join(2, 3)
    network.join(1, 3)
    here = {number: spaces(connections=number, sessions=2 * number) for number in network.nodes}
    usage = {number: NamespaceUsage(node.maps, number, here[number]) for number, node in network.nodes.items()}

    def pass_second() -> None:
        network.now += 1_000
        for number, one in usage.items():
            one.tick(network.now)
            one.tick(network.now)
            assert KEY + b"free" not in dict(network.nodes[number].maps.items(number))
        for _ in range(10):
            for number, node in network.nodes.items():
                network.deliver(number)
                node.end_turn()

    pass_second()
    pass_second()
    acme = here[1].by_name["acme"]
    assert (acme.connections_elsewhere, acme.sessions_elsewhere, acme.nodes) == (5, 10, 3)
    here[3].by_name["acme"].connections = here[3].by_name["acme"].sessions = 0
    pass_second()
    pass_second()
    assert (acme.connections_elsewhere, acme.sessions_elsewhere, acme.nodes) == (2, 4, 2)
    here[2].by_name["acme"].limit(0, 0, 0, 0)
    pass_second()
    pass_second()
    assert (acme.connections_elsewhere, acme.nodes) == (0, 1), "it is no longer told where nothing is limited"
