"""The payloads of a run, cut out in one loop."""

from __future__ import annotations

from flockmq.mqtt.run import Run, packet_ends


def payloads_of(run: Run) -> list[bytes] | None:
    """All payloads in order; None when a message has properties, so that there is more to it than that.

    Packets of one size have headers of one size: for those each message costs a slice.
    """
    ends = run.ends
    if not ends:
        ends = packet_ends(run.wire)
        run.ends = ends
    wire = run.wire
    fixed = 3 + len(run.topic)
    if run.qos:
        fixed += 2
    has_properties = run.version == 5
    payloads: list[bytes] = []
    pos = 0
    size = -1
    head = 0
    for end in ends:
        if end - pos != size:
            size = end - pos
            head = 1
            while wire[pos + head] >= 0x80:
                head += 1
            head += fixed
            if has_properties:
                head += 1
        body = pos + head
        if has_properties and wire[body - 1]:
            return None
        payloads.append(wire[body:end])
        pos = end
    return payloads


def plain_acks(run: Run) -> bytes:
    """PUBACKs or PUBRECs of a run of QoS 1 or 2, as they are when all goes well.

    Where packets have one size their ids stand at equal distances and are taken together.
    """
    wire = run.wire
    pid_at = run.pid_at
    count = run.count
    first = pid_at[0]
    if count > 2:
        last = pid_at[count - 1]
        stride = pid_at[1] - first
        if pid_at == list(range(first, last + 1, stride)):
            acks = bytearray((b"\x40\x02\0\0" if run.qos == 1 else b"\x50\x02\0\0") * count)
            acks[2::4] = wire[first : last + 1 : stride]
            acks[3::4] = wire[first + 1 : last + 2 : stride]
            return bytes(acks)
    head = b"\x40\x02" if run.qos == 1 else b"\x50\x02"
    parts: list[bytes] = []
    for at in pid_at:
        parts.append(head)
        parts.append(wire[at : at + 2])
    return b"".join(parts)
