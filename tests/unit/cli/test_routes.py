from __future__ import annotations

import pytest

from flockmq.admin.cluster_model import Route
from flockmq.cli.routes import print_routes

ROUTES = [
    Route(filter="t/+/x", share_group=None, nodes=["n1", "n3"]),
    Route(filter="t/#", share_group=None, nodes=["n2"]),
    Route(filter="t/a", share_group="g", nodes=["n2"]),
    Route(filter="t/\x1b[2J", share_group=None, nodes=["n2"]),
]
DRAWN = r"""
--------------------------
|           t            |
|          / \           |
|         +   #          |
|         |              |
|         x              |
--------------------------
| t/+/x        -> n1, n3 |
| t/#          -> n2     |
| $share/g/t/a -> n2     |
| t/\x1b[2J    -> n2     |
--------------------------
"""


def test_the_strokes_of_the_tree_are_drawn_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_routes(ROUTES, tree=True)
    assert capsys.readouterr().out == DRAWN.lstrip("\n")
    print_routes(ROUTES, tree=False)
    assert capsys.readouterr().out.splitlines()[0] == "t/+/x        -> n1, n3"
