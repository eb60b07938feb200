"""Real nodes that are all started at the same moment and find each other: one cluster comes of it, each way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flockmq.testing.nodes import HOST, NodeCluster
from flockmq.testing.ports import free_port
from integration.support.k8s import Api, endpoint_slice, pod
from integration.support.programs import dnsmasq, etcd

COUNT = 3


def together(folder: Path, options: Sequence[str], count: int = COUNT) -> NodeCluster:
    """Nodes of which none is the first: all have the same options."""
    cluster = NodeCluster(folder, count)
    for node in cluster.nodes:
        common = [f"--host={HOST}", "--set=cluster.profile=local", f"--set=cluster.bootstrap_expect={count}"]
        node.options = [*common, *(f"--set={option}" for option in options)]
    return cluster


def cluster_ids(cluster: NodeCluster) -> list[str]:
    return [(node.folder / "data" / "cluster_id").read_text() for node in cluster.nodes]


def check(cluster: NodeCluster) -> None:
    with cluster:
        assert len(set(cluster_ids(cluster))) == 1


def test_static(tmp_path: Path) -> None:
    cluster = together(tmp_path, ["cluster.discovery=static"])
    points = ",".join(f"{HOST}:{node.port}" for node in cluster.nodes)
    for node in cluster.nodes:
        node.options.append(f"--set=cluster.contact_points={points}")
    check(cluster)


def test_mcast(tmp_path: Path) -> None:
    settings = [f"port={free_port()}", "interfaces=lo", "groups=239.255.160.9", "interval_ms=100"]
    check(together(tmp_path, ["cluster.discovery=mcast", *(f"discovery.mcast.{one}" for one in settings)]))


def test_dns(tmp_path: Path) -> None:
    cluster = together(tmp_path, [])
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{HOST} node.test\n")
    records = [f"--srv-host=_flockmq._tcp.test,node.test,{node.port}" for node in cluster.nodes]
    with dnsmasq(tmp_path, hosts, *records) as server:
        for node in cluster.nodes:
            settings = {"name": "_flockmq._tcp.test", "record": "SRV", "nameservers": f"{HOST}:{server.port}"}
            node.options += [f"--set=discovery.dns.{key}={value}" for key, value in settings.items()]
            node.options.append("--set=cluster.discovery=dns")
        check(cluster)


def test_k8s(tmp_path: Path) -> None:
    api = Api(tmp_path)
    with api.serving_in_a_thread():
        settings = {"service": "broker", "api_url": api.url, "account_dir": str(api.account)}
        options = ["cluster.discovery=k8s", *(f"discovery.k8s.{key}={value}" for key, value in settings.items())]
        cluster = together(tmp_path, options)
        api.slices = [
            endpoint_slice("IPv4", pod(node.name, HOST, ready=False), port=node.port) for node in cluster.nodes
        ]
        check(cluster)


def test_etcd_and_no_second_cluster_where_one_was(tmp_path: Path) -> None:
    with etcd(tmp_path) as server:
        options = [
            "cluster.discovery=etcd",
            f"discovery.etcd.endpoints=http://{HOST}:{server.port}",
            "discovery.etcd.ttl_s=2",
        ]
        first = together(tmp_path / "first", options, 2)
        fresh = together(tmp_path / "fresh", options, 2)
        for node in fresh.nodes:
            node.name = f"fresh-{node.name}"
            node._environment["FLOCKMQ_COOKIE"] = first.cookie
        with first:
            formed = cluster_ids(first)
            assert formed[0] == formed[1]
        for node in first.nodes:  # the cluster is gone, for now; its nodes are not even listed any more
            node.close()
        try:
            for node in fresh.nodes:
                node.start()
            sentence = f"Cluster {formed[0].strip()} was formed here before"
            fresh.wait(
                lambda: any(sentence in node.log_file.read_text() for node in fresh.nodes), "the claim to be seen"
            )
            assert not any((node.folder / "data" / "cluster_id").exists() for node in fresh.nodes)
            first.nodes[0].start()
            fresh.nodes.append(first.nodes[0])
            for node in fresh.nodes:
                node.wait_ready()
            fresh.wait(fresh.sees_all, "the new nodes to join the old one")
            assert set(cluster_ids(fresh)) == {formed[0]}
        finally:
            first.close()
            fresh.close()
