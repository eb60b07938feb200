"""Consumer groups as the admin API asks for them: the member side of this node, its promises as something to await."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from flockmq.admin.group_port import GroupFigures
from flockmq.drivers.clock import now_ms
from flockmq.server.durable_asking import ANSWER_S_MAX, Asking

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.groups.port import Fetched, GroupMembers, PartitionStatus
    from flockmq.server.cluster import ClusterService

FIGURES_MS: Final = 5_000
"""How long figures for metrics are good for."""


class GroupView(Asking):
    """See the module; a ``GroupPort``. The caller of the API has an admin token, so it may read all topic names."""

    def __init__(self, service: ClusterService) -> None:
        super().__init__(service)
        self._figures: list[GroupFigures] = []
        self._figures_at = -FIGURES_MS

    def _members(self) -> GroupMembers:
        return self._working().group_room.port

    async def fetch(self, group_id: int, member: str, count_max: int, wait_ms: int) -> list[Fetched]:
        """See ``GroupPort``."""
        members = self._members()
        is_gone = False

        def ask(answer: Callable[[list[Fetched]], None]) -> None:
            def take(found: list[Fetched]) -> None:
                if is_gone and found:
                    # The caller hung up while it waited: other members get the records at once.
                    members.nack([one.token for one in found], 0, "The member went away.")
                else:
                    answer(found)

            members.fetch(group_id, member, count_max, wait_ms).then(take)

        try:
            return await self._reply(ask, within_s=wait_ms / 1_000 + ANSWER_S_MAX)
        except BaseException:
            is_gone = True
            raise

    async def ack(self, tokens: Sequence[str]) -> list[str]:
        """See ``GroupPort``."""
        return await self._await(self._members().ack(list(tokens)))

    async def nack(self, tokens: Sequence[str], delay_ms: int | None, reason: str) -> list[str]:
        """See ``GroupPort``."""
        return await self._await(self._members().nack(list(tokens), delay_ms, reason))

    async def bury(self, tokens: Sequence[str], reason: str) -> list[str]:
        """See ``GroupPort``."""
        return await self._await(self._members().bury(list(tokens), reason))

    async def extend(self, tokens: Sequence[str], ms: int) -> list[str]:
        """See ``GroupPort``."""
        return await self._await(self._members().extend(list(tokens), ms))

    async def begin(self, group_id: int) -> list[str]:
        """See ``GroupPort``."""
        return await self._await(self._members().begin(group_id))

    async def status(self, group_id: int) -> list[PartitionStatus]:
        """See ``GroupPort``."""
        return await self._await(self._members().status(group_id))

    def figures(self, groups_max: int) -> list[GroupFigures]:
        """See ``GroupPort``. What was read is good for a while: the oldest records may have to be read from files."""
        now = now_ms()
        if now - self._figures_at >= FIGURES_MS:
            self._figures_at = now
            groups = list(self._node.meta.state.groups.values())
            self._figures = [one for group in groups[:groups_max] if (one := self._figures_of(group)) is not None]
        return self._figures

    def _figures_of(self, group: ConsumerGroup) -> GroupFigures | None:
        status = self._node.group_room.port.here(group.id)
        if not status:
            return None
        return GroupFigures(
            group.namespace,
            group.name,
            sum(one.lag for one in status),
            sum(one.lag_bytes for one in status),
            min([one.oldest_ms for one in status if one.oldest_ms], default=0),
            sum(one.in_flight for one in status),
            sum(one.dead for one in status),
            sum(one.redelivered for one in status),
        )

    async def peek(self, group_id: int, count: int) -> list[Fetched]:
        """See ``GroupPort``."""
        return await self._await(self._members().peek(group_id, count))
