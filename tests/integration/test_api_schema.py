"""The admin API does what its OpenAPI description says: schemathesis makes requests from it and judges the answers.

In a process of its own: its pytest plugin and the warnings of its libraries have no place among our tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flockmq.client.admin import AdminClient
from flockmq.testing.nodes import HOST, NodeCluster

EXAMPLES_MAX = 4
SEED = 1
RUN_S_MAX = 110
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
)
LEFT_OUT = {
    "joinCluster": "takes the node away from the test",
    "leaveCluster": "takes the node away from the test",
    "stageBatch": "its body is a batch of the log format, which has tests of its own",
}
# Libraries of schemathesis leave a thread behind that keeps the process for minutes.
RUN = """
import os, sys
from schemathesis.cli import schemathesis
try:
    schemathesis(sys.argv[1:])
except SystemExit as done:
    sys.stdout.flush()
    os._exit(done.code or 0)
"""
CONFIG = Path(__file__).parent / "support" / "schemathesis.toml"


def token_of(folder: Path, url: str) -> str:
    from flockmq.security import credentials

    found = credentials.load(url, {"FLOCKMQ_CREDENTIALS": str(folder / "credentials.toml")})
    assert found is not None
    return found


def operations(client: AdminClient) -> set[str]:
    return {one["operationId"] for path in client.openapi()["paths"].values() for one in path.values()}


def test_answers_are_as_described(tmp_path: Path) -> None:
    with NodeCluster(tmp_path / "nodes", 1) as nodes:
        nodes.wait_settled()
        nodes.create_topic("plant", shards=2)
        [node] = nodes.nodes
        url = f"http://{HOST}:{node.api_port}"
        assert LEFT_OUT.keys() <= operations(node.admin())
        left_out = [part for name in LEFT_OUT for part in ("--exclude-operation-id", name)]
        arguments = [
            *("--config-file", str(CONFIG), "run", f"{url}/api/v1/openapi.json"),
            *("-H", f"Authorization: Bearer {token_of(node.folder, url)}"),
            *("--seed", str(SEED), "-n", str(EXAMPLES_MAX), "--phases", "fuzzing", "--checks", ",".join(CHECKS)),
            *("--no-shrink", "--generation-database", "none", "--warnings", "off", *left_out),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FLOCKMQ_")}
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            check=False,
            cwd=tmp_path,
            env=environment | {"NO_COLOR": "1", "COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
        )
        assert done.returncode == 0, "\n".join(line[:500] for line in done.stdout.splitlines()) + done.stderr[-2_000:]
        assert node.admin().is_live()
