"""Reads a PROXY header off a socket that was just accepted, and not one byte more.

```
 readable --> peek --> parser: needs more ----> all of it is header: take it off the socket, wait
                               complete ------> take the header off, hand the socket over
                               not a header --> event, close
```
The header comes before everything else, also before TLS, and the next layer (an event loop's TLS) can't be given
bytes that were read too many. So they are looked at in the kernel's buffer and only the header is taken out.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from flockmq.drivers.clock import now_ms
from flockmq.drivers.tcp import Arrival
from flockmq.errors import FlockError
from flockmq.wire.proxy import HEADER_BYTES_MAX, ProxyParser

if TYPE_CHECKING:
    from flockmq.drivers.acceptor import Acceptor


class HeaderReader:
    """One accepted socket until its header is read; the acceptor has it afterwards."""

    __slots__ = ("_acceptor", "_arrival", "_parser", "_socket")

    def __init__(self, acceptor: Acceptor, accepted: socket.socket, arrival: Arrival, versions: int) -> None:
        self._acceptor = acceptor
        self._socket: socket.socket | None = accepted
        self._arrival = arrival
        self._parser = ProxyParser(versions)
        acceptor.loop.add_reader(accepted.fileno(), self._readable)
        acceptor.listener.handshakes.begin(self, now_ms())

    def _readable(self) -> None:
        accepted = self._socket
        if accepted is None:
            return
        try:
            seen = accepted.recv(HEADER_BYTES_MAX, socket.MSG_PEEK)
            if not seen:  # a health check that only connects
                self._give_up(accepted)
                return
            header = self._parser.feed(seen)
            accepted.recv(len(seen) - len(header.rest) if header is not None else len(seen))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._give_up(accepted)
            return
        except FlockError as error:
            where = {"listener": self._acceptor.listener.name, "peer": self._arrival.peer}
            self._acceptor.listener.runner.events.note("proxy_header_refused", {**where, "reason": str(error)})
            self._give_up(accepted)
            return
        if header is None:
            return
        self._socket = None
        self._acceptor.loop.remove_reader(accepted.fileno())
        if header.address:
            self._arrival.peer = header.address
        self._arrival.certificate_name = header.certificate_name
        self._acceptor.hand_over(accepted, self._arrival)

    def deadline_passed(self) -> None:
        """Close a socket whose header does not come."""
        if self._socket is not None:
            self._give_up(self._socket)

    def _give_up(self, accepted: socket.socket) -> None:
        self._socket = None
        self._acceptor.loop.remove_reader(accepted.fileno())
        self._acceptor.drop(accepted, self._arrival)
