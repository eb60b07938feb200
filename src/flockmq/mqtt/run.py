"""A run: consecutive messages of one publisher to one topic, kept as MQTT bytes. The broker's unit of work.

```
 publisher's buffer   |PUB t/a 1|PUB t/a 2|PUB t/a 3|PUB t/b 1|...
                       `------------ Run -----------'`-- Run --
                              routed once
                                  |
        subscriber of the same version and QoS: the publisher's own bytes
        any other: a Form, built once per (version, QoS, retain, properties) and shared by all such subscribers
        QoS 1 and 2: a copy of the form, stamped with the subscriber's own packet ids
```
Nothing here costs per message and subscriber what can be done per run. ``wire`` is always normal: DUP clear, no topic
alias, no expiry (kept as ``expires_at``), no subscription identifiers, so that every packet in it can be forwarded.

A run of a namespace has its topic with the prefix ``$ns/NAME/``, in ``wire`` too. Clients never see that: their forms
are built with the name as they know it, and such a run is never sent as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.namespaces import INSIDE, outside_topic
from flockmq.mqtt.reasons import PACKET_TOO_LARGE
from flockmq.mqtt.varint import VARINT_MAX, encode_varint

NO_POSITIONS: Final[list[int]] = []
FORMS_MAX: Final = 8
"""Most forms kept with a run. Subscription identifiers are the clients' choice: they must not grow a cache."""
_FIRST: Final[list[bytes]] = [bytes([0x30 | flags]) for flags in range(16)]
SHARED_POSITIONS_MAX: Final = 4_096
_SHARED_POSITIONS: Final[dict[int, list[int]]] = {}
"""Lists of one position, for messages that are kept by the thousand. No code changes the lists of a run."""


class Form:
    """A run encoded for one kind of subscriber: bytes, where the packet ids go, where each packet ends."""

    def __init__(self, data: bytes, pid_at: list[int], ends: list[int]) -> None:
        self.data = data
        self.pid_at = pid_at
        self.ends = ends

    def piece(self, low: int, high: int) -> bytes:
        """The packets ``low`` to ``high`` (exclusive) of a QoS 0 form."""
        if low == 0 and high == len(self.ends):
            return self.data
        return self.data[self.ends[low - 1] if low else 0 : self.ends[high - 1]]

    def stamped(self, low: int, high: int, first_pid: int) -> bytes:
        """The packets ``low`` to ``high`` with consecutive packet ids written in."""
        ends = self.ends
        start = ends[low - 1] if low else 0
        out = bytearray(self.data[start : ends[high - 1]])
        pid = first_pid
        pid_at = self.pid_at
        for index in range(low, high):
            at = pid_at[index] - start
            out[at] = pid >> 8
            out[at + 1] = pid & 0xFF
            pid += 1
        return bytes(out)

    def largest(self) -> int:
        """Size of the biggest packet."""
        biggest = 0
        start = 0
        for end in self.ends:
            biggest = max(biggest, end - start)
            start = end
        return biggest


class Run:
    """See the module. ``pid_at`` and ``ends`` are positions in ``wire``; at QoS 0 they are found when first needed."""

    def __init__(
        self,
        version: int,
        qos: int,
        retain: bool,
        topic: bytes,
        wire: bytes,
        count: int,
        pid_at: list[int],
        ends: list[int],
        expires_at: int = 0,
    ) -> None:
        self.version = version
        self.qos = qos
        self.retain = retain
        self.topic = topic
        self.wire = wire
        self.count = count
        self.pid_at = pid_at
        self.ends = ends
        self.expires_at = expires_at
        self.forms: dict[bytes, Form] | None = None
        self.keeps_forms = True
        """False for a message that stays for long: its forms are not worth their memory."""

    def form(self, version: int, qos: int, retain: bool, properties: bytes) -> Form:
        """This run for subscribers of ``version``, with ``properties`` (encoded, MQTT 5) added to each message."""
        form = self.ready_form(version, qos, retain, properties)
        if form is None:
            form = build_form(self, version, qos, retain, properties)
            forms = self.forms
            if forms is None:
                forms = {}
                self.forms = forms
            if self.keeps_forms and len(forms) < FORMS_MAX:
                forms[form_key(version, qos, retain, properties)] = form
        return form

    def ready_form(self, version: int, qos: int, retain: bool, properties: bytes) -> Form | None:
        """The form if it is the run itself, or was made before."""
        is_same = not properties and version == self.version and qos == self.qos and retain == self.retain
        if is_same and not self.topic.startswith(INSIDE):
            if not self.ends:
                self.ends = packet_ends(self.wire)
            return Form(self.wire, self.pid_at, self.ends)
        if self.forms is None:
            return None
        return self.forms.get(form_key(version, qos, retain, properties))

    def stamped(
        self, version: int, qos: int, retain: bool, properties: bytes, low: int, high: int, first_pid: int
    ) -> bytes:
        """The messages ``low`` to ``high`` in such a form, with consecutive packet ids."""
        form = self.ready_form(version, qos, retain, properties)
        if form is None:
            forms = self.forms
            if forms is not None and len(forms) >= FORMS_MAX and high - low < self.count:
                # A form of the whole run would not be kept, and must not be made anew for each piece.
                piece = self.part(low, high)
                return build_form(piece, version, qos, retain, properties).stamped(0, high - low, first_pid)
            form = self.form(version, qos, retain, properties)
        return form.stamped(low, high, first_pid)

    def fitting(self, size: int) -> int:
        """How many of the first messages take no more than ``size`` bytes together."""
        if not self.ends:
            self.ends = packet_ends(self.wire)
        return bisect_right(self.ends, size)

    def part(self, low: int, high: int) -> Run:
        """The messages ``low`` to ``high`` (exclusive) as a run of their own that shares nothing with this one."""
        if low == 0 and high == self.count:
            return self
        if not self.ends:
            self.ends = packet_ends(self.wire)
        ends = self.ends
        start = ends[low - 1] if low else 0
        pid_at = [at - start for at in self.pid_at[low:high]] if self.qos else NO_POSITIONS
        new_ends = [end - start for end in ends[low:high]]
        wire = self.wire[start : ends[high - 1]]
        return Run(self.version, self.qos, self.retain, self.topic, wire, high - low, pid_at, new_ends, self.expires_at)

    def alone(self) -> Run:
        """The same messages as a run that keeps no forms, for the retained store."""
        pid_at = self.pid_at
        ends = self.ends or packet_ends(self.wire)
        if self.count == 1:
            ends = one_position(ends[0])
            if pid_at:
                pid_at = one_position(pid_at[0])
        run = Run(self.version, self.qos, self.retain, self.topic, self.wire, self.count, pid_at, ends, self.expires_at)
        run.keeps_forms = False
        return run

    def payload(self, index: int) -> bytes:
        """The payload of one message."""
        return self.parse(index)[1]

    def parse(self, index: int) -> tuple[bytes, bytes]:
        """(properties without their length, payload) of one message."""
        if not self.ends:
            self.ends = packet_ends(self.wire)
        pos = self.ends[index - 1] if index else 0
        return parse_at(self, pos, self.ends[index])


def parse_at(run: Run, pos: int, end: int) -> tuple[bytes, bytes]:
    """Properties and payload of the packet of ``run.wire`` that stands at ``pos`` and ends at ``end``."""
    wire = run.wire
    at = pos + 1
    while wire[at] & 0x80:
        at += 1
    body = at + 3 + len(run.topic)
    if run.qos:
        body += 2
    if run.version != 5:
        return b"", wire[body:end]
    length = 0
    shift = 0
    while True:
        byte = wire[body]
        body += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return wire[body : body + length], wire[body + length : end]


def one_position(at: int) -> list[int]:
    """A list with this position alone, the same one for all that have it if it is a usual one."""
    if at >= SHARED_POSITIONS_MAX:
        return [at]
    found = _SHARED_POSITIONS.get(at)
    if found is None:
        found = [at]
        _SHARED_POSITIONS[at] = found
    return found


def packet_ends(wire: bytes) -> list[int]:
    """Where each packet of well-formed bytes ends."""
    ends: list[int] = []
    pos = 0
    total = len(wire)
    while pos < total:
        at = pos + 1
        length = wire[at]
        if length >= 0x80:
            length &= 0x7F
            shift = 7
            while True:
                at += 1
                byte = wire[at]
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        pos = at + 1 + length
        ends.append(pos)
    return ends


def form_key(version: int, qos: int, retain: bool, properties: bytes) -> bytes:
    """What tells two forms of a run apart; before MQTT 5 there are no properties."""
    kind = bytes((version << 4 | qos << 1 | int(retain),))
    return kind + properties if version == 5 else kind


def build_form(run: Run, version: int, qos: int, retain: bool, properties: bytes) -> Form:
    """Encode every message of a run again, for another version, QoS, retain flag or with more properties."""
    if not run.ends:
        run.ends = packet_ends(run.wire)
    topic = outside_topic(run.topic)
    topic_length = len(topic)
    topic_field = bytes((topic_length >> 8, topic_length & 0xFF)) + topic
    first = _FIRST[qos << 1 | int(retain)]
    fixed = len(topic_field) + (2 if qos else 0)
    parts: list[bytes] = []
    pid_at: list[int] = []
    ends: list[int] = []
    head = b""
    head_of = -1
    out = 0
    pos = 0
    for end in run.ends:
        own, payload = parse_at(run, pos, end)
        pos = end
        block = b""
        if version == 5:
            block = encode_varint(len(own) + len(properties)) + own + properties
        length = fixed + len(block) + len(payload)
        if length != head_of:
            head = first + encode_varint(length) + topic_field
            head_of = length
        parts.append(head)
        out += len(head)
        if qos:
            pid_at.append(out)
            parts.append(b"\0\0")
            out += 2
        parts.append(block)
        parts.append(payload)
        out += len(block) + len(payload)
        ends.append(out)
    return Form(b"".join(parts), pid_at, ends)


def make_run(
    version: int,
    qos: int,
    retain: bool,
    topic: bytes,
    payload: bytes,
    properties: bytes = b"",
    expires_at: int = 0,
    packet_id: int = 0,
) -> Run:
    """A run of one message. ``properties`` are encoded, without length, free of alias, expiry and subscription ids."""
    topic_length = len(topic)
    body = bytes((topic_length >> 8, topic_length & 0xFF)) + topic
    pid_at = NO_POSITIONS
    if qos:
        body += bytes((packet_id >> 8, packet_id & 0xFF))
    block = encode_varint(len(properties)) + properties if version == 5 else b""
    length = encode_varint(len(body) + len(block) + len(payload))
    if qos:
        pid_at = [1 + len(length) + len(body) - 2]
    wire = _FIRST[qos << 1 | int(retain)] + length + body + block + payload
    return Run(version, qos, retain, topic, wire, 1, pid_at, [len(wire)], expires_at)


def with_topic(run: Run, topic: bytes) -> Run:
    """The same messages under another topic name, with the packet ids that they have."""
    if not run.ends:
        run.ends = packet_ends(run.wire)
    wire = run.wire
    qos = run.qos
    first = wire[:1]
    old_length = 2 + len(run.topic)
    topic_length = len(topic)
    topic_field = bytes((topic_length >> 8, topic_length & 0xFF)) + topic
    grown = topic_length + 2 - old_length
    parts: list[bytes] = []
    pid_at: list[int] = [] if qos else NO_POSITIONS
    ends: list[int] = []
    head = b""
    head_of = -1
    out = 0
    pos = 0
    for end in run.ends:
        at = pos + 1
        while wire[at] & 0x80:
            at += 1
        length = end - at - 1 + grown
        if length != head_of:
            if length > VARINT_MAX:
                raise RemoteProtocolError(PACKET_TOO_LARGE, "The packet is too large for its topic name")
            head = first + encode_varint(length) + topic_field
            head_of = length
        parts.append(head)
        out += len(head)
        if qos:
            pid_at.append(out)
        body = at + 1 + old_length
        parts.append(wire[body:end])
        out += end - body
        ends.append(out)
        pos = end
    renamed = Run(run.version, qos, run.retain, topic, b"".join(parts), run.count, pid_at, ends, run.expires_at)
    if outside_topic(topic) == run.topic:
        # Clients of the namespace know it by the name that the publisher gave: its own bytes are their form.
        key = form_key(run.version, qos, run.retain, b"")
        renamed.forms = {key: Form(wire, run.pid_at, run.ends)}
    return renamed


def payloads_run(
    version: int,
    qos: int,
    retain: bool,
    topic: bytes,
    payloads: list[bytes],
    properties: bytes = b"",
    expires_at: int = 0,
) -> Run:
    """A run of messages that differ in nothing but their payloads, packet ids 0. ``properties`` as in ``make_run``.

    Payloads of one length, as sensors send them, are put together without a step per message.
    """
    topic_length = len(topic)
    tail = bytes((topic_length >> 8, topic_length & 0xFF)) + topic
    pid_before = len(tail)
    if qos:
        tail += b"\0\0"
    if version == 5:
        tail += encode_varint(len(properties)) + properties
    first = _FIRST[qos << 1 | int(retain)]
    count = len(payloads)
    lengths = [len(payload) for payload in payloads]
    size = lengths[0]
    if min(lengths) == max(lengths):
        lead = first + encode_varint(len(tail) + size)
        head = lead + tail
        wire = head + head.join(payloads)
        step = len(head) + size
        ends = list(range(step, step * count + 1, step))
        pid_at = list(range(len(lead) + pid_before, step * count, step)) if qos else NO_POSITIONS
        return Run(version, qos, retain, topic, wire, count, pid_at, ends, expires_at)
    return _uneven_run(version, qos, retain, topic, payloads, tail, pid_before, expires_at)


def _uneven_run(
    version: int,
    qos: int,
    retain: bool,
    topic: bytes,
    payloads: list[bytes],
    tail: bytes,
    pid_before: int,
    expires_at: int,
) -> Run:
    first = _FIRST[qos << 1 | int(retain)]
    heads: dict[int, bytes] = {}
    parts: list[bytes] = []
    pid_at: list[int] = [] if qos else NO_POSITIONS
    ends: list[int] = []
    out = 0
    pid_after = len(tail) - pid_before
    for payload in payloads:
        size = len(payload)
        head = heads.get(size)
        if head is None:
            head = first + encode_varint(len(tail) + size) + tail
            heads[size] = head
        parts.append(head)
        parts.append(payload)
        out += len(head)
        if qos:
            pid_at.append(out - pid_after)
        out += size
        ends.append(out)
    return Run(version, qos, retain, topic, b"".join(parts), len(payloads), pid_at, ends, expires_at)
