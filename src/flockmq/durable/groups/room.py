"""All parts of this room, put together: the leader's side, the members' side, and the port for callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.groups.asking import Asking
from flockmq.durable.groups.dispatching import Dispatching
from flockmq.durable.groups.fetching import Fetching
from flockmq.durable.groups.letters import Letters
from flockmq.durable.groups.members import Members
from flockmq.durable.groups.offices import Offices
from flockmq.durable.groups.opening import Opening
from flockmq.durable.groups.scanning import Scanner
from flockmq.durable.groups.session_members import SessionMembers
from flockmq.durable.groups.settling import Settling
from flockmq.durable.state.group_directory import GroupDirectory

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.port import GroupMembers
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.meta import Meta
    from flockmq.peering.node import Base


class GroupPort:
    """Consumer groups for callers on this node; see ``port``."""

    def __init__(self, fetching: Fetching, asking: Asking) -> None:
        self.fetch = fetching.fetch
        self.ack = fetching.ack
        self.nack = fetching.nack
        self.bury = fetching.bury
        self.extend = fetching.extend
        self.begin = asking.begin
        self.status = asking.status
        self.here = asking.here
        self.peek = asking.peek


class GroupRoom:
    """Consumer groups of one node."""

    def __init__(
        self,
        base: Base,
        calls: PartitionCalls,
        meta: Meta,
        control: Control,
        machines: Machines,
        logs: Logs,
        directory: GroupDirectory,
    ) -> None:
        local = logs.local
        self.directory = directory
        scanner = Scanner(local)
        self.offices = Offices(calls, machines, directory, meta, base.swim, scanner)
        self.opening = Opening(calls, machines, control, local, directory, self._opened)
        settling = Settling(calls, control, local, directory, self.offices, scanner)
        self.dispatching = Dispatching(calls, control, local, directory, self.offices, self.opening, settling, scanner)
        self.letters = Letters(calls, machines, control, logs, directory, base.broker.node.events)
        self.members = Members(base.boot, calls, logs, directory)
        self.sessions = SessionMembers(base.broker.node, directory, self.members)
        fetching = Fetching(base.boot, calls, directory, self.members)
        asking = Asking(calls, machines, logs, directory, self.offices, self.opening, scanner)
        self.port: GroupMembers = GroupPort(fetching, asking)

    def _opened(self, partition: int, group_id: int) -> None:
        """The log has begun a group: members may be waiting for that."""
        office = self.offices.open.get(partition)
        if office is not None:
            self.offices.mark(office, group_id)
