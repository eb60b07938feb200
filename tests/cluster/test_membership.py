"""Real nodes find each other, lose each other and find each other again."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path

from cluster.clients import Clients, command, next_message
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.testing.nodes import HOST, WAIT_S_MAX, NodeCluster, NodeProcess
from flockmq.testing.ports import free_ports


def states(node: NodeProcess) -> dict[str, str]:
    return {member.name: member.state for member in node.admin().cluster().members}


def voters(node: NodeProcess) -> list[str]:
    decisions = node.admin().cluster().decisions
    assert decisions is not None
    return decisions.voters


def alive_in_state(node: NodeProcess) -> list[str]:
    return sorted(one["name"] for one in node.admin().dump()["nodes"] if one["state"] == "ALIVE")


def test_a_killed_node_is_known_to_be_dead_by_all_and_comes_back_without_its_contact_point(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 5, ["--set=cluster.profile=lan"]) as cluster:
        first, *others = cluster.nodes
        first.kill()
        took = cluster.wait(
            lambda: all(states(node)[first.name] == "dead" for node in others), "all to know that n1 is dead"
        )
        print(f"a death was known to all four others after {took:.1f} s")
        # The one that all others were told to join is gone; the peers on disk are enough.
        others[0].stop()
        cluster.wait(lambda: states(others[1])[others[0].name] == "left", "n2 to have left")
        others[0].start()
        others[0].wait_ready()
        cluster.wait(cluster.sees_all, "n2 to be back")
        first.start()
        first.wait_ready()
        cluster.wait(cluster.sees_all, "n1 to be back")
        assert len({node.admin().cluster().id for node in cluster.nodes}) == 1


async def test_routes_vanish_with_a_node_and_are_back_with_it(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, two, three = cluster.nodes
        client = await clients.connect(two, "client2")
        await client.subscribe(SubscribeEntry(b"a/b", 0))
        await client.subscribe(SubscribeEntry(b"a/#", 0))

        def routes(node: NodeProcess) -> dict[str, list[str]]:
            return {route.filter: route.nodes for route in node.admin().routes()}

        there = {"a/b": [two.name], "a/#": [two.name]}
        assert routes(one) == routes(three) == there
        two.kill()
        cluster.wait(lambda: routes(one) == routes(three) == {}, "the routes to vanish")
        two.start()
        two.wait_ready()
        cluster.wait(cluster.sees_all, "n2 to be back")
        client = await clients.connect(two, "client2")
        await client.subscribe(SubscribeEntry(b"a/b", 1))
        assert routes(one) == routes(three) == {"a/b": [two.name]}
        publisher = await clients.connect(three, "publisher")
        await publisher.publish("a/b", b"back", qos=1)
        assert (await next_message(client)).payload == b"back"


def test_a_cluster_by_environment_variables_alone_then_join(tmp_path: Path) -> None:
    """As the EMQX 5 document does it: every port by a variable, then `cluster join`."""
    ports = free_ports(6)
    cookie = secrets.token_hex(32)
    nodes = []
    for number in (1, 2):
        mqtt, api, port = ports[3 * number - 3 : 3 * number]
        variables = {
            "FLOCKMQ_NODE__NAME": f"emqx{number}@{HOST}",
            "FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": f"{HOST}:{mqtt}",
            "FLOCKMQ_ADMIN__BIND": f"{HOST}:{api}",
            "FLOCKMQ_CLUSTER__HOST": HOST,
            "FLOCKMQ_CLUSTER__PORT": str(port),
            "FLOCKMQ_CLUSTER__PROFILE": "local",
            "FLOCKMQ_COOKIE": cookie,
        }
        folder = tmp_path / f"emqx{number}"
        nodes.append(NodeProcess(folder, f"emqx{number}@{HOST}", (mqtt, api, port), [], variables))
    one, two = nodes
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_ready()
        assert one.admin().cluster().id != two.admin().cluster().id
        assert "is a member of cluster" in command(two, "cluster", "join", f"emqx1@{HOST}:{one.port}")
        assert one.admin().cluster().id == two.admin().cluster().id
        both = {one.name: "alive", two.name: "alive"}
        until_s = time.monotonic() + WAIT_S_MAX
        while not states(one) == states(two) == both:
            assert time.monotonic() < until_s, (states(one), states(two))
            time.sleep(0.05)
        assert "was a member" in command(two, "cluster", "join", f"{HOST}:{one.port}")
        status = json.loads(command(one, "cluster", "status", "--json"))
        assert [member["name"] for member in status["members"]] == [one.name, two.name]
        assert two.name in command(one, "node", "list")
        command(two, "cluster", "leave", "--yes")
        assert one.admin().cluster().id != two.admin().cluster().id
        assert states(two) == {two.name: "alive"}
    finally:
        for node in nodes:
            node.close()


def test_a_node_that_left_is_whole_alone_and_when_it_joins_again(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        cluster.wait_settled()
        one, _, three = cluster.nodes
        command(one, "topic", "create", "before", "--shards=2")
        command(three, "cluster", "leave", "--yes")
        cluster.wait(lambda: voters(three) == [three.name], "the node to decide for itself, under its name")
        cluster.wait(lambda: alive_in_state(three) == [three.name], "its own cluster state to have it")
        command(three, "topic", "create", "alone")
        cluster.wait(
            lambda: all(one.leader == three.name for one in three.admin().topic_partitions("alone")),
            "its own partition",
        )
        command(three, "topic", "delete", "alone", "--yes")
        command(three, "cluster", "join", f"{HOST}:{one.port}")
        cluster.wait(cluster.sees_all, "all nodes to see each other again")
        cluster.wait_settled()
        cluster.wait(lambda: voters(one) == sorted(node.name for node in cluster.nodes), "its seat")
        cluster.wait(
            lambda: all(len(one.replicas) == 3 for one in three.admin().topic_partitions("before")), "its copies"
        )


def test_a_node_of_another_cluster_is_told_how_to_come_to_the_one_it_was_to_join(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 2) as cluster:
        cluster.wait_settled()
        one, two = cluster.nodes
        command(two, "cluster", "leave", "--yes")
        two.stop()
        two.start()
        two.wait_ready()
        advice = f"flockmq cluster join {HOST}:{one.port}"
        cluster.wait(lambda: advice in two.admin().cluster().reason, "word of the other cluster")
        told = [line for line in two.log_file.read_text("utf-8").splitlines() if "contact_elsewhere" in line]
        assert len(told) == 1
        assert advice in told[0]
        assert advice in command(two, "cluster", "status")
        assert advice in command(two, "doctor")
        command(two, "cluster", "join", f"{HOST}:{one.port}")
        cluster.wait(cluster.sees_all, "both nodes to see each other again")
        assert two.admin().cluster().reason == ""


async def test_sessions_keep_a_node_from_joining_by_accident(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path / "a", 1) as here, NodeCluster(tmp_path / "b", 1) as there:
        (one,), (two,) = here.nodes, there.nodes
        refused = command(one, "cluster", "join", f"{HOST}:{two.port}", code=1)
        assert "cookie" in refused
        await (await clients.connect(one, "somebody")).disconnect()


def test_strange_cookies_do_not_meet(tmp_path: Path) -> None:
    with NodeCluster(tmp_path / "a", 1) as here:
        (one,) = here.nodes
        mqtt, api, port = free_ports(3)
        options = [f"--host={HOST}", f"--join={HOST}:{one.port}"]
        stranger = NodeProcess(
            tmp_path / "b", f"stranger@{HOST}", (mqtt, api, port), options, {"FLOCKMQ_COOKIE": secrets.token_hex(32)}
        )
        try:
            stranger.start()
            stranger.wait_ready()
            here.wait(lambda: "No contact point answers" in stranger.admin().cluster().reason, "a reason")
            assert stranger.admin().cluster().state == "waiting"
            assert states(one) == {one.name: "alive"}
        finally:
            stranger.close()
