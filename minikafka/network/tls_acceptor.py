"""TLS between a connection and its socket. Kafka: ``SslTransportLayer``.

A ``TlsTransport`` is the protocol of the socket's transport and the transport of a ``Connection``, which is
there from the moment that the socket is accepted: limits, the sweeper and a closing server know it while it
shakes hands. asyncio's own TLS would do with one context per listener for good, 256 KiB of buffer per
connection before a byte has come, and handshakes on the loop, of which each takes 0.4 ms (elliptic curves) to
1.7 ms (RSA and a client's certificate). Here

- each connection asks for the context when its first bytes come, so a store that is put in place of another
  holds from the next connection on, and those in use live on;
- each step of a handshake is taken by a thread, which OpenSSL lets run beside the loop;
- a handshake has a deadline, and of too many at once the oldest goes;
- a failed one is told in one line, and to the peer by TLS's alert.

CPU time of the server for an echo, a connection of its own process on the other side:

===========================  =====  ==================  =======  ====================
frames                       here   uvloop's own TLS    asyncio  asyncio's own TLS
===========================  =====  ==================  =======  ====================
1 KB in, 50 B out            20 µs  21 µs               25 µs    31 µs
1 MiB in, 50 B out           1.4 ms 1.4 ms              1.6 ms   1.6 ms
50 B in, 1 MiB out           0.65 ms 0.67 ms            0.80 ms  0.77 ms
===========================  =====  ==================  =======  ====================

Invariants: OpenSSL's object is used by one thread at a time, the loop does not touch it during a step;
nothing is handed to the connection before the handshake is done, and its principal is set by then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, Protocol, cast, runtime_checkable

from minikafka.network.addresses import format_address, split_address
from minikafka.security.acl import KafkaPrincipal
from minikafka.security.tls import reason_of
from minikafka.types import Buffer

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS_MAX = 10.0
"""From the accepted socket to the end of the handshake. Kafka leaves this to ``connections.max.idle.ms``."""

HANDSHAKES_MAX = 2_048
"""At once; each takes 50 KB or so."""

HANDSHAKE_BYTES_MAX = 32 * 1024 * 1024
"""What all of them may have in memory beyond the piece that is looked at (``PIECE_BYTES``): a client may send
ahead with the last of its messages, up to 256 KiB at once. Half a gigabyte of 2,048 that have proved nothing
would be too much (CVE-2022-34917)."""

HANDSHAKE_THREADS = min(4, os.cpu_count() or 1)

READ_BYTES = 16 * 1024
"""A record of TLS has no more, and ``read`` gives one at a time."""

RECORDS_PER_TURN = 1_024
"""Read before other connections get the loop: 2.4 µs each. A chunk of 256 KiB has 16 full ones; of records
with a byte each it has thousands."""


HEADER_BYTES = 5
"""Of a record: type, version, and the length of what follows in the last two."""

PIECE_BYTES = 17 * 1024
"""Given to OpenSSL at once: a record with all that TLS adds to it, and some. What is no data, OpenSSL goes
through within one call: a chunk of 256 KiB is 9,700 KeyUpdates, a piece 640. A client that sent them for 20 s
held up a producer for 14 s, on a machine that was busy.
Others get the loop when so many bytes of a chunk were no data; a peer that sends more without any is closed,
as BoringSSL closes one after 32 KeyUpdates in a row."""


class TlsListener(Protocol):
    """What a listener's connections need; see ``server/security/transport.py``."""

    def context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        ...

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """Of a peer with this certificate (DER), or none. Raises ValueError: there is none for its name."""
        ...


@runtime_checkable
class SecuredProtocol(Protocol):
    """What is above TLS, where it wants to know of the handshake: ``Connection``. HTTP's does not."""

    def secured(self, principal: KafkaPrincipal) -> None:
        """The handshake is done, by this peer; what it sends comes from now on."""
        ...


class Handshakes:
    """Those under way on one server: their threads, their deadline, how many there may be."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        seconds_max: float = HANDSHAKE_SECONDS_MAX,
        count_max: int = HANDSHAKES_MAX,
    ) -> None:
        self.loop = loop
        self._seconds_max = seconds_max
        self._count_max = count_max
        self._under_way: dict[TlsTransport, float] = {}
        """With the times by which they end, the earliest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(HANDSHAKE_THREADS, thread_name_prefix="minikafka-tls")
        self.failed: dict[str, int] = {}
        """By listener name."""
        self.done: dict[str, int] = {}
        self.note_failure: Callable[[str, str, str], None] = lambda listener_name, peer, why: None
        """Told of each that failed."""

    def __repr__(self) -> str:
        return f"Handshakes({len(self._under_way)} under way, done={self.done}, failed={self.failed})"

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, transport: TlsTransport) -> None:
        if len(self._under_way) >= self._count_max:
            next(iter(self._under_way)).expire(f"there are already {len(self._under_way)} handshakes")
        self._under_way[transport] = self.loop.time() + self._seconds_max
        if self._timer is None:
            self._timer = self.loop.call_later(self._seconds_max, self._expire)

    def end(self, transport: TlsTransport) -> None:
        """Harmless when it is not under way."""
        self._under_way.pop(transport, None)

    @property
    def unread_bytes(self) -> int:
        """What those under way have in memory, and OpenSSL has not seen."""
        return sum(each.unread_bytes for each in self._under_way)

    def step(self, ssl_object: ssl.SSLObject) -> asyncio.Future[None]:
        """Go on with a handshake, in a thread."""
        return self.loop.run_in_executor(self._threads, ssl_object.do_handshake)

    def close(self) -> None:
        """Once no connection is left. Steps under way end by themselves."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _expire(self) -> None:
        now = self.loop.time()
        self._timer = None
        for transport, deadline in list(self._under_way.items()):
            if deadline > now:
                self._timer = self.loop.call_at(deadline, self._expire)
                return
            transport.expire(f"no end after {self._seconds_max:g} s")


class _State(Enum):
    HANDSHAKE = auto()
    """Nothing has been handed up yet."""
    OPEN = auto()
    REFUSED = auto()
    """The handshake has failed and the peer been told; what it still sends is read and dropped, or the
    system would reset the connection and the alert be lost."""
    CLOSED = auto()
    """By either side: nothing is read or written any more."""


class _Ended(Exception):
    """The peer sends no more, or is not listened to any more."""


class _Unread:
    """What came and is not given to OpenSSL yet. It goes there in pieces of ``PIECE_BYTES`` at most that end
    where a record of TLS ends, if one does: to wait for the rest of one costs an exception. Bytes that are no
    TLS are cut somewhere, and OpenSSL refuses them."""

    __slots__ = ("_bytes", "_head", "_missing")

    def __init__(self) -> None:
        self._bytes = memoryview(b"")
        self._head = b""
        """What was given of a record's header, when not all of it."""
        self._missing = 0
        """How much of the record is not given yet whose header was."""

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes = memoryview(b"".join((self._bytes, data)) if self._bytes else data)

    def next_piece(self) -> memoryview:
        """Empty when there is nothing."""
        there = self._bytes
        if not there:
            return there
        limit = min(len(there), PIECE_BYTES)
        end = self._missing
        if self._head:
            rest = HEADER_BYTES - len(self._head)
            self._head += there[:rest]
            if len(self._head) == HEADER_BYTES:
                end = rest + int.from_bytes(self._head[3:], "big")
                self._head = b""
            else:
                end = limit
        while end + HEADER_BYTES <= limit:
            behind = end + HEADER_BYTES + (there[end + 3] << 8 | there[end + 4])
            if behind > limit:
                break
            end = behind
        if not end:  # the first record is not all here
            end = limit
            if limit >= HEADER_BYTES:
                end = HEADER_BYTES + (there[3] << 8 | there[4])
            else:
                self._head = bytes(there[:limit])
        self._missing = max(0, end - limit)
        end = min(end, limit)
        self._bytes = there[end:]
        return there[:end]


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """See the module header. Made for each accepted socket."""

    def __init__(
        self,
        above: asyncio.Protocol,
        *,
        listener_name: str,
        tls: TlsListener,
        handshakes: Handshakes,
    ) -> None:
        super().__init__()
        self._above = above
        self._listener_name = listener_name
        self._tls = tls
        self._handshakes = handshakes
        self._below: asyncio.Transport = cast(asyncio.Transport, None)
        self._ssl: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._state = _State.HANDSHAKE
        self._is_stepping = False
        self._unread = _Unread()
        self._silent_bytes = 0
        """Given to OpenSSL since there was data."""
        self._is_paused = False
        """By what is above."""
        self._is_reading = True
        self._is_behind = False
        """Records wait in memory for the loop's next turn."""

    def __repr__(self) -> str:
        return f"TlsTransport({self._peer()}, {self._state.name})"

    @property
    def unread_bytes(self) -> int:
        """Of what came, what is not given to OpenSSL yet."""
        return len(self._unread)

    # The socket's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._above.connection_made(self)
        if self._state is _State.HANDSHAKE:
            self._handshakes.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state is _State.HANDSHAKE and self._ssl is not None:
            logger.info("%s ended its handshake before it was done", self._whom())
        self._state = _State.CLOSED
        self._handshakes.end(self)
        self._above.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._state is _State.OPEN:
            self._unread.add(data)
            if not self._is_behind:
                self._read()
        elif self._state is _State.HANDSHAKE:
            self._unread.add(data)
            if self.unread_bytes > PIECE_BYTES and self._handshakes.unread_bytes > HANDSHAKE_BYTES_MAX:
                self.expire("too much has come ahead of the ends of handshakes")
            elif not self._is_stepping:
                self._step()

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    # The handshake.

    def _step(self) -> None:
        if self._ssl is None:
            try:
                context = self._tls.context()
            except Exception as error:  # noqa: BLE001  # no usable store
                self._fail(str(error))
                return
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._feed()
        self._is_stepping = True
        self._settle_reading()
        self._handshakes.step(self._ssl).add_done_callback(self._stepped)

    def _stepped(self, step: asyncio.Future[None]) -> None:
        self._is_stepping = False
        if step.cancelled() or self._state is not _State.HANDSHAKE:
            return
        error = step.exception()
        self._send()
        if error is None:
            self._established()
        elif not isinstance(error, ssl.SSLWantReadError):
            self._fail(reason_of(error))
            return
        if error is not None and self._unread:
            self._step()
        self._settle_reading()

    def _established(self) -> None:
        assert self._ssl is not None
        try:
            principal = self._tls.principal(self._ssl.getpeercert(True))
        except ValueError as error:
            self._fail(str(error))
            return
        self._state = _State.OPEN
        self._handshakes.end(self)
        done = self._handshakes.done
        done[self._listener_name] = done.get(self._listener_name, 0) + 1
        if isinstance(self._above, SecuredProtocol):
            self._above.secured(principal)
        if self._unread or self._incoming.pending or self._ssl.pending():
            self._read()

    def expire(self, why: str) -> None:
        """The handshake has to end now."""
        self._handshakes.end(self)
        if self._state is _State.HANDSHAKE:
            self._count_failure(why)
            logger.info(
                "closing the connection from %s: its TLS handshake is not done: %s", self._whom(), why
            )
        self.abort()

    def _fail(self, why: str) -> None:
        """The alert is on its way; what is left of the deadline is for the peer to take it."""
        self._count_failure(why)
        logger.info("the TLS handshake with %s failed: %s", self._whom(), why)
        self._state = _State.REFUSED
        self._unread = _Unread()
        self._settle_reading()
        if not self._below.is_closing():
            self._below.write_eof()

    def _count_failure(self, why: str) -> None:
        failed = self._handshakes.failed
        failed[self._listener_name] = failed.get(self._listener_name, 0) + 1
        self._handshakes.note_failure(self._listener_name, self._peer(), why)

    # Bytes, once it is done.

    def _feed(self) -> int:
        """Give OpenSSL the next piece of what came; returns its bytes."""
        return self._incoming.write(self._unread.next_piece())

    def _check_silence(self, silent_bytes: int) -> None:
        """Raises _Ended: the peer has sent more without any data than it may."""
        self._silent_bytes = self._silent_bytes + silent_bytes if silent_bytes else 0
        if self._silent_bytes > PIECE_BYTES:
            logger.info(
                "closing the connection from %s: %d bytes of TLS have come without any data",
                self._whom(),
                self._silent_bytes,
            )
            raise _Ended

    def _read(self) -> None:
        chunks: list[bytes] = []
        ended = is_late = False
        overhead_bytes = 0
        try:
            while not is_late:
                piece_bytes = self._feed()
                data_bytes = self._decrypt(chunks)
                self._check_silence(0 if data_bytes else piece_bytes)
                overhead_bytes += piece_bytes - data_bytes
                is_late = len(chunks) >= RECORDS_PER_TURN or (
                    overhead_bytes >= PIECE_BYTES and bool(self._unread)
                )
                if not self._unread:
                    break
            if is_late:
                self._is_behind = True
                self._settle_reading()
                self._handshakes.loop.call_soon(self._catch_up)
        except _Ended:
            ended = True
        except ssl.SSLError as error:
            logger.info("closing the connection from %s: %s", self._whom(), reason_of(error))
            ended = True
        if self._outgoing.pending:
            self._send()
        if chunks:
            self._above.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if ended:
            self.close()

    def _decrypt(self, chunks: list[bytes]) -> int:
        """Add the data of the records that OpenSSL has; returns its bytes. Raises _Ended: there will be no
        more."""
        ssl_object, incoming = self._ssl, self._incoming
        assert ssl_object is not None
        data_bytes = 0
        try:
            while len(chunks) < RECORDS_PER_TURN:
                chunk = ssl_object.read(READ_BYTES)
                if not chunk:
                    raise _Ended
                chunks.append(chunk)
                data_bytes += len(chunk)
                if not incoming.pending and not ssl_object.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        return data_bytes

    def _catch_up(self) -> None:
        self._is_behind = False
        if self._state is _State.OPEN:
            self._read()
            self._settle_reading()

    def _send(self) -> None:
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    # The connection's transport.

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        if self._state is not _State.OPEN:
            return
        assert self._ssl is not None
        for data in list_of_data:
            sent = self._ssl.write(data)
            while sent < len(data):  # a build of OpenSSL that takes a record at a time
                data = memoryview(data)[sent:]
                sent = self._ssl.write(data)
        self._send()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._settle_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._settle_reading()

    def _settle_reading(self) -> None:
        match self._state:
            case _State.HANDSHAKE:
                wanted = not self._is_stepping
            case _State.OPEN:
                wanted = not self._is_paused and not self._is_behind
            case _:
                wanted = True
        if wanted != self._is_reading and not self._below.is_closing():
            self._is_reading = wanted
            if wanted:
                self._below.resume_reading()
            else:
                self._below.pause_reading()

    def is_closing(self) -> bool:
        return self._state is _State.CLOSED or self._below.is_closing()

    def close(self) -> None:
        """What was written still leaves, and TLS's own end after it."""
        if self._state is _State.OPEN:
            self._state = _State.CLOSED
            assert self._ssl is not None
            try:
                self._ssl.unwrap()
            except ssl.SSLError:  # the peer's end is not waited for
                pass
            self._send()
            self._below.close()
        elif self._state is not _State.CLOSED:
            self.abort()

    def abort(self) -> None:
        self._state = _State.CLOSED
        self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``ssl_object`` is there once the first bytes have come."""
        if name == "ssl_object":
            return self._ssl or default
        return self._below.get_extra_info(name, default)

    def _peer(self) -> str:
        return format_address(*split_address(self._below.get_extra_info("peername")))

    def _whom(self) -> str:
        return f"{self._peer()} on {self._listener_name}"


def tls_factory(
    make: Callable[[], asyncio.Protocol], *, listener_name: str, tls: TlsListener, handshakes: Handshakes
) -> Callable[[], TlsTransport]:
    """For ``create_server``: ``make`` makes what is above TLS."""
    return lambda: TlsTransport(make(), listener_name=listener_name, tls=tls, handshakes=handshakes)
