"""All users that a broker knows: those of its files, and the clients that the cluster agrees on.

```
 password file, ACL file, token keys --reload------> find(name): in the file, else in the cluster
 records and rules of the cluster ----set_clients--> rules(identity): what the user of a connection may do
```
A user of the password file is judged by the files alone; a client of the cluster by its record and its namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flockmq.security.acl_file import load_acl
from flockmq.security.clients import Client, ClientChanges, Clients
from flockmq.security.passwords import load_users
from flockmq.security.rights import Rules, rules_of
from flockmq.security.scram import ITERATIONS_DEFAULT, ScramKeys, fake_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flockmq.cluster.model import AclRecord, ClientRecord
    from flockmq.node.ports import Identity
    from flockmq.security.acl import Acl
    from flockmq.security.jwt_auth import TokenVerifier
    from flockmq.security.passwords import User, Users
    from flockmq.security.settings import SecuritySettings


@dataclass(frozen=True, slots=True)
class _Sources:
    """All that was read from files, exchanged as one."""

    users: Users | None
    tokens: TokenVerifier | None
    acl: Acl | None


class UserDirectory:
    """See the module. Raises ConfigError when a file can't be used."""

    def __init__(self, settings: SecuritySettings, fake_secret: bytes) -> None:
        self._settings = settings
        self._sources = _load(settings)
        self._clients = Clients()
        self._fake_secret = fake_secret

    def reload(self) -> list[str]:
        """Read all files again and tell which; on ConfigError everything stays as it was."""
        self._sources = _load(self._settings)
        named = {"passwords": self._sources.users, "tokens": self._sources.tokens, "acl": self._sources.acl}
        return [name for name, source in named.items() if source is not None]

    def set_clients(self, records: Iterable[ClientRecord], acls: Iterable[AclRecord]) -> ClientChanges:
        """Take these in place of all before; what that changes for clients that no file names."""
        changes = self._clients.replace(records, acls)
        users = self._sources.users
        if users is None:
            return changes
        removed, changed, rights = (
            frozenset(name for name in names if users.get(name) is None)
            for names in (changes.removed, changes.changed, changes.rights)
        )
        return ClientChanges(removed, changed, rights, changes.namespaces)

    @property
    def tokens(self) -> TokenVerifier | None:
        """Verifies tokens; None where no key is set."""
        return self._sources.tokens

    @property
    def proving(self) -> frozenset[str]:
        """Namespaces in which clients of the cluster have passwords."""
        return self._clients.namespaces

    def find(self, name: str) -> User | None:
        """The user of this name: in the file, else in the cluster."""
        users = self._sources.users
        user = users.get(name) if users is not None else None
        if user is None:
            client = self._clients.get(name)
            user = client.user if client is not None else None
        return user

    def with_password(self, name: str) -> User | None:
        """The user of this name with a password, not SCRAM keys only."""
        user = self.find(name)
        return user if user is not None and user.password_hash else None

    def dummy_hash(self) -> str:
        """A hash that no password fits, as costly as those of users."""
        users = self._sources.users
        return users.dummy_hash if users is not None else self._clients.dummy_hash

    def has_logins(self, namespace: str) -> bool:
        """Whether any user of this namespace may log in with a password."""
        return self._sources.users is not None or self._clients.has_logins(namespace)

    def has_scram(self) -> bool:
        """Whether any user has SCRAM keys."""
        users = self._sources.users
        return (users is not None and users.has_scram) or self._clients.some_user is not None

    def scram_keys(self, name: str) -> ScramKeys:
        """The keys of a user; of an unknown one keys that no proof fits, the same each time."""
        user = self.find(name)
        users, other = self._sources.users, self._clients.some_user
        iterations = ITERATIONS_DEFAULT
        if users is not None and users.has_scram:
            iterations = users.scram_iterations
        elif other is not None and other.scram is not None:
            iterations = other.scram.iterations
        fake = fake_keys(name, self._fake_secret, iterations)
        return user.scram if user is not None and user.scram is not None else fake

    def rules(self, identity: Identity) -> Rules:
        """What a client may do, by all places that have a say in it."""
        rules = self._clients.acl(identity.namespace)
        return rules_of(identity, self._client(identity.username), rules, self._sources.acl)

    def _client(self, name: str | None) -> Client | None:
        """The record of a client of the cluster that no file has."""
        users = self._sources.users
        if name is None or (users is not None and users.get(name) is not None):
            return None
        return self._clients.get(name)


def _load(settings: SecuritySettings) -> _Sources:
    tokens = None
    if settings.has_jwt:
        from flockmq.security.jwt_auth import TokenVerifier

        tokens = TokenVerifier(settings)
    return _Sources(
        users=load_users(Path(settings.password_file)) if settings.password_file else None,
        tokens=tokens,
        acl=load_acl(Path(settings.acl_file)) if settings.acl_file else None,
    )
