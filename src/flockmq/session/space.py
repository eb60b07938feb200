"""A namespace as a node sees it: its prefix, what its clients may use, and what they use now.

```
 CONNECT user "acme/bob" --locate--> acme, "acme/bob"      the namespace is known: it was named
                "bob"    --locate--> the listener's namespace, else default
                "a/b"    --locate--> as "bob"               no namespace is called "a": a name may hold a slash
```
Limits are for all nodes together: what the others use is told from time to time (``tell_elsewhere``), so that they hold
exactly on one node and within that delay on several.
"""

from __future__ import annotations

from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, INSIDE_ID, qualified, topic_prefix


class Space:
    """One namespace. A limit of 0 is no limit."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.prefix = topic_prefix(name)
        """What stands before its topics; nothing in the default namespace."""
        self.connections_max = 0
        self.sessions_max = 0
        self.retained_max = 0
        self.messages_per_s_max = 0
        self.stored_bytes_max = 0
        self.connections = 0
        self.sessions = 0
        self.stored_bytes = 0
        """Of durable topics, in partitions that this node leads; counted only where they are limited."""
        self.refused = 0
        """Messages beyond its rate."""
        self.connections_elsewhere = 0
        self.sessions_elsewhere = 0
        self.stored_bytes_elsewhere = 0
        self.nodes = 1
        """Nodes that have clients of it: each takes its share of the message rate."""
        self.tokens = 0
        self.tokens_at = 0
        self.is_full_rate = True
        """Whether the bucket has not been used since the rate was set."""
        self.captured_bytes_per_s_max = 0
        self.capture_tokens = 0
        """In thousandths of a byte; below 0 after a large message."""
        self.capture_tokens_at = 0

    def limit(self, connections: int, sessions: int, retained: int, messages_per_s: int, stored_bytes: int = 0) -> None:
        """Set what it may use, all nodes together."""
        self.connections_max = connections
        self.sessions_max = sessions
        self.retained_max = retained
        self.stored_bytes_max = stored_bytes
        if messages_per_s != self.messages_per_s_max:
            self.messages_per_s_max = messages_per_s
            self.is_full_rate = True

    def limit_capture(self, bytes_per_s: int) -> None:
        """Set how many bytes a second are stored for persistent sessions, all nodes together."""
        if bytes_per_s != self.captured_bytes_per_s_max:
            self.captured_bytes_per_s_max = bytes_per_s
            self.capture_tokens = bytes_per_s * 1000

    def is_limited(self) -> bool:
        """Whether anything is limited."""
        return (
            self.connections_max
            or self.sessions_max
            or self.retained_max
            or self.messages_per_s_max
            or self.stored_bytes_max
            or self.captured_bytes_per_s_max
        ) != 0

    def tell_elsewhere(self, connections: int, sessions: int, nodes: int, stored_bytes: int = 0) -> None:
        """What other nodes have of it; ``nodes`` have clients of it, this one not counted."""
        self.connections_elsewhere = connections
        self.sessions_elsewhere = sessions
        self.stored_bytes_elsewhere = stored_bytes
        self.nodes = nodes + 1

    def may_connect(self) -> bool:
        """Whether there is room for one connection more."""
        return not self.connections_max or self.connections + self.connections_elsewhere < self.connections_max

    def may_begin_session(self) -> bool:
        """Whether there is room for one session more."""
        return not self.sessions_max or self.sessions + self.sessions_elsewhere < self.sessions_max

    def is_full(self) -> bool:
        """Whether its durable topics store as much as they may."""
        return 0 < self.stored_bytes_max <= self.stored_bytes + self.stored_bytes_elsewhere

    def spend(self, count: int, now: int) -> int:
        """Take up to ``count`` messages out of a bucket of one second's worth: how many there were."""
        per_second = max(self.messages_per_s_max // self.nodes, 1)
        full = per_second * 1000  # in thousandths of a message
        tokens = self.tokens + (now - self.tokens_at) * per_second
        if tokens > full or self.is_full_rate:
            tokens = full
            self.is_full_rate = False
        self.tokens_at = now
        granted = min(count, tokens // 1000)
        self.tokens = tokens - granted * 1000
        self.refused += count - granted
        return granted

    def spend_capture(self, size: int, now: int) -> bool:
        """Take bytes out of a bucket of one second's worth, the last ones on credit; False: it is empty."""
        per_second = max(self.captured_bytes_per_s_max // self.nodes, 1)
        gained = max(now - self.capture_tokens_at, 0) * per_second
        self.capture_tokens = min(self.capture_tokens + gained, per_second * 1000)
        self.capture_tokens_at = now
        if self.capture_tokens <= 0:
            return False
        self.capture_tokens -= size * 1000
        return True


class Spaces:
    """All namespaces that a node knows, but for the default one as long as nothing in it is limited."""

    def __init__(self) -> None:
        self.is_known = True
        """False for the moment in which a node that was started again does not know yet what the cluster agreed on."""
        self.by_name: dict[str, Space] = {}
        self.default: Space | None = None
        self.full: set[bytes] = set()
        """Namespaces whose durable topics take nothing now, as of the last second: usually none."""
        self.listeners: dict[str, str] = {}
        """Namespace of clients that come through a listener and name none, where that is not the default one."""

    def set_known(self, is_known: bool) -> None:
        """The namespaces that the cluster agreed on are known here, or are still to come."""
        self.is_known = is_known

    def find(self, name: str) -> Space | None:
        """The namespace of this name; None for the default one without limits, and for one that does not exist."""
        return self.default if name == DEFAULT_NAMESPACE else self.by_name.get(name)

    def exists(self, name: str) -> bool:
        """Whether there is such a namespace."""
        return name == DEFAULT_NAMESPACE or name in self.by_name

    def all(self) -> list[Space]:
        """Every namespace but a default one without limits."""
        found = list(self.by_name.values())
        if self.default is not None:
            found.append(self.default)
        return found

    def of_listener(self, listener: str) -> str:
        """The namespace of a client that names none."""
        return self.listeners.get(listener, DEFAULT_NAMESPACE)

    def locate(self, username: str, listener: str) -> tuple[str, str]:
        """The namespace that a user name means on a listener, and the name with its namespace."""
        name, slash, own = username.partition("/")
        if slash and own:
            if name == DEFAULT_NAMESPACE and self.by_name:
                return DEFAULT_NAMESPACE, own
            if name in self.by_name:
                return name, username
        namespace = self.of_listener(listener)
        return namespace, qualified(namespace, username)

    # --- counting ---

    def session_began(self, client_id: str) -> None:
        """A session is here now: made, or come from another node."""
        self.count_session(client_id, 1)

    def session_ended(self, client_id: str) -> None:
        """A session is no longer here."""
        self.count_session(client_id, -1)

    def count_session(self, client_id: str, change: int) -> None:
        """Count a session of this node, or no longer."""
        if client_id.startswith(INSIDE_ID):
            space = self.by_name.get(client_id[4 : client_id.find("/", 4)])
        else:
            space = self.default
        if space is not None:
            space.sessions += change
