"""A cluster whose API speaks HTTPS only: Spark reads and writes with a token and an authority, and not without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from flockmq.admin.durable_model import TopicRequest
from flockmq.client.admin import AdminClient
from flockmq.errors import ApiError, FlockError
from flockmq.security import credentials
from flockmq.spark.servers import Servers
from flockmq.spark.sink import FlockStreamWriter
from flockmq.testing.nodes import HOST, NodeCluster
from integration.support.certificates import Authority
from spark.written import payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES: Final = 2


class SecureCluster:
    """Two nodes; whoever asks them must trust their authority and show the founder's token."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        cert_file, key_file = self.authority.issue(HOST)
        options = [f"--set=tls.cert_file={cert_file}", f"--set=tls.key_file={key_file}", "--set=admin.tls=true"]
        options += [f"--set=listeners.{kind}.default.enabled=false" for kind in ("tls", "wss")]
        self.nodes = NodeCluster(folder, NODES, options)
        self.urls = [f"https://{HOST}:{node.api_port}" for node in self.nodes.nodes]
        self.token = ""

    def start(self) -> None:
        for node in self.nodes.nodes:
            node.start()
        for node in self.nodes.nodes:
            node.wait_ready()
        file = str(self.nodes.nodes[0].folder / "credentials.toml")
        self.token = credentials.load(self.urls[0], {"FLOCKMQ_CREDENTIALS": file}) or ""
        self.nodes.wait(self._is_settled, "all nodes to be in cluster state")

    def admin(self, number: int) -> AdminClient:
        context = Servers.from_options(self.options())._ssl_context()
        return AdminClient(self.urls[number], self.token, ssl_context=context)

    def options(self) -> dict[str, str]:
        return {"server": self.urls[0], "token": self.token, "ca": str(self.authority.file), "retries": "1"}

    def _is_settled(self) -> bool:
        try:
            found = [self.admin(number).dump() for number in range(NODES)]
        except ApiError:
            return False
        apis = [sorted(node["api"] for node in one["nodes"] if node["state"] == "ALIVE") for one in found]
        return all(one == sorted(self.urls) for one in apis)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    cluster = SecureCluster(tmp_path_factory.mktemp("secure"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.nodes.close()


def test_written_and_read_over_tls(secure: SecureCluster, spark: SparkSession) -> None:
    secure.admin(0).create_topic(TopicRequest(name="safe", shards=4))
    rows = spark.range(0, 200, 1, 2).selectExpr("format_string('%06d', id) AS value", "concat('safe/', id) AS topic")
    rows.write.format("flockmq").options(**secure.options()).mode("append").save()
    expected = [b"%06d" % one for one in range(200)]
    with Servers.from_options(secure.options()).new_client() as client:
        assert payloads(client, "safe") == expected
        assert {one.api for shard in client.metadata("safe") for one in shard.replicas} == set(secure.urls)
    read = spark.read.format("flockmq").options(**secure.options()).option("subscribe", "safe").load()
    assert sorted(bytes(row.payload) for row in read.select("payload").collect()) == expected


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"ca": ""}, "is not trusted"),
        ({"token": "wrong"}, "token"),
        ({"ca": "/nowhere/ca.pem"}, "TLS files of options ca, cert and key"),
        ({"server": "http"}, r"No broker answers|does not speak HTTP"),
    ],
)
def test_strangers(secure: SecureCluster, changed: dict[str, str], sentence: str) -> None:
    if "server" in changed:
        changed = {"server": secure.urls[0].replace("https", "http")}
    options = {**secure.options(), "retries": "0", "topic": "safe/x", **changed}
    writer = FlockStreamWriter(options, StructType([StructField("value", StringType())]), False)
    rows = [pa.RecordBatch.from_arrays([pa.array(["x"])], names=["value"])]
    with pytest.raises(FlockError, match=sentence):
        writer._sink.stage("query", 0, 0, iter(rows))
