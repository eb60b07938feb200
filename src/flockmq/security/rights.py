"""What a client that is let in may do, out of all places that have a say in it.

```
 its token has rights of its own ------------------------------> those alone
 a client of the cluster: its record --------------------------> its lists, and the rules of its namespace if it has any
 other clients, in the default namespace: the ACL file --------> else the namespace's rules
               in another namespace: the namespace's rules ----> else the ACL file
 none of these ------------------------------------------------> everything but $SYS
```
Names are judged as the clients of a namespace know them. The ACL file knows users by their whole name
(``user:acme/bob``), the rules of a namespace by their name in it (``user:bob``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, INSIDE, topic_prefix, unqualified
from flockmq.security.acl import Acl, Principal, Selection, is_sys

if TYPE_CHECKING:
    from flockmq.node.ports import Identity
    from flockmq.security.acl import Action
    from flockmq.security.clients import Client
    from flockmq.security.filters import Filter


@dataclass(frozen=True, slots=True)
class Rules:
    """The rights of a client: all of these must allow it. With none of them everything but ``$SYS`` is allowed."""

    selections: tuple[Selection, ...] = ()
    is_superuser: bool = False

    def decide(self, action: Action, wanted: Filter) -> bool:
        """Whether all names of ``wanted`` are allowed."""
        if self.is_superuser:
            return True
        if not self.selections:
            return not is_sys(wanted)
        return all(selection.decide(action, wanted) for selection in self.selections)


NO_RULES: Final = Rules()


class Grant:
    """The rights that a connection brought with it, and its rules once they were looked up."""

    __slots__ = ("own", "rules", "version")

    def __init__(self, own: Selection | None) -> None:
        self.own = own
        """Rights out of a token, in place of all others."""
        self.rules: Rules | None = None
        self.version = -1


def rules_of(identity: Identity, client: Client | None, rules: Acl | None, acl: Acl | None) -> Rules:
    """What an identity may do: by its record, by the rules of its namespace, by the ACL file."""
    if client is None and rules is None and acl is None:
        return NO_RULES
    namespace, peer = identity.namespace, identity.peer
    name = identity.username
    own_name = name and unqualified(namespace, name)
    principal = Principal(identity.client_id, own_name, peer)
    if client is not None:
        own = client.select(principal)
        return Rules((own, rules.select(principal)) if rules is not None else (own,), client.record.superuser)
    if rules is not None and (acl is None or namespace != DEFAULT_NAMESPACE):
        return Rules((rules.select(principal),))
    return Rules((acl.select(Principal(identity.client_id, name, peer, own_name)),)) if acl is not None else NO_RULES


def own_name(identity: Identity, topic: bytes) -> bytes | None:
    """A name or filter as clients of its namespace know it; None when that is not the identity's namespace."""
    if not topic.startswith(INSIDE):
        return topic
    prefix = topic_prefix(identity.namespace)
    return topic.removeprefix(prefix) if prefix and topic.startswith(prefix) else None
