"""Two nodes with one name: the second is refused and ends, whether it is new or was a member before."""

from __future__ import annotations

from pathlib import Path

from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess
from flockmq.testing.ports import free_ports


def another(folder: Path, name: str, cluster: NodeCluster) -> NodeProcess:
    """One more node, with a folder and ports of its own."""
    mqtt, api, port = free_ports(3)
    options = [f"--host={HOST}", "--set=cluster.profile=local", f"--join={HOST}:{cluster.nodes[0].port}"]
    return NodeProcess(folder, name, (mqtt, api, port), options, {"FLOCKMQ_COOKIE": cluster.cookie})


def in_state(node: NodeProcess) -> list[tuple[str, str]]:
    return sorted((one["name"], one["state"]) for one in node.admin().dump()["nodes"])


def test_a_second_node_with_the_name_of_one_that_is_alive_ends_and_is_not_counted_in(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 2) as cluster:
        one, two = cluster.nodes
        cluster.wait_settled()
        second = another(tmp_path / "second", two.name, cluster)
        try:
            second.start()
            cluster.wait(lambda: not second.is_running, "the second node to end")
            assert second.process is not None
            assert second.process.returncode == 1
            assert f"Another node that is alive is called {two.name}" in second.log_tail()
            assert "Traceback" not in second.log_file.read_text("utf-8")
            assert not second.is_serving
        finally:
            second.close()
        assert len(one.admin().cluster().members) == 2
        assert in_state(one) == [(one.name, "ALIVE"), (two.name, "ALIVE")]
        assert any("node_refused" in node.log_file.read_text("utf-8") for node in cluster.nodes)


def test_who_comes_back_after_its_name_went_to_another_node_ends(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        one, _, three = cluster.nodes
        cluster.wait_settled()
        three.kill()
        successor = another(tmp_path / "successor", three.name, cluster)
        try:
            successor.start()
            successor.wait_ready()
            alive = [(node.name, "ALIVE") for node in cluster.nodes]
            cluster.wait(lambda: in_state(one) == alive, "the name to have gone over")
            three.start()
            cluster.wait(lambda: not three.is_running, "the former node to end")
            assert three.process is not None
            assert three.process.returncode == 1
            assert f"Another node that is alive is called {three.name}" in three.log_tail()
            assert successor.is_running
            assert in_state(one) == alive
        finally:
            successor.close()
