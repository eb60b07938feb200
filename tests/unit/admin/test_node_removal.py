from __future__ import annotations

import pytest

from flockmq.admin.node_removal import find_node
from flockmq.cluster.commands import NodeStateChanged
from flockmq.cluster.model import DEAD
from flockmq.errors import ApiError
from state_cases import Machine


def test_a_node_is_found_by_name_or_id_and_the_dead_one_of_a_name_first() -> None:
    machine = Machine(2)
    assert find_node(machine.state, "n2@host").id == 2
    assert find_node(machine.state, "0000000000000001").id == 1
    machine.done(NodeStateChanged(2, DEAD))
    machine.node(7, name="n2@host")
    assert find_node(machine.state, "n2@host").id == 2
    machine.done(NodeStateChanged(7, DEAD))
    with pytest.raises(ApiError, match="0000000000000002, 0000000000000007"):
        find_node(machine.state, "n2@host")
    with pytest.raises(ApiError, match="no node"):
        find_node(machine.state, "n9@host")
