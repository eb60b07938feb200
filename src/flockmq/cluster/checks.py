"""What names, filters and numbers in commands may be. All that a client could grow has a bound here."""

from __future__ import annotations

import re
from typing import Final

from flockmq.cluster.commands import INVALID, RefusedError
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.topics import check_topic_filter

NODES_MAX: Final = 1_000
NAMESPACES_MAX: Final = 10_000
CLIENTS_MAX: Final = 200_000
TOPICS_MAX: Final = 50_000
CURSORS_MAX: Final = 50_000
SETTINGS_MAX: Final = 1_000
BANS_MAX: Final = 10_000
BAN_VALUE_CHARACTERS_MAX: Final = 1_024
BAN_REASON_CHARACTERS_MAX: Final = 256
SHARDS_MAX: Final = 1_024
"""Of one topic."""
REPLICAS_MAX: Final = 7
FILTERS_MAX: Final = 64
"""Of one topic, or of one list of a client."""
FILTER_BYTES_MAX: Final = 1_024
FILTER_LEVELS_MAX: Final = 64
RULES_MAX: Final = 1_000
RULE_ENTRIES_MAX: Final = 1_000
"""Names or topics of one rule."""
RULES_ENTRIES_MAX: Final = 10_000
"""Names and topics of all rules of a namespace: every node takes them apart at once when they change."""
RULES_BYTES_MAX: Final = 262_144
"""Of all these together."""
SECRET_CHARACTERS_MAX: Final = 1_024
TEXT_CHARACTERS_MAX: Final = 255
SETTING_CHARACTERS_MAX: Final = 4_096
NUMBER_MAX: Final = 2**62
"""Limits, ages and sizes; leaves room to add."""
ID_MAX: Final = 2**64 - 1

NAME_PATTERN: Final = "[A-Za-z0-9_][A-Za-z0-9_.@:~=-]{0,127}"
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_SECRETS: Final = ("$argon2id$", "$scram-sha-256$")


def check_name(what: str, name: str) -> None:
    """Refuse a name that would need escaping somewhere: in a topic, a URL, a file."""
    if _NAME.fullmatch(name) is None:
        raise RefusedError(
            INVALID,
            f"{name[:40]!r} can't be the name of a {what}: use 1 to 128 letters, digits or any of _ . @ : ~ = -, "
            "beginning with a letter, a digit or _.",
        )


def check_text(what: str, text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> None:
    """Refuse a text that is too long or would break a line."""
    if len(text) > characters_max or not (text.isprintable() or not text):
        raise RefusedError(
            INVALID, f"The {what} must be at most {characters_max} printable characters; shorten or clean it."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(INVALID, f"The {what} holds half a character; write it as proper Unicode.") from None


def check_number(what: str, number: int, least: int, most: int = NUMBER_MAX) -> None:
    """Refuse what is out of bounds."""
    if not least <= number <= most:
        raise RefusedError(INVALID, f"The {what} must be from {least} to {most}, not {number}.")


def check_id(what: str, number: int) -> None:
    """Refuse what is no id of a node or a cluster."""
    check_number(f"id of a {what}", number, 1, ID_MAX)


def check_filters(what: str, filters: tuple[str, ...]) -> None:
    """Refuse a list of filters (user form) that has too many, one twice, or one that MQTT does not allow."""
    if len(filters) > FILTERS_MAX:
        raise RefusedError(
            INVALID, f"The {what} has {len(filters)} filters, at most {FILTERS_MAX} are allowed; use wildcards."
        )
    if len(set(filters)) != len(filters):
        raise RefusedError(INVALID, f"The {what} names a filter twice; name each once.")
    for topic_filter in filters:
        check_filter(topic_filter)


def check_filter(topic_filter: str) -> None:
    """Refuse a filter that MQTT does not allow."""
    try:
        check_topic_filter(topic_filter.encode(), FILTER_LEVELS_MAX, FILTER_BYTES_MAX)
    except UnicodeEncodeError:
        raise RefusedError(INVALID, "A filter holds half a character; write it as proper Unicode.") from None
    except RemoteProtocolError as error:
        raise RefusedError(INVALID, f"The filter {topic_filter[:80]!r} can't be used: {error}.") from None


def check_durable_filters(filters: tuple[str, ...]) -> None:
    """Refuse filters that a durable topic can't have."""
    if not filters:
        raise RefusedError(INVALID, "A topic needs at least one filter; name one, such as NAME/#.")
    check_filters("topic", filters)
    for topic_filter in filters:
        if topic_filter.startswith("$"):
            raise RefusedError(
                INVALID, f"The filter {topic_filter[:80]!r} begins with $, which is kept for the broker; use another."
            )


def check_secret(secret: str) -> None:
    """Refuse what is no hash: a plain password must never get here."""
    check_text("hash of a password", secret, SECRET_CHARACTERS_MAX)
    if secret and not secret.startswith(_SECRETS):
        raise RefusedError(
            INVALID, "A client's secret must come as a hash, never as a plain password; see `flockmq passwd`."
        )
