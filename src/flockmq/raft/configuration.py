"""The members of a group: voters, learners, and while voters change, the voters before as well (joint consensus).

```
 voters {1,2,3}  --change--> voters {2,3,4}, outgoing {1,2,3}  --committed--> voters {2,3,4}
                              every decision needs a majority of both
```
A configuration counts from the moment it is in the log, committed or not (Raft paper, section 6).
"""

from __future__ import annotations

import struct

_IDS = struct.Struct("<HHH")


class Configuration:
    """An immutable set of members."""

    def __init__(self, voters: tuple[int, ...], outgoing: tuple[int, ...] = (), learners: tuple[int, ...] = ()) -> None:
        self.voters = tuple(sorted(set(voters)))
        self.outgoing = tuple(sorted(set(outgoing)))
        self.learners = tuple(sorted(set(learners) - set(voters)))
        """Replicas without a vote. One that is outgoing as well still votes, until the change is over."""

    @property
    def is_joint(self) -> bool:
        """Whether a change of voters is under way."""
        return bool(self.outgoing)

    def settled(self) -> Configuration:
        """What it becomes when the change of voters is over."""
        return Configuration(self.voters, (), self.learners)

    def members(self) -> list[int]:
        """All members, each once."""
        return sorted({*self.voters, *self.outgoing, *self.learners})

    def is_voter(self, node: int) -> bool:
        """Whether a node's vote counts."""
        return node in self.voters or node in self.outgoing

    def has_quorum(self, nodes: set[int]) -> bool:
        """Whether these nodes can decide."""
        return _majority(self.voters, nodes) and (not self.outgoing or _majority(self.outgoing, nodes))

    def agreed(self, values: dict[int, int]) -> int:
        """The largest value that a quorum has reached; a node that is missing has reached 0."""
        least = _median(self.voters, values)
        if self.outgoing:
            least = min(least, _median(self.outgoing, values))
        return least

    def encode(self) -> bytes:
        """As it stands in a CONFIG entry."""
        ids = (*self.voters, *self.outgoing, *self.learners)
        head = _IDS.pack(len(self.voters), len(self.outgoing), len(self.learners))
        return head + struct.pack(f"<{len(ids)}Q", *ids)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Configuration)
            and self.voters == other.voters
            and self.outgoing == other.outgoing
            and self.learners == other.learners
        )

    def __hash__(self) -> int:
        return hash((self.voters, self.outgoing, self.learners))

    def __repr__(self) -> str:
        parts = [f"voters={list(self.voters)}"]
        if self.outgoing:
            parts.append(f"outgoing={list(self.outgoing)}")
        if self.learners:
            parts.append(f"learners={list(self.learners)}")
        return f"Configuration({', '.join(parts)})"


def decode_configuration(body: bytes) -> Configuration:
    """Read ``Configuration.encode``; ValueError when it is not that."""
    if len(body) < _IDS.size:
        raise ValueError("A configuration is cut off")
    voters, outgoing, learners = _IDS.unpack_from(body)
    count = voters + outgoing + learners
    if len(body) != _IDS.size + 8 * count:
        raise ValueError("A configuration has the wrong length")
    ids = struct.unpack_from(f"<{count}Q", body, _IDS.size)
    return Configuration(ids[:voters], ids[voters : voters + outgoing], ids[voters + outgoing :])


def _majority(voters: tuple[int, ...], nodes: set[int]) -> bool:
    return sum(1 for voter in voters if voter in nodes) * 2 > len(voters)


def _median(voters: tuple[int, ...], values: dict[int, int]) -> int:
    if len(voters) == 3:  # what nearly every group has
        first = values.get(voters[0], 0)
        second = values.get(voters[1], 0)
        third = values.get(voters[2], 0)
        return max(min(first, second), min(max(first, second), third))
    if not voters:
        return 0
    reached = sorted([values.get(voter, 0) for voter in voters], reverse=True)
    return reached[len(voters) // 2]
