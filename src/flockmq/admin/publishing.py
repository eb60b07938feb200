"""A publish over REST becomes one of the broker's: payload and properties decoded, or refused in words."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from flockmq.admin import model
from flockmq.errors import INVALID_BODY, NOT_FOUND, REFUSED, ApiError, RemoteProtocolError
from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, INSIDE, topic_prefix
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.topics import check_topic_name, valid_utf8

if TYPE_CHECKING:
    from flockmq.node.broker import Broker

FIELD_BYTES_MAX: Final = 65_535
"""What a string or binary property of MQTT can hold."""
_RESERVED: Final = (b"$SYS/", b"$delayed/", b"$share/")


def publish(broker: Broker, request: model.PublishRequest, now_ms: int) -> model.PublishResult:
    """Publish in the broker's name."""
    topic = topic_inside(broker, request)
    payload, properties = message_parts(request.payload, request.payload_base64, request.properties)
    packet_max = broker.settings.limits.packet_bytes_max
    if packet_max and len(payload) > packet_max:
        raise ApiError(REFUSED, f"The payload has {len(payload)} bytes; this broker takes packets of {packet_max}")
    refused_before = broker.stats.retained_refused
    try:
        matched = broker.publish(topic, payload, request.qos, request.retain, now_ms, properties)
    except RemoteProtocolError as error:
        raise ApiError(REFUSED, f"{error}; change the topic") from None
    retained = request.retain and bool(payload) and broker.stats.retained_refused == refused_before
    return model.PublishResult(matched=matched, retained=retained)


def topic_inside(broker: Broker, request: model.PublishRequest) -> bytes:
    """The topic name as the broker knows it, or why nothing is published there."""
    namespace = request.namespace
    if not broker.node.spaces.exists(namespace):
        raise ApiError(
            NOT_FOUND, f"There is no namespace {namespace[:128]!r}; create it, or see `flockmq namespace list`."
        )
    prefix = topic_prefix(namespace)
    topic = utf8(request.topic, "topic", FIELD_BYTES_MAX - len(prefix))
    if topic.startswith(_RESERVED):
        raise ApiError(
            REFUSED, "Topics under $SYS/, $delayed/ and $share/ have a meaning of their own; use another one"
        )
    if topic.startswith(INSIDE):
        raise ApiError(REFUSED, "Topics under $ns/ are those of other namespaces; name the namespace in `namespace`")
    if namespace != DEFAULT_NAMESPACE and topic.startswith(b"$"):
        raise ApiError(REFUSED, "Topics that begin with $ are in the namespace 'default' only; use another one")
    return prefix + topic


def utf8(text: str, what: str, bytes_max: int) -> bytes:
    """Encode as MQTT wants its strings."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ApiError(INVALID_BODY, f"`{what}` holds half of a surrogate pair; send whole characters") from None
    if not valid_utf8(data):
        raise ApiError(INVALID_BODY, f"`{what}` holds U+0000, which MQTT does not allow; leave it out")
    if len(data) > bytes_max:
        raise ApiError(INVALID_BODY, f"`{what}` has {len(data)} bytes; MQTT allows {bytes_max}")
    return data


def message_parts(
    text: str | None, encoded: str | None, properties: model.MessageProperties | None
) -> tuple[bytes, Properties | None]:
    """Payload and properties of a message, given as text or as base64."""
    payload = _payload(text, encoded)
    return payload, None if properties is None else _properties(properties, payload)


def _payload(text: str | None, encoded: str | None) -> bytes:
    if text is not None and encoded is not None:
        raise ApiError(INVALID_BODY, "`payload` and `payload_base64` are both given; give one of them")
    if encoded is not None:
        return _binary(encoded, "payload_base64")
    try:
        return (text or "").encode()
    except UnicodeEncodeError:
        raise ApiError(INVALID_BODY, "`payload` holds half of a surrogate pair; use `payload_base64`") from None


def _binary(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(
            INVALID_BODY, f"`{what}` is not base64 ({error}); encode the bytes with the standard alphabet"
        ) from None


def _properties(asked: model.MessageProperties, payload: bytes) -> Properties:
    properties = Properties()
    if asked.payload_is_utf8:
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise ApiError(REFUSED, "`payload_is_utf8` is set, but the payload is not UTF-8; unset it") from None
        properties.payload_format = 1
    properties.message_expiry_s = asked.message_expiry_s
    if asked.content_type is not None:
        properties.content_type = utf8(asked.content_type, "properties.content_type", FIELD_BYTES_MAX).decode()
    if asked.response_topic is not None:
        properties.response_topic = _response_topic(asked.response_topic)
    if asked.correlation_data_base64 is not None:
        data = _binary(asked.correlation_data_base64, "properties.correlation_data_base64")
        if len(data) > FIELD_BYTES_MAX:
            raise ApiError(INVALID_BODY, f"The correlation data has {len(data)} bytes; MQTT allows {FIELD_BYTES_MAX}")
        properties.correlation_data = data
    for pair in asked.user_properties:
        name = utf8(pair.name, "properties.user_properties.name", FIELD_BYTES_MAX).decode()
        value = utf8(pair.value, "properties.user_properties.value", FIELD_BYTES_MAX).decode()
        properties.user.append((name, value))
    return properties


def _response_topic(text: str) -> bytes:
    topic = utf8(text, "properties.response_topic", FIELD_BYTES_MAX)
    try:
        check_topic_name(topic)
    except RemoteProtocolError as error:
        raise ApiError(INVALID_BODY, f"`properties.response_topic` can't be used: {error}") from None
    return topic
