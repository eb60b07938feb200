"""Topic names and filters: what is valid, what matches, and the prefixes that mean something to the broker.

```
 $share/GROUP/FILTER      split_shared     a subscription whose members share the messages
 $delayed/SECONDS/TOPIC   split_delayed    a message that is published later
 $replay/START/FILTER     split_replay     a subscription to a durable topic that begins with its history
```
Names and filters are UTF-8 bytes. Control characters and Unicode non-characters are let through: the specification
allows to refuse them [MQTT-1.5.4], but clients in the field use them, and they harm nothing here.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.reasons import MALFORMED_PACKET, TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID

# Membership is asked by byte value: that is a memchr, where asking with bytes costs ten times as much.
PLUS: Final = 0x2B
HASH: Final = 0x23
QUEUE_PREFIX: Final = b"$queue/"
SHARE_PREFIX: Final = b"$share/"
DELAYED_PREFIX: Final = b"$delayed/"
REPLAY_PREFIX: Final = b"$replay/"
_DELAY_DIGITS_MAX: Final = 10


def valid_utf8(text: bytes) -> bool:
    """Tell whether it is well-formed UTF-8 [MQTT-1.5.4-1] without U+0000 [MQTT-1.5.4-2]; a BOM stays [MQTT-1.5.4-3]."""
    if 0 in text:
        return False
    if text.isascii():
        return True
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def check_topic_name(topic: bytes, levels_max: int = 0, bytes_max: int = 0) -> None:
    """Refuse what can't be published to. A limit of 0 is no limit."""
    if not topic:  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(TOPIC_NAME_INVALID, "The topic name is empty")
    if not valid_utf8(topic):  # [MQTT-3.3.2-1], [MQTT-4.7.3-2]
        raise RemoteProtocolError(MALFORMED_PACKET, "The topic name is not valid UTF-8, or holds U+0000")
    if PLUS in topic or HASH in topic:  # [MQTT-3.3.2-2]
        raise RemoteProtocolError(TOPIC_NAME_INVALID, "The topic name holds a wildcard; wildcards are for filters only")
    if bytes_max and len(topic) > bytes_max:
        raise RemoteProtocolError(TOPIC_NAME_INVALID, f"The topic name is longer than {bytes_max} bytes")
    if levels_max and topic.count(b"/") >= levels_max:
        raise RemoteProtocolError(TOPIC_NAME_INVALID, f"The topic name has more than {levels_max} levels")


def check_topic_filter(topic_filter: bytes, levels_max: int = 0, bytes_max: int = 0) -> None:
    """Refuse what can't be subscribed to (``$share/GROUP/`` is off, see ``split_shared``). A limit of 0 is no limit."""
    if not topic_filter:  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "The topic filter is empty")
    if not valid_utf8(topic_filter):  # [MQTT-3.8.3-1], [MQTT-4.7.3-2]
        raise RemoteProtocolError(MALFORMED_PACKET, "The topic filter is not valid UTF-8, or holds U+0000")
    if bytes_max and len(topic_filter) > bytes_max:
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, f"The topic filter is longer than {bytes_max} bytes")
    if levels_max and topic_filter.count(b"/") >= levels_max:
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, f"The topic filter has more than {levels_max} levels")
    if HASH in topic_filter and (  # [MQTT-4.7.1-1]
        topic_filter.find(b"#") != len(topic_filter) - 1 or (len(topic_filter) > 1 and not topic_filter.endswith(b"/#"))
    ):
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "In a topic filter # must be the last level, alone")
    if PLUS in topic_filter:
        for level in topic_filter.split(b"/"):
            if PLUS in level and len(level) > 1:  # [MQTT-4.7.1-2]
                raise RemoteProtocolError(TOPIC_FILTER_INVALID, "In a topic filter + must stand alone in its level")


def has_wildcard(topic_filter: bytes) -> bool:
    """Tell whether a (valid) filter can match more than one name."""
    return PLUS in topic_filter or HASH in topic_filter


def split_shared(topic_filter: bytes) -> tuple[bytes | None, bytes]:
    """Take ``$share/GROUP/`` off: the group, None when the subscription is not shared, and the filter itself."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None, topic_filter
    slash = topic_filter.find(b"/", 7)
    if slash < 0 or slash == len(topic_filter) - 1:  # [MQTT-4.8.2-2]
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "A shared subscription needs a filter: $share/GROUP/FILTER")
    group = topic_filter[7:slash]
    if not group:  # [MQTT-4.8.2-1]
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "A shared subscription needs a group: $share/GROUP/FILTER")
    if PLUS in group or HASH in group:  # [MQTT-4.8.2-2]
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "The group of a shared subscription must not hold + or #")
    return group, topic_filter[slash + 1 :]


def split_queue(topic_filter: bytes) -> tuple[bytes, bytes] | None:
    """Take ``$queue/`` off: the name of a consumer group and a filter, empty for none; None without that prefix."""
    if not topic_filter.startswith(QUEUE_PREFIX):
        return None
    name, slash, inner = topic_filter[len(QUEUE_PREFIX) :].partition(b"/")
    if not name or PLUS in name or HASH in name or (slash and not inner):
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "Name a consumer group: $queue/NAME or $queue/NAME/FILTER")
    return name, inner


def split_delayed(topic: bytes) -> tuple[int, bytes] | None:
    """Take ``$delayed/SECONDS/`` off: the delay and the name to publish to; None when the name has no such prefix."""
    if not topic.startswith(DELAYED_PREFIX):
        return None
    slash = topic.find(b"/", 9)
    seconds = topic[9:slash] if slash >= 0 else b""
    target = topic[slash + 1 :] if slash >= 0 else b""
    if not seconds.isdigit() or len(seconds) > _DELAY_DIGITS_MAX or not target:
        raise RemoteProtocolError(TOPIC_NAME_INVALID, "A delayed message is published to $delayed/SECONDS/TOPIC")
    return int(seconds), target


def split_replay(topic_filter: bytes) -> tuple[bytes, bytes]:
    """Take ``$replay/START/`` off: where to start, empty when the filter has no such prefix, and the filter itself."""
    if not topic_filter.startswith(REPLAY_PREFIX):
        return b"", topic_filter
    slash = topic_filter.find(b"/", 8)
    if slash <= 8 or slash == len(topic_filter) - 1:
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "A replay needs a start and a filter: $replay/START/FILTER")
    return topic_filter[8:slash], topic_filter[slash + 1 :]


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Say, the obvious way, whether a valid filter matches a valid name. The router's trie is held against this."""
    if topic.startswith(b"$") and topic_filter.startswith((b"+", b"#")):  # [MQTT-4.7.2-1]
        return False
    wanted = topic_filter.split(b"/")
    levels = topic.split(b"/")
    for index, level in enumerate(wanted):
        if level == b"#":  # also matches the parent level
            return True
        if index >= len(levels) or level not in (b"+", levels[index]):
            return False
    return len(wanted) == len(levels)
