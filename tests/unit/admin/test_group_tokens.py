"""A token of another group changes nothing, whichever group the path names."""

from __future__ import annotations

import pytest

from flockmq.admin import durable_group_members
from flockmq.admin import durable_groups_model as model
from flockmq.admin.durable_model import InNamespace
from flockmq.cluster.commands import CreateTopic
from flockmq.cluster.commands_groups import CreateGroup
from flockmq.cluster.groups import Binding
from flockmq.durable.groups.tokens import Token, token_text
from flockmq.errors import Conflict
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import MemoryDurable


async def test_a_token_of_another_group() -> None:
    durable = MemoryDurable()
    durable.apply(CreateTopic("plant"))
    durable.apply(CreateGroup("one", (Binding("plant"),)))
    durable.apply(CreateGroup("two", (Binding("plant"),)))
    other = durable.state().consumer_group("default", "two").id
    body = model.NackRequest(tokens=[token_text(Token(1, other, 1, 1, 0))])
    with pytest.raises(Conflict, match="not one of the group one"):
        await durable_group_members.nack_records(
            make_desk(BrokerHarness(), durable=durable), call(InNamespace(), body, group="one")
        )
    assert not durable.groups.nacks
