"""Names of a namespace, inside the broker and as its clients know them.

```
 client of the namespace acme          inside: routes, sessions, retained messages, logs, other nodes
   topic   plant/1         <------>    $ns/acme/plant/1
   id      sensor          <------>    $ns/acme/sensor
```
The default namespace has no prefix, so that a broker without tenants works on the very bytes its clients send. The
prefix is put before a name where it comes in (``node/namespaces.py``) and left out where packets for clients are built
(``run.py``); nothing in between knows about namespaces.
"""

from __future__ import annotations

from typing import Final

DEFAULT_NAMESPACE: Final = "default"
DOLLAR: Final = 0x24
INSIDE: Final = b"$ns/"
INSIDE_ID: Final = "$ns/"


def topic_prefix(namespace: str) -> bytes:
    """What stands before topic names and filters of a namespace inside the broker."""
    return b"" if namespace == DEFAULT_NAMESPACE else b"$ns/" + namespace.encode() + b"/"


def outside_topic(topic: bytes) -> bytes:
    """A topic name as the clients of its namespace know it."""
    if not topic.startswith(INSIDE):
        return topic
    return topic[topic.find(b"/", 4) + 1 :]


def split_topic(topic: bytes) -> tuple[str, bytes]:
    """The namespace of a name or filter from inside, and what its clients call it. ``$share/GROUP/`` must be off."""
    if not topic.startswith(INSIDE):
        return DEFAULT_NAMESPACE, topic
    slash = topic.find(b"/", 4)
    return topic[4:slash].decode("utf-8", "replace"), topic[slash + 1 :]


def split_filter(full_filter: bytes) -> tuple[str, bytes]:
    """The same for a subscription's whole filter, in which ``$share/GROUP/`` stays."""
    if not full_filter.startswith(b"$share/"):
        return split_topic(full_filter)
    slash = full_filter.find(b"/", 7) + 1
    namespace, topic_filter = split_topic(full_filter[slash:])
    return namespace, full_filter[:slash] + topic_filter


def inside_client_id(namespace: str, client_id: str) -> str:
    """A client id as sessions are kept by it."""
    return client_id if namespace == DEFAULT_NAMESPACE else f"$ns/{namespace}/{client_id}"


def split_client_id(client_id: str) -> tuple[str, str]:
    """The namespace of a session's client id, and the id that its client knows."""
    if not client_id.startswith(INSIDE_ID):
        return DEFAULT_NAMESPACE, client_id
    namespace, _, own = client_id[4:].partition("/")
    return namespace, own


def qualified(namespace: str, name: str) -> str:
    """A user as all namespaces together know it: ``NAMESPACE/NAME``, in the default namespace the name alone."""
    return name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"


def unqualified(namespace: str, name: str) -> str:
    """The user's name within its namespace."""
    return name if namespace == DEFAULT_NAMESPACE else name.removeprefix(f"{namespace}/")
