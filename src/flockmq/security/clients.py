"""Clients that the cluster agrees on, beside the users of files: their names, passwords and rights.

```
 cluster state --records--> Clients.replace --> ClientChanges: clients gone, to log in again, with other rights
                               |
               get(name) ------'   by the name with its namespace: "acme/bob", in the default namespace "bob"
```
A record is taken apart when its client first comes: a change among a hundred thousand of them costs a look at each and
no more. A record that can't be understood lets no client in and allows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flockmq.errors import FlockError
from flockmq.mqtt.namespaces import qualified
from flockmq.security.acl import Acl, Pattern, Principal, Selection, parse_pattern, parse_rules
from flockmq.security.filters import Filter
from flockmq.security.passwords import User, dummy_hash, parse_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flockmq.cluster.model import AclRecord, ClientRecord

EVERYTHING = Pattern((), rest=True)


@dataclass(frozen=True, slots=True)
class ClientChanges:
    """What running connections must be told. Names are with their namespace."""

    removed: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    """Have other credentials."""
    rights: frozenset[str] = frozenset()
    """May do other things than before."""
    namespaces: frozenset[str] = frozenset()
    """Have other rules for all their clients."""

    def __bool__(self) -> bool:
        return bool(self.removed or self.changed or self.rights or self.namespaces)


class Client:
    """One record, taken apart when it is needed."""

    __slots__ = ("_lists", "_user", "name", "record")

    def __init__(self, name: str, record: ClientRecord) -> None:
        self.name = name
        self.record = record
        self._user: User | None = None
        self._lists: tuple[_List, _List] | None = None

    @property
    def user(self) -> User | None:
        """What its password is checked with; None when it has none (or none that can be understood)."""
        if self._user is None and self.record.secret:
            try:
                self._user = parse_secret(self.name, self.record.secret)
            except FlockError:
                return None
        return self._user

    def select(self, principal: Principal) -> Selection:
        """What it may do."""
        if self._lists is None:
            record = self.record
            self._lists = (
                _List(record.publish, record.publish_deny),
                _List(record.subscribe, record.subscribe_deny),
            )
        publish, subscribe = self._lists
        return Selection(publish.bind(principal), subscribe.bind(principal), default=False)


class _List:
    """Topics that are denied, then those that are allowed."""

    def __init__(self, allowed: Iterable[str], denied: Iterable[str]) -> None:
        self.denied = [_pattern(text) or EVERYTHING for text in denied]
        self.allowed = [pattern for pattern in map(_pattern, allowed) if pattern is not None]

    def bind(self, principal: Principal) -> tuple[tuple[bool, Filter], ...]:
        denied = [(False, pattern.bind(principal, allow=False)) for pattern in self.denied]
        allowed = [(True, pattern.bind(principal, allow=True)) for pattern in self.allowed]
        return tuple((allow, bound) for allow, bound in (*denied, *allowed) if bound is not None)


class Clients:
    """All records of the cluster, as they are now."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._acls: dict[str, tuple[AclRecord, Acl]] = {}
        self.namespaces: frozenset[str] = frozenset()
        """Namespaces in which a client logs in with a password."""
        self.dummy_hash = ""
        """What the password of an unknown name is compared with: it costs what those of known ones do."""
        self.some_user: User | None = None
        """A client that can use SCRAM."""

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, name: str) -> Client | None:
        """The client of this name (with its namespace)."""
        return self._clients.get(name)

    def acl(self, namespace: str) -> Acl | None:
        """The rules of a namespace."""
        found = self._acls.get(namespace)
        return found[1] if found is not None else None

    def has_logins(self, namespace: str) -> bool:
        """Whether a client of this namespace logs in with a password."""
        return namespace in self.namespaces

    def replace(self, records: Iterable[ClientRecord], acls: Iterable[AclRecord]) -> ClientChanges:
        """Take these records in place of all before; what that changes for which clients."""
        old, old_acls = self._clients, self._acls
        self._clients = {}
        namespaces: set[str] = set()
        some_hash, some_scram = "", ""
        changed: set[str] = set()
        rights: set[str] = set()
        for record in records:
            name = qualified(record.namespace, record.name)
            before = old.get(name)
            if before is not None and before.record is record:
                self._clients[name] = before
            else:
                self._clients[name] = Client(name, record)
                if before is not None and before.record.secret != record.secret:
                    changed.add(name)
                if before is None or _rights(before.record) != _rights(record):
                    rights.add(name)
            if record.secret:
                namespaces.add(record.namespace)
                some_hash = some_hash or (name if record.secret.startswith("$argon2id$") else "")
                some_scram = some_scram or (name if "$scram-sha-256$" in record.secret else "")
        self.namespaces = frozenset(namespaces)
        self._acls = {record.namespace: _acl(record, old_acls.get(record.namespace)) for record in acls}
        other = {name for name in {*old_acls, *self._acls} if old_acls.get(name) is not self._acls.get(name)}
        user = self._clients[some_hash].user if some_hash else None
        self.dummy_hash = dummy_hash(user.password_hash) if user is not None else ""
        self.some_user = self._clients[some_scram].user if some_scram else None
        removed = frozenset(name for name in old if name not in self._clients)
        return ClientChanges(removed, frozenset(changed), frozenset(rights), frozenset(other))


def _rights(record: ClientRecord) -> tuple[object, ...]:
    return record.publish, record.subscribe, record.publish_deny, record.subscribe_deny, record.superuser


def _acl(record: AclRecord, known: tuple[AclRecord, Acl] | None) -> tuple[AclRecord, Acl]:
    if known is not None and known[0] == record:
        return known
    tables = [
        {"allow": rule.allow, "who": list(rule.who), "action": rule.action, "topics": list(rule.topics)}
        for rule in record.rules
    ]
    try:
        return record, Acl(parse_rules(tables), default=record.default_allow)
    except FlockError:
        return record, Acl((), default=False)


def _pattern(text: str) -> Pattern | None:
    try:
        return parse_pattern(text)
    except FlockError:
        return None
