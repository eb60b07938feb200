"""WebSocket frames (RFC 6455 section 5) around MQTT, for both ends of a connection: bytes in, bytes out.

```
 bytes of a read --> FrameDecoder.feed --> MQTT bytes of all frames in it, unmasked, in one piece
                            |  take_reply() --> pong or close frame to send back
                            `  close_code   --> 0 while open; else nothing more will be decoded
 MQTT bytes of a loop turn --> frame_header(total) + the pieces           server, never masked
                           --> encode_client_frame(payload, key)          client, always masked
```
MQTT packets may span frames and share them [MQTT-6.0.0-2], so a frame is never collected: what has come of
its payload is handed on at once, and all that a connection can make us hold is a piece of a header or of a control
frame (130 bytes). A frame's length is judged when it is announced; nothing is ever allocated for it.

Lengths that are written longer than needed are accepted: small devices do that, and it does no harm.
"""

from __future__ import annotations

from typing import Final

from flockmq.wire.mask import xor

FRAME_BYTES_MAX: Final = 268_435_460
"""The largest MQTT packet there is; a frame beyond it can't be meant."""

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
NO_STATUS: Final = 1005
INVALID_PAYLOAD: Final = 1007
TOO_BIG: Final = 1009

_WHOLE_BINARY: Final = 0x82
_FIN: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_CONTROL: Final = 0x08


def frame_header(length: int, first: int = _WHOLE_BINARY) -> bytes:
    """Head of an unmasked frame: of one whole binary message unless ``first`` says otherwise."""
    if length < 126:
        return bytes((first, length))
    if length < 65_536:
        return bytes((first, 126, length >> 8, length & 0xFF))
    return bytes((first, 127)) + length.to_bytes(8, "big")


def encode_client_frame(payload: bytes, key: bytes, first: int = _WHOLE_BINARY) -> bytes:
    """Encode one frame as a client sends it, masked with ``key`` (four bytes, drawn by the caller)."""
    head = frame_header(len(payload), first)
    return head[:1] + bytes((head[1] | _MASKED,)) + head[2:] + key + xor(payload, key)


def close_frame(code: int) -> bytes:
    """Encode the close frame of a server."""
    return frame_header(2, _FIN | CLOSE) + code.to_bytes(2, "big")


class FrameDecoder:
    """Decodes what one end sends, whatever way the bytes are split."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, from_client: bool = True) -> None:
        self.close_code: int = 0
        """0 while open; then the code of the close frame to answer with (NO_STATUS where the peer gave none)."""
        self.error: str = ""
        """What the peer did wrong, when that is why it ended."""
        self._bytes_max: int = frame_bytes_max
        self._mask_bit: int = _MASKED if from_client else 0
        self._held: bytes = b""  # an incomplete header or control frame
        self._remaining: int = 0  # bytes of the current data frame still to come
        self._key: bytes = b""  # turned so that its first byte is for the next byte to come
        self._in_message: bool = False  # a fragment without FIN came; only a continuation may follow
        self._reply: bytes = b""

    def take_reply(self) -> bytes:
        """Return the control frame to send back, once; empty when there is none."""
        reply = self._reply
        self._reply = b""
        return reply

    def feed(self, data: bytes) -> bytes:
        """Decode all frames in ``data``; return the MQTT bytes among them, up to the first violation or close."""
        if self.close_code:
            return b""
        if self._held:
            data = self._held + data
            self._held = b""
        position = 0
        end = len(data)
        pieces: list[bytes] = []
        if self._remaining:
            position = min(self._remaining, end)
            pieces.append(self._open_up(data[:position]))
        mask_bit = self._mask_bit
        key_length = 4 if mask_bit else 0
        while position < end:
            if end - position < 2:
                self._held = data[position:]
                break
            first = data[position]
            second = data[position + 1]
            if (first != _WHOLE_BINARY or self._in_message) and not self._may_come(first):
                break
            if second & _MASKED != mask_bit:
                self._fail(PROTOCOL_ERROR, "A WebSocket frame of a client is masked, that of a server is not")
                break
            length = second & 0x7F
            start = position + 2
            if length >= 126:
                if first & _CONTROL:
                    self._fail(PROTOCOL_ERROR, "A WebSocket control frame holds at most 125 bytes")
                    break
                start += 2 if length == 126 else 8
                if start > end:
                    self._held = data[position:]
                    break
                length = int.from_bytes(data[position + 2 : start], "big")
                if length > self._bytes_max:
                    self._fail(TOO_BIG, f"A WebSocket frame of {length} bytes is over the limit of {self._bytes_max}")
                    break
            body = start + key_length
            stop = body + length
            if body > end or (first & _CONTROL and stop > end):
                self._held = data[position:]
                break
            if not first & _CONTROL:
                self._in_message = first < _FIN
                if stop <= end:
                    pieces.append(xor(data[body:stop], data[start:body]) if mask_bit else data[body:stop])
                else:
                    self._remaining = length
                    self._key = data[start:body]
                    pieces.append(self._open_up(data[body:]))
            else:
                content = xor(data[body:stop], data[start:body]) if mask_bit else data[body:stop]
                if self._control(first & 0x0F, content):
                    break
            position = stop
        if len(pieces) == 1:
            return pieces[0]
        return b"".join(pieces)

    def _open_up(self, part: bytes) -> bytes:
        """Unmask the next part of a frame whose end has not come yet."""
        self._remaining -= len(part)
        if not self._mask_bit:
            return part
        plain = xor(part, self._key)
        turn = len(part) & 3
        if turn:
            self._key = self._key[turn:] + self._key[:turn]
        return plain

    def _may_come(self, first: int) -> bool:
        """Judge the first byte of any frame but a plain whole one; the reason is kept when it may not come."""
        opcode = first & 0x0F
        if first & _RESERVED:
            self._fail(PROTOCOL_ERROR, "Reserved WebSocket bits are set and no extension was agreed on")
        elif opcode == TEXT:
            self._fail(UNSUPPORTED_DATA, "MQTT travels in binary WebSocket frames, not in text")  # [MQTT-6.0.0-1]
        elif opcode in (CLOSE, PING, PONG):
            if first < _FIN:
                self._fail(PROTOCOL_ERROR, "A WebSocket control frame can't be fragmented")
        elif opcode == BINARY:
            if self._in_message:
                self._fail(PROTOCOL_ERROR, "A new WebSocket message began before the last one was complete")
        elif opcode == CONTINUATION:
            if not self._in_message:
                self._fail(PROTOCOL_ERROR, "A WebSocket continuation frame came without a beginning")
        else:
            self._fail(PROTOCOL_ERROR, f"WebSocket opcode {opcode} is reserved")
        return self.close_code == 0

    def _control(self, opcode: int, content: bytes) -> bool:
        """Act on a control frame; True when it is the last one."""
        if opcode == PING:
            # Only the last of several pings needs its pong (section 5.5.3): a flood can't pile up answers.
            self._answer(PONG, content)
        elif opcode == CLOSE:
            self._closed_by_peer(content)
        return self.close_code != 0

    def _closed_by_peer(self, content: bytes) -> None:
        if not content:
            self.close_code = NO_STATUS
            self._answer(CLOSE, b"")
            return
        code = int.from_bytes(content[:2], "big")
        if len(content) == 1 or not (1000 <= code <= 1014 or 3000 <= code <= 4999) or 1004 <= code <= 1006:
            self._fail(PROTOCOL_ERROR, "The WebSocket close frame has no valid status code")
            return
        try:
            content[2:].decode()
        except UnicodeDecodeError:
            self._fail(INVALID_PAYLOAD, "The reason in the WebSocket close frame is not UTF-8")
            return
        self.close_code = code
        self._answer(CLOSE, content[:2])

    def _answer(self, opcode: int, content: bytes) -> None:
        if self._mask_bit:
            self._reply = frame_header(len(content), _FIN | opcode) + content
        else:  # a client masks; what it says here came from the other end, so the key need not be a secret
            self._reply = encode_client_frame(content, b"\0\0\0\0", _FIN | opcode)

    def _fail(self, code: int, text: str) -> None:
        self.close_code = code
        self.error = text
        self._answer(CLOSE, code.to_bytes(2, "big"))
