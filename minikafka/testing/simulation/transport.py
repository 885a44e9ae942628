"""``SimulatedTransport``: one end of a connection in memory, with what of TCP and of asyncio can be noticed;
and the links below it.

    application | asyncio's buffer  → kernel's window →  link  → receive buffer | application
                  (pause_writing)     (WINDOW_BYTES)     (FIFO)   (pause_reading)

Invariants:
- Bytes arrive in order and once, cut into other fragments than they were sent in; what travels besides are
  three signals.
- ``_in_flight_bytes`` is what was sent and has not been read, as far as this end knows: a peer that does not
  read, or whose acknowledgements cannot come, fills the window, then this end's buffer, and then
  ``pause_writing`` is called.
- ``connection_lost`` is called exactly once on an end whose process lives, and nothing is called after it.
- An end that was closed answers data with a reset. An end whose machine has no power answers nothing.

What is sent and not acknowledged for ``RETRANSMISSION_LIMIT_MS`` breaks the connection (ETIMEDOUT), as Linux
does; an idle connection to a dead machine stays open for ever.

A link is one direction of a pair of hosts: how long the way takes, whether it is cut, and what travels on it
in order. A ``Channel`` is one direction of one connection on a link, as TCP makes it of packets: what is sent
arrives in order, and nothing is lost while the connection lasts. A cut link holds back what is sent; what was
already under way arrives. After the cut has healed TCP sends again, at some time of its own choosing.

What servers and transports show as their sockets has names, and options without effect.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from itertools import pairwise
from typing import Any

from minikafka.testing.simulation.loop import NS_PER_MS, Host, Process, VirtualTimeLoop
from minikafka.types import Buffer

DELAY_MS = (0.1, 1.0)
"""One way between two hosts of a data centre, with their kernels' share."""
LOOPBACK_DELAY_MS = (0.01, 0.05)
RETRANSMISSION_MS = (0.0, 200.0)
"""How long after the end of a cut the data comes: TCP's smallest retransmission timeout is 200 ms. After long
cuts it can be minutes; a scenario that wants this heals later."""

HARDWARE = Context()
"""What belongs to no process: wires, kernels, the store's servers."""

Address = tuple[str, int]

OPEN, FIN, RST = "OPEN", "FIN", "RST"
"""The handshake's third step, the end of the data, the end of everything."""

Message = bytes | str

FRAGMENTED_SHARE = 0.2
"""How many of the writes arrive in several fragments."""
FRAGMENTS_MAX = 4

WINDOW_BYTES = 256 * 1024
"""Send and receive buffer of the kernels together."""
HIGH_WATER_BYTES = 64 * 1024
"""asyncio's own default for ``pause_writing``."""
READ_BYTES_MAX = 256 * 1024
"""asyncio's ``max_size``: what one ``data_received`` gets at most."""
RETRANSMISSION_LIMIT_MS = 924_600
"""Linux's tcp_retries2 = 15."""


# Links


class Link:
    """From ``source`` to ``target``."""

    __slots__ = (
        "_channels", "_loop", "_on_open", "_random", "_rng", "delay_ms", "is_cut", "refuses", "source",
        "target",
    )  # fmt: skip

    def __init__(self, source: Host, target: Host, *, loop: VirtualTimeLoop, rng: random.Random) -> None:
        self.source = source
        self.target = target
        self.delay_ms = LOOPBACK_DELAY_MS if source is target else DELAY_MS
        self.is_cut = False
        self.refuses = False
        """While cut: new connections are refused at once, instead of waiting for an answer."""
        self._loop = loop
        self._rng = rng
        self._random = rng.random
        self._channels: dict[Channel, None] = {}
        self._on_open: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "cut" if self.is_cut else f"{self.delay_ms[0]:g} to {self.delay_ms[1]:g} ms"
        return f"Link({self.source.name} to {self.target.name}, {state})"

    @property
    def is_open(self) -> bool:
        """Whether what is sent now will arrive."""
        return not self.is_cut and self.target.is_up

    def draw_delay_ns(self) -> int:
        least_ms, most_ms = self.delay_ms
        return round((least_ms + (most_ms - least_ms) * self._random()) * NS_PER_MS)

    def draw_retransmission_ns(self) -> int:
        return round(self._rng.uniform(*RETRANSMISSION_MS) * NS_PER_MS)

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the link is open again, once."""
        self._on_open.append(callback)

    def hold(self, channel: Channel) -> None:
        """``channel`` waits for the link to open."""
        self._channels[channel] = None

    def opened(self) -> None:
        """The cut is over, or the target has power again: everything that waits is sent."""
        if not self.is_open:
            return
        channels, self._channels = self._channels, {}
        for channel in channels:
            channel.release()
        callbacks, self._on_open = self._on_open, []
        for callback in callbacks:
            callback()


class Channel:
    """Messages in order. ``deliver`` is called in the hardware's context, not in a process's."""

    __slots__ = (
        "_deliver", "_held", "_is_closed", "_last_ns", "_loop", "_stuck", "_transmission", "_under_way",
        "link",
    )  # fmt: skip

    def __init__(
        self,
        link: Link,
        deliver: Callable[[Any], None],
        *,
        loop: VirtualTimeLoop,
        stuck: Callable[[], None] | None = None,
    ) -> None:
        """``stuck`` is called when a message has to wait for the link to open."""
        self.link = link
        self._deliver = deliver
        self._stuck = stuck
        self._loop = loop
        self._last_ns = 0
        self._under_way: deque[Any] = deque()
        self._held: list[Any] = []
        self._transmission = 0  # arrivals of an earlier one are void: its messages are sent again
        self._is_closed = False

    @property
    def is_stuck(self) -> bool:
        """Whether messages wait for the link to open."""
        return bool(self._held)

    def send(self, message: Any) -> None:
        if self._is_closed:
            return
        link = self.link
        if self._held or link.is_cut or not link.target.is_up:
            self._hold([message])
        else:
            self._transmit(message, self._loop.now_ns + link.draw_delay_ns())

    def release(self) -> None:
        """The link is open: send what was held."""
        held, self._held = self._held, []
        again_ns = self._loop.now_ns + self.link.draw_retransmission_ns()
        for message in held:
            self._transmit(message, again_ns + self.link.draw_delay_ns())

    def close(self) -> list[Any]:
        """Send nothing more; what is under way arrives. Returns what was held."""
        held, self._held = self._held, []
        self._is_closed = True
        return held

    def _transmit(self, message: Any, when_ns: int) -> None:
        if when_ns > self._last_ns:
            self._last_ns = when_ns
        self._under_way.append(message)
        self._loop.set_timer(self._last_ns, self._arrive, (self._transmission,), HARDWARE)

    def _arrive(self, transmission: int) -> None:
        if transmission != self._transmission:
            return
        if self.link.target.is_up:
            self._deliver(self._under_way.popleft())
            return
        self._transmission += 1
        under_way, self._under_way = list(self._under_way), deque()
        if not self._is_closed:  # nothing of it is acknowledged, so all of it will be sent again
            later, self._held = self._held, []
            self._hold(under_way + later)

    def _hold(self, messages: list[Any]) -> None:
        self._held += messages
        self.link.hold(self)
        if self._stuck is not None:
            self._stuck()


# Transports


class SimulatedSocket:
    """As much of a socket as asyncio's users may ask of one."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, sockname: Address, peername: Address | None = None) -> None:
        self._sockname = sockname
        self._peername = peername
        self._options: dict[tuple[int, int], Any] = {}

    def __repr__(self) -> str:
        return f"SimulatedSocket({self._sockname}, {self._peername})"

    def getsockname(self) -> Address:
        return self._sockname

    def getpeername(self) -> Address:
        if self._peername is None:
            raise OSError("the socket is not connected")
        return self._peername

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self._options[level, name] = value

    def getsockopt(self, level: int, name: int) -> Any:
        return self._options.get((level, name), 0)

    def fileno(self) -> int:
        """None that the system knows."""
        return -1


def fragments(data: bytes, rng: random.Random) -> Sequence[bytes]:
    """``data``, of two bytes at least, in the fragments that it arrives in."""
    count = min(len(data), rng.randint(2, FRAGMENTS_MAX))
    cuts = [0, *sorted(rng.sample(range(1, len(data)), count - 1)), len(data)]
    return [data[start:stop] for start, stop in pairwise(cuts)]


class SimulatedTransport(asyncio.Transport):
    """Made in pairs by ``SimulatedNetwork``. Its callbacks run in the context of the process that owns it."""

    def __init__(
        self,
        *,
        process: Process,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        loop: VirtualTimeLoop,
        rng: random.Random,
        gone: Callable[[SimulatedTransport], None],
        accept: Callable[[SimulatedTransport], None] | None = None,
    ) -> None:
        """``gone`` is told when the connection is over here; ``accept`` when it stands (the passive end)."""
        self.process = process
        self.peer: SimulatedTransport
        self.sockname = sockname
        self.peername = peername
        self._out: Channel
        self._loop = loop
        self._rng = rng
        self._context: Context = process.context()
        self._protocol: Any = None
        self._gone = gone
        self._on_accept = accept
        self._is_made = False  # connection_made was called
        self._is_closing = False  # the application has closed it, or it is lost
        self._is_closed = False  # for the kernel: what comes is answered with a reset
        self._is_reading = True
        self._is_paused = False
        self._high_bytes, self._low_bytes = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._buffer: deque[memoryview] = deque()
        self._buffer_bytes = 0
        self._in_flight_bytes = 0
        self._received: deque[Message] = deque()
        self._drain_is_scheduled = False
        self._flush_is_scheduled = False
        self._patience: asyncio.TimerHandle | None = None
        self._eof_written = False
        self._breaks_next = False
        super().__init__(
            {"socket": SimulatedSocket(sockname, peername), "sockname": sockname, "peername": peername}
        )

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "closing" if self._is_closing else "open"
        mine, theirs = (f"{host}:{port}" for host, port in (self.sockname, self.peername))
        return f"<SimulatedTransport {mine} to {theirs} of {self.process.host.name}, {state}>"

    def connect(self, peer: SimulatedTransport, out: Channel) -> None:
        """Set the other end, and how to get there."""
        self.peer, self._out = peer, out

    def open(self, protocol: Any) -> None:
        """The connection stands: tell the application. Runs in the process's context."""
        self._protocol = protocol
        self._is_made = True
        protocol.connection_made(self)
        self._schedule_drain()

    def send_open(self) -> None:
        """The last step of the handshake; what is written comes after it."""
        self._out.send(OPEN)

    def refuse(self) -> None:
        """There is no listener."""
        self._is_closing = self._is_closed = True
        self._received.clear()
        self._out.send(RST)
        self._gone(self)

    def _accept(self) -> None:
        if self._on_accept is not None and not self._is_closed:
            self._on_accept(self)

    # asyncio.Transport: the application's side

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._schedule_drain()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low
        self._check_high_water()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def write(self, data: Buffer) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing or not data:
            return
        if self._received and self._received[-1] == RST:  # not read, but a write meets it
            self._lose(_error(errno.ECONNRESET, ConnectionResetError))
            return
        data = bytes(data)
        if not self._buffer and self._in_flight_bytes < WINDOW_BYTES:
            room = WINDOW_BYTES - self._in_flight_bytes
            self._transmit(data[:room])
            if len(data) <= room:
                return
            left = memoryview(data)[room:]
        else:
            left = memoryview(data)
        self._buffer.append(left)
        self._buffer_bytes += len(left)
        self._check_high_water()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_written and not self._is_closing:
            self._eof_written = True
            if not self._buffer:
                self._out.send(FIN)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._buffer:
                self._finish()

    def abort(self) -> None:
        if self._is_closed:
            return
        self._is_closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        self._finish()

    # The kernel's side. These run in no process's context.

    def arrived(self, message: Message) -> None:
        """Something has come over the wire."""
        if self._is_closed:
            if isinstance(message, bytes):
                self._out.send(RST)
        elif message == OPEN:
            self._loop.call_soon(self._accept, context=self._context)
        elif message == RST:
            self._received.clear()
            self._received.append(RST)
            self._schedule_drain()
        elif self._received or isinstance(message, str) or not self._reads_now():
            self._received.append(message)
            self._schedule_drain()
        else:
            self._acknowledge(len(message))
            self._context.run(self._give, message)

    def acknowledged(self, count: int) -> None:
        """The peer has read ``count`` bytes."""
        self._in_flight_bytes -= count
        if not self._out.is_stuck:
            self._stop_waiting()
        if (self._buffer or self._is_paused) and not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.call_soon(self._flush, context=self._context)

    def process_killed(self) -> None:
        """The process is gone, and the kernel closes for it: FIN, or RST when there is unread data."""
        if not self._is_closed:
            self._is_closing = self._is_closed = True
            self._buffer.clear()
            self._out.send(RST if self._received else FIN)
            self._stop_waiting()

    def power_lost(self) -> None:
        """The machine is gone without a word, with what its kernel had not sent."""
        self._is_closing = self._is_closed = True
        self._out.close()
        self._stop_waiting()

    def rebooted(self, out: Channel) -> None:
        """The machine is back and knows of no connection: what still comes is answered with a reset."""
        self._out = out

    def reset(self) -> None:
        """The network between the two has ended the connection."""
        if not self._is_closed:
            self._loop.call_soon(
                self._lose, _error(errno.ECONNRESET, ConnectionResetError), context=self._context
            )

    def break_in_frame(self) -> None:
        """The connection ends in the middle of what is sent next."""
        self._breaks_next = True

    # Sending

    def _transmit(self, data: bytes) -> None:
        if self._breaks_next and not self._is_closed:
            self._out.send(data[: len(data) // 2])
            self._out.send(RST)
            self._loop.call_soon(
                self._lose, _error(errno.ECONNRESET, ConnectionResetError), context=self._context
            )
            return
        size = len(data)
        self._in_flight_bytes += size
        if size < 2 or self._rng.random() >= FRAGMENTED_SHARE:
            self._out.send(data)
        else:
            for piece in fragments(data, self._rng):
                self._out.send(piece)

    def _flush(self) -> None:
        """The application's loop finds the socket writable."""
        self._flush_is_scheduled = False
        if self._is_closed:
            return
        while self._buffer and self._in_flight_bytes < WINDOW_BYTES:
            data = self._buffer.popleft()
            room = WINDOW_BYTES - self._in_flight_bytes
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._buffer_bytes -= len(data)
            self._transmit(bytes(data))
        if not self._buffer:
            if self._is_closing:
                self._finish()
            elif self._eof_written:
                self._out.send(FIN)
        if self._is_paused and self._buffer_bytes <= self._low_bytes and not self._is_closing:
            self._is_paused = False
            self._protocol.resume_writing()

    def wait_for_acknowledgement(self) -> None:
        """Give up when what was sent is not acknowledged in time. The kernel's timer runs in any case."""
        if self._patience is None and self._in_flight_bytes and not self._is_closed:
            self._patience = self._loop.call_later(
                RETRANSMISSION_LIMIT_MS / 1000, self._give_up, context=HARDWARE
            )

    def _give_up(self) -> None:
        self._patience = None
        self._loop.call_soon(self._lose, _error(errno.ETIMEDOUT, TimeoutError), context=self._context)

    def _check_high_water(self) -> None:
        if self._buffer_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    # Receiving

    def _reads_now(self) -> bool:
        return self.process.runs and self._is_made and self._is_reading and not self._is_closing

    def _acknowledge(self, count: int) -> None:
        """Tell the sender what was read, over the way back."""
        back = self._out.link
        if back.is_open:
            self.peer.acknowledged(count)
        else:
            back.when_open(lambda: self.peer.acknowledged(count))
            self.peer.wait_for_acknowledgement()

    def _schedule_drain(self) -> None:
        if self._received and not self._drain_is_scheduled:
            self._drain_is_scheduled = True
            self._loop.call_soon(self._drain, context=self._context)

    def _drain(self) -> None:
        """Give the application what has come meanwhile; a turn of the loop for each piece."""
        self._drain_is_scheduled = False
        if self._is_closing or not self._is_reading or not self._is_made or not self._received:
            return
        message = self._received.popleft()
        if isinstance(message, str):
            self._end_of_data(message)
        else:
            data = self._join(message)
            self._acknowledge(len(data))
            self._give(data)
        self._schedule_drain()

    def _join(self, first: bytes) -> bytes:
        """``first`` and what follows it, as one read gets it."""
        buffers = [first]
        size = len(first)
        while self._received and isinstance(self._received[0], bytes) and size < READ_BYTES_MAX:
            buffers.append(self._received.popleft())  # type: ignore[arg-type]
            size += len(buffers[-1])
        return first if len(buffers) == 1 else b"".join(buffers)

    def _give(self, data: bytes) -> None:
        try:
            while data and isinstance(self._protocol, asyncio.BufferedProtocol):
                room = memoryview(self._protocol.get_buffer(len(data)))
                count = min(len(data), len(room))
                room[:count] = data[:count]
                self._protocol.buffer_updated(count)
                data = data[count:]
            if data:
                self._protocol.data_received(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - as asyncio does: reported, and the connection is over
            self._loop.call_exception_handler(
                {
                    "message": f"data_received of {self._protocol!r} failed",
                    "exception": error,
                    "transport": self,
                }
            )
            self._lose(error)

    def _end_of_data(self, message: str) -> None:
        if message == RST:
            self._lose(_error(errno.ECONNRESET, ConnectionResetError))
        elif message == FIN and not self._protocol.eof_received():
            self.close()

    # The end

    def _finish(self) -> None:
        """Everything is sent: close the socket, tell the application in the loop's next turn."""
        if self._is_closed:
            return
        unread = self._received and self._received[-1] != FIN
        self._out.send(RST if unread else FIN)
        self._end(None)

    def _lose(self, error: Exception) -> None:
        """The connection broke."""
        if not self._is_closed:
            self._is_closing = True
            self._buffer.clear()
            self._buffer_bytes = 0
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._is_closed = True
        self._received.clear()
        self._stop_waiting()
        self._loop.call_soon(self._call_connection_lost, error, context=self._context)

    def _call_connection_lost(self, error: Exception | None) -> None:
        self._gone(self)
        if self._is_made:
            self._protocol.connection_lost(error)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _error(code: int, kind: type[OSError]) -> OSError:
    return kind(code, os.strerror(code))
