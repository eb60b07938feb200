"""The codec against everything: packets go there and back, and nothing that arrives raises but RemoteProtocolError.

FLOCKMQ_HYPOTHESIS=long searches 100,000 cases each.
"""

# ruff: noqa: PT017  (a refusal and a success are both right here; pytest.raises can not say so)

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from codec_cases import decode_wire, feed_byte_by_byte, with_properties
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import packets as p
from flockmq.mqtt import properties as props
from flockmq.mqtt import reasons
from flockmq.mqtt.connect import protocol_level
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Packet
from flockmq.mqtt.properties import Properties, decode_properties, encode_block, encode_properties, property_block
from flockmq.mqtt.topics import check_topic_filter, check_topic_name, matches, split_delayed, split_shared, valid_utf8
from flockmq.mqtt.varint import VARINT_MAX, decode_varint, encode_varint, frame_length

# --- what packets are made of ---

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
FLAG = st.integers(0, 1)
ID = st.integers(1, 0xFFFF)
QOS = st.integers(0, 2)
BINARY = st.binary(max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
TOPIC = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=12).map(
    str.encode
)
FILTER = TEXT.filter(bool).map(str.encode)  # decoding leaves wildcards to the broker
USER = st.lists(st.tuples(TEXT, TEXT), max_size=3)

VALUES: dict[int, tuple[str, st.SearchStrategy[object]]] = {
    props.PAYLOAD_FORMAT: ("payload_format", FLAG),
    props.MESSAGE_EXPIRY: ("message_expiry_s", U32),
    props.CONTENT_TYPE: ("content_type", TEXT),
    props.RESPONSE_TOPIC: ("response_topic", TOPIC),
    props.CORRELATION_DATA: ("correlation_data", BINARY),
    props.SUBSCRIPTION_IDENTIFIER: ("subscription_identifiers", st.lists(st.integers(1, VARINT_MAX), max_size=1)),
    props.SESSION_EXPIRY: ("session_expiry_s", U32),
    props.ASSIGNED_CLIENT_ID: ("assigned_client_id", TEXT),
    props.SERVER_KEEP_ALIVE: ("server_keep_alive_s", U16),
    props.AUTHENTICATION_METHOD: ("authentication_method", TEXT),
    props.AUTHENTICATION_DATA: ("authentication_data", BINARY),
    props.REQUEST_PROBLEM_INFORMATION: ("request_problem_information", FLAG),
    props.WILL_DELAY: ("will_delay_s", U32),
    props.REQUEST_RESPONSE_INFORMATION: ("request_response_information", FLAG),
    props.RESPONSE_INFORMATION: ("response_information", TEXT),
    props.SERVER_REFERENCE: ("server_reference", TEXT),
    props.REASON_STRING: ("reason_string", TEXT),
    props.RECEIVE_MAXIMUM: ("receive_maximum", ID),
    props.TOPIC_ALIAS_MAXIMUM: ("topic_alias_maximum", U16),
    props.TOPIC_ALIAS: ("topic_alias", ID),
    props.MAXIMUM_QOS: ("maximum_qos", FLAG),
    props.RETAIN_AVAILABLE: ("retain_available", FLAG),
    props.USER: ("user", USER),
    props.MAXIMUM_PACKET_SIZE: ("maximum_packet_size", st.integers(1, 0xFFFFFFFF)),
    props.WILDCARD_SUBSCRIPTION_AVAILABLE: ("wildcard_subscription_available", FLAG),
    props.SUBSCRIPTION_IDENTIFIERS_AVAILABLE: ("subscription_identifiers_available", FLAG),
    props.SHARED_SUBSCRIPTION_AVAILABLE: ("shared_subscription_available", FLAG),
}
PLACES = [
    props.IN_CONNECT,
    props.IN_WILL,
    props.IN_CONNACK,
    props.IN_PUBLISH,
    props.IN_ACK,
    props.IN_SUBSCRIBE,
    props.IN_UNSUBSCRIBE,
    props.IN_DISCONNECT,
    props.IN_AUTH,
]


def properties_in(allowed: int) -> st.SearchStrategy[Properties]:
    """Any properties a packet may hold."""
    values = dict(value for identifier, value in VALUES.items() if allowed >> identifier & 1)
    if allowed == props.IN_PUBLISH:
        values["subscription_identifiers"] = st.lists(st.integers(1, VARINT_MAX), max_size=3)
    return st.fixed_dictionaries({}, optional=values).map(lambda found: with_properties(**found))


IN = {allowed: properties_in(allowed) for allowed in PLACES}


@st.composite
def some_properties(draw: st.DrawFn, version: int, allowed: int) -> Properties | None:
    """None when there are none: that is how they are decoded where they are seldom."""
    found = draw(IN[allowed]) if version == 5 else Properties()
    return found if found.present() else None


@st.composite
def connects(draw: st.DrawFn, version: int) -> Packet:
    will = None
    if draw(st.booleans()):
        will = p.Will(
            draw(TOPIC), draw(BINARY), draw(QOS), draw(st.booleans()), draw(some_properties(version, props.IN_WILL))
        )
    properties = draw(some_properties(version, props.IN_CONNECT))
    if properties is not None and properties.authentication_method is None:
        properties.authentication_data = None
    client_id = draw(TEXT)
    username = draw(st.none() | TEXT)
    password = draw(st.none() | BINARY) if version == 5 or username is not None else None
    clean_start = draw(st.booleans()) or not client_id
    return p.Connect(version, client_id, clean_start, draw(U16), properties, will, username, password)


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Packet:
    codes = reasons.IN_CONNACK if version == 5 else reasons.IN_CONNACK_V3
    reason = draw(st.sampled_from(sorted(codes)))
    present = reason == 0 and draw(st.booleans())
    return p.Connack(present, reason, draw(some_properties(version, props.IN_CONNACK)))


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Packet:
    properties = draw(some_properties(version, props.IN_PUBLISH))
    qos = draw(QOS)
    by_alias = properties is not None and properties.topic_alias is not None and draw(st.booleans())
    return p.Publish(
        b"" if by_alias else draw(TOPIC),
        draw(st.binary(max_size=200)),
        qos,
        draw(st.booleans()),
        qos > 0 and draw(st.booleans()),
        draw(ID) if qos else 0,
        properties,
    )


@st.composite
def acks(draw: st.DrawFn, version: int) -> Packet:
    kind = draw(st.integers(p.PUBACK, p.PUBCOMP))
    codes = reasons.IN_PUBACK if kind <= p.PUBREC else reasons.IN_PUBREL
    reason = draw(st.sampled_from(sorted(codes))) if version == 5 else 0
    return p.Ack(kind, draw(ID), reason, draw(some_properties(version, props.IN_ACK)))


@st.composite
def entries(draw: st.DrawFn, version: int) -> p.SubscribeEntry:
    topic_filter, qos = draw(FILTER), draw(QOS)
    if version != 5:
        return p.SubscribeEntry(topic_filter, qos)
    no_local = not topic_filter.startswith(b"$share/") and draw(st.booleans())
    return p.SubscribeEntry(topic_filter, qos, no_local, draw(st.booleans()), draw(QOS))


@st.composite
def subscriptions(draw: st.DrawFn, version: int) -> Packet:
    kind = draw(st.integers(p.SUBSCRIBE, p.UNSUBACK))
    if kind == p.SUBSCRIBE:
        wanted = draw(st.lists(entries(version), min_size=1, max_size=4))
        return p.Subscribe(draw(ID), wanted, draw(some_properties(version, props.IN_SUBSCRIBE)))
    if kind == p.UNSUBSCRIBE:
        filters = draw(st.lists(FILTER, min_size=1, max_size=4))
        return p.Unsubscribe(draw(ID), filters, draw(some_properties(version, props.IN_UNSUBSCRIBE)))
    properties = draw(some_properties(version, props.IN_ACK))
    if kind == p.SUBACK:
        codes = reasons.IN_SUBACK if version == 5 else reasons.IN_SUBACK_V3
        return p.Suback(draw(ID), draw(st.lists(st.sampled_from(sorted(codes)), min_size=1, max_size=4)), properties)
    if version != 5:
        return p.Unsuback(draw(ID), [])
    codes = reasons.IN_UNSUBACK
    return p.Unsuback(draw(ID), draw(st.lists(st.sampled_from(sorted(codes)), min_size=1, max_size=4)), properties)


@st.composite
def short_ones(draw: st.DrawFn, version: int) -> Packet:
    kind = draw(st.integers(p.PINGREQ, p.AUTH if version == 5 else p.DISCONNECT))
    if kind == p.PINGREQ:
        return p.Pingreq()
    if kind == p.PINGRESP:
        return p.Pingresp()
    if version != 5:
        return p.Disconnect()
    if kind == p.DISCONNECT:
        reason = draw(st.sampled_from(sorted(reasons.IN_DISCONNECT)))
        return p.Disconnect(reason, draw(some_properties(5, props.IN_DISCONNECT)))
    properties = draw(IN[props.IN_AUTH])
    properties.authentication_method = draw(TEXT)
    return p.Auth(draw(st.sampled_from(sorted(reasons.IN_AUTH))), properties)


VERSIONS = st.sampled_from((4, 5))


@st.composite
def versioned_packets(draw: st.DrawFn) -> tuple[int, Packet]:
    """Any packet that may be sent, with the version it is sent in."""
    version = draw(VERSIONS)
    makers: list[Callable[[int], st.SearchStrategy[Packet]]]
    makers = [connects, connacks, publishes, acks, subscriptions, short_ones]
    return version, draw(draw(st.sampled_from(makers))(version))


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    """The same bytes with a few of them changed, lost, doubled or added."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        what = draw(st.integers(0, 4))
        if what == 0:
            data.insert(at, draw(st.integers(0, 255)))
        elif what == 1:
            del data[at:]
        elif what == 2:
            data[at:at] = data[at : at + draw(st.integers(1, 8))]
        elif at < len(data):
            data[at] = draw(st.integers(0, 255)) if what == 3 else data[at] ^ 1 << draw(st.integers(0, 7))
    return bytes(data)


# --- there and back ---


@given(st.integers(0, VARINT_MAX), BINARY)
def test_varints(value: int, behind: bytes) -> None:
    wire = encode_varint(value)
    assert decode_varint(wire + behind, 0, len(wire) + len(behind)) == (value, len(wire))


@given(st.sampled_from(PLACES).flatmap(lambda allowed: st.tuples(st.just(allowed), IN[allowed])), BINARY)
def test_properties(case: tuple[int, Properties], behind: bytes) -> None:
    allowed, properties = case
    wire = encode_properties(properties)
    start, stop = property_block(wire + behind, 0, len(wire) + len(behind))
    assert stop == len(wire)
    assert decode_properties(wire + behind, start, stop, allowed) == properties


@given(versioned_packets())
def test_packets(case: tuple[int, Packet]) -> None:
    version, packet = case
    wire = encode_packet(packet, version)
    assert decode_wire(version, wire) == packet
    assert feed_byte_by_byte(version, wire) == packet


@given(st.lists(versioned_packets(), max_size=3), st.data())
def test_a_stream_in_any_pieces(cases: list[tuple[int, Packet]], data: st.DataObject) -> None:
    stream = b"".join(encode_packet(packet, version) for version, packet in cases)
    expected = list(cases)
    buf = b""
    while stream or expected:
        header, total = frame_length(buf, 0, len(buf))
        if total == 0 or total > len(buf):
            size = data.draw(st.integers(1, max(1, len(stream))))
            assert stream, "more is asked for than was sent"
            buf, stream = buf + stream[:size], stream[size:]
            continue
        version, packet = expected.pop(0)
        assert decode_packet(version, buf[0], buf[header:total]) == packet
        buf = buf[total:]
    assert buf == b""


# --- whatever arrives ---


def decode_or_refuse(version: int, first: int, body: bytes) -> None:
    """Decoding ends in a packet that means the same when sent on, or in a refusal with a code for the wire."""
    try:
        packet = decode_packet(version, first, body)
    except RemoteProtocolError as error:
        assert error.reason_code in reasons.NAMES
        assert error.reason_code >= 0x80
        assert str(error)
        return
    wire = encode_packet(packet, version)
    assert decode_wire(version, wire) == packet
    repr(packet)


@given(st.sampled_from((0, 3, 4, 5)), st.integers(0, 255), st.binary(max_size=64))
def test_garbage(version: int, first: int, body: bytes) -> None:
    decode_or_refuse(version, first, body)


@given(st.sampled_from((4, 5)), st.data())
def test_mutated_packets(version: int, data: st.DataObject) -> None:
    sent_in, packet = data.draw(versioned_packets())
    wire = encode_packet(packet, sent_in)
    header, _ = frame_length(wire, 0, len(wire))
    first = data.draw(st.sampled_from((wire[0], wire[0], wire[0], wire[0] ^ 1, wire[0] ^ 2, wire[0] ^ 8)))
    decode_or_refuse(version, first, data.draw(mutated(wire[header:])))


@given(st.binary(max_size=16))
def test_frames_of_garbage(data: bytes) -> None:
    try:
        header, total = frame_length(data, 0, len(data))
    except RemoteProtocolError as error:
        assert error.reason_code == reasons.MALFORMED_PACKET
        assert len(data) >= 5
        assert all(byte >= 0x80 for byte in data[1:5])
    else:
        assert (header, total) == (0, 0) or 2 <= header <= min(5, len(data)) <= 5 + total


@given(st.binary(max_size=32))
def test_protocol_level_of_garbage(data: bytes) -> None:
    assert 0 <= protocol_level(data) <= 255


# --- the fast way equals the obvious way ---


def publish_outcome(block: bytes) -> tuple[int, Properties | None]:
    """What decoding says about a block from a client: the refusal, or 0 and the properties."""
    try:
        return 0, decode_properties(block, 0, len(block), props.IN_PUBLISH & ~(1 << props.SUBSCRIPTION_IDENTIFIER))
    except RemoteProtocolError as error:
        # [MQTT-3.3.4-6]: it exists in a PUBLISH, but not from a client.
        return (0x82 if "0x0B" in str(error) else error.reason_code), None


@given(IN[props.IN_PUBLISH].map(encode_block).flatmap(lambda block: st.just(block) | mutated(block)))
def test_scanning_publish_properties_equals_decoding_them(block: bytes) -> None:
    code, properties = publish_outcome(block)
    framed = b"\x23" + block + b"\x23"
    try:
        found = props.scan_publish_properties(framed, 1, 1 + len(block))
    except RemoteProtocolError as error:
        assert error.reason_code == code
        return
    assert code == 0
    assert properties is not None
    assert bool(found & props.HAS_PAYLOAD_FORMAT) == (properties.payload_format is not None)
    assert bool(found & props.HAS_EXPIRY) == (properties.message_expiry_s is not None)
    assert bool(found & props.HAS_CONTENT_TYPE) == (properties.content_type is not None)
    assert bool(found & props.HAS_RESPONSE_TOPIC) == (properties.response_topic is not None)
    assert bool(found & props.HAS_CORRELATION_DATA) == (properties.correlation_data is not None)
    assert bool(found & props.HAS_ALIAS) == (properties.topic_alias is not None)
    assert bool(found & props.HAS_USER) == bool(properties.user)
    alias, expiry_s, rest = props.split_publish_properties(framed, 1, 1 + len(block))
    assert alias == (properties.topic_alias or 0)
    assert expiry_s == (-1 if properties.message_expiry_s is None else properties.message_expiry_s)
    properties.topic_alias = properties.message_expiry_s = None
    assert publish_outcome(rest) == (0, properties)


LEVELS = st.sampled_from(["", "a", "b", "aa", "$", "$SYS", "ü"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.tuples(st.lists(LEVELS | st.just("+"), max_size=4), st.booleans()).map(
    lambda case: "/".join([*case[0], "#"] if case[1] or not case[0] else case[0])
)


@given(FILTERS.filter(bool), NAMES)
def test_matching_equals_a_regular_expression(topic_filter: str, topic: str) -> None:
    check_topic_filter(topic_filter.encode())
    pattern = re.escape(topic_filter).replace(r"\+", "[^/]*").replace(r"/\#", "(/.*)?").replace(r"\#", ".*")
    hidden = topic[0] == "$" and topic_filter[0] in "+#"
    assert matches(topic_filter.encode(), topic.encode()) == (not hidden and bool(re.fullmatch(pattern, topic)))


def accepted(check: Callable[[bytes], object], topic: bytes) -> bool:
    try:
        check(topic)
    except RemoteProtocolError as error:
        assert error.reason_code in (0x81, 0x8F, 0x90)
        return False
    return True


@given(st.binary(max_size=12) | st.text("a/+#$\0ü", max_size=8).map(str.encode))
def test_topic_checks_equal_the_rules(topic: bytes) -> None:
    try:
        text = topic.decode()
    except UnicodeDecodeError:
        text = "\0"
    readable = "\0" not in text
    assert valid_utf8(topic) == readable
    sound = readable and text != ""
    assert accepted(check_topic_name, topic) == (sound and not set(text) & {"+", "#"})
    *front, last = text.split("/")
    alone = all(level == "+" or not set(level) & {"+", "#"} for level in front)
    assert accepted(check_topic_filter, topic) == (
        sound and alone and (last in ("+", "#") or not set(last) & {"+", "#"})
    )


@given(st.sampled_from((b"$share/", b"$delayed/", b"")), st.text("ab1/+#$-", max_size=12))
def test_prefixes(prefix: bytes, behind: str) -> None:
    topic = prefix + behind.encode()
    if accepted(split_shared, topic):
        group, rest = split_shared(topic)
        assert topic == (rest if group is None else b"$share/" + group + b"/" + rest)
        assert group is None or (group and rest and not set(group) & set(b"/+#"))
    if accepted(split_delayed, topic):
        delayed = split_delayed(topic)
        assert (delayed is None) == (not topic.startswith(b"$delayed/"))
        assert delayed is None or re.fullmatch(rb"\$delayed/0*%d/" % delayed[0] + re.escape(delayed[1]), topic)
