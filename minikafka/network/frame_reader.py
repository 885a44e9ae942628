"""Bytes in, frames out: cuts what a socket delivers into Kafka frames. No I/O.

Kafka's ``NetworkReceive``. A frame is a 4-byte big-endian size and that many bytes.

Invariants:
- A frame that arrived in one chunk is a view of that chunk; no byte of it is copied. A frame in several
  chunks is collected in one buffer: each byte is copied once, whatever the number of chunks, and not at all
  when it is received there (``room``).
- A buffer is used again only when no view of it is left.
- Memory grows with the bytes that arrive, never with the size that a header claims. But for ``LargeFrames``:
  a claim can have these made, of which a server has a few and no more.
- The result does not depend on where the chunks were cut: frames in front of a bad size are delivered first,
  then ``error`` is set and nothing more comes out.
"""

from __future__ import annotations

from struct import Struct

from minikafka.errors import PeerProtocolError
from minikafka.types import Buffer

_TLS_MASK, _TLS_HANDSHAKE = 0xFFFFFF00, 0x16030100
"""How a handshake of TLS begins: 0x16, then the version 3.1, and half of a length."""

_SIZE = Struct(">i")

KEPT_TIMES_MAX = 8
"""A buffer that is this many times as large as the next frame is given back."""

LARGE_BYTES_MIN = 128 * 1024
"""A frame this large is received where it stays: below, it is not worth the change of how is read."""

LARGE_BYTES_MAX = 1024 * 1024 + 64 * 1024
"""And at most this large: what producers send at most by default (``max.request.size``), and what is around
it."""

LARGE_FRAMES_MAX = 8
"""Of one server, kept for good. A connection that finds none free collects the frame in chunks."""


def _is_free(buffer: bytearray) -> bool:
    """Whether what it had is forgotten: a ``bytearray`` that has views refuses to change its size."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


class LargeFrames:
    """Memory for large frames, which all connections of a server share: it is there already, where fresh
    memory costs a page fault per 4 KiB, and peers who claim a size and send nothing cannot make it grow."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def borrow(self, frame_bytes: int) -> memoryview | None:
        """Room for a frame, given back when no view of it is left. None: of this size, or now, there is
        none."""
        if not LARGE_BYTES_MIN <= frame_bytes <= LARGE_BYTES_MAX:
            return None
        for buffer in self._buffers:
            if _is_free(buffer):
                return memoryview(buffer)[:frame_bytes]
        if len(self._buffers) == LARGE_FRAMES_MAX:
            return None
        self._buffers.append(bytearray(LARGE_BYTES_MAX))
        return memoryview(self._buffers[-1])[:frame_bytes]


class _FrameBuffer:
    """Where a frame in several chunks is collected."""

    __slots__ = ("_borrowed", "_buffer", "_is_kept", "_large_frames", "filled")

    def __init__(self, *, is_kept: bool, large_frames: LargeFrames | None) -> None:
        self._buffer = bytearray()
        self._is_kept = is_kept
        self._large_frames = large_frames
        self._borrowed: memoryview | None = None
        self.filled = 0
        """How much of the frame is here."""

    def begin(self, frame_bytes: int) -> None:
        self.filled = 0
        if self._large_frames is not None:
            self._borrowed = self._large_frames.borrow(frame_bytes)
            if self._borrowed is not None:
                return
        if len(self._buffer) > KEPT_TIMES_MAX * frame_bytes or not _is_free(self._buffer):
            self._buffer = bytearray()

    def room(self) -> memoryview | None:
        return None if self._borrowed is None else self._borrowed[self.filled :]

    def add(self, chunk: memoryview) -> None:
        start, stop = self.filled, self.filled + len(chunk)
        if self._borrowed is not None:
            self._borrowed[start:stop] = chunk
            self.filled = stop
            return
        room = len(self._buffer) - start
        if room > 0:
            with memoryview(self._buffer) as view:
                view[start:stop] = chunk[:room]
        if len(chunk) > room:
            self._buffer += chunk[room:]
        self.filled = stop

    def forget(self) -> None:
        self._buffer, self._borrowed, self.filled = bytearray(), None, 0

    def take(self) -> Buffer:
        """The frame, which is complete."""
        frame: Buffer = self._buffer
        if self._borrowed is not None:
            frame, self._borrowed = self._borrowed, None
        elif self._is_kept:
            frame = memoryview(self._buffer)[: self.filled]
        else:
            self._buffer = bytearray()
        self.filled = 0
        return frame


class FrameReader:
    """One direction of one connection.

    Args:
        keeps_buffer: collect the next frame where the last one was, if it is forgotten by then. For the few
            connections that carry one large frame after the other: fresh memory for each costs a page fault
            per 4 KiB, a fifth of the time of a follower that catches up.
        large_frames: for a connection of many, which have that memory in common.
    """

    __slots__ = (
        "_frame",
        "_size_prefix",
        "begun",
        "error",
        "expected_bytes",
        "frame_bytes_max",
        "missing_bytes",
    )

    def __init__(
        self, *, frame_bytes_max: int, keeps_buffer: bool = False, large_frames: LargeFrames | None = None
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        """Holds for the frames that begin from now on."""
        self._size_prefix = b""  # up to 3 bytes of a size
        self._frame = _FrameBuffer(is_kept=keeps_buffer, large_frames=large_frames)  # being collected
        self.missing_bytes = 0
        """Of the frame being collected."""
        self.expected_bytes = 0
        """The whole size of the frame being collected; 0 between frames."""
        self.begun = 0
        """How many frames were begun that did not come in one chunk."""
        self.error: PeerProtocolError | None = None
        """Set once the peer has sent a size that cannot be; the connection is of no more use."""

    def __repr__(self) -> str:
        return f"FrameReader({self.buffered_bytes} of {self.expected_bytes} bytes, error={self.error})"

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept here for a frame that is not complete."""
        return self._frame.filled + len(self._size_prefix)

    def feed(self, data: bytes) -> list[Buffer]:
        """The frames that ``data`` completes, without their sizes, in order.

        ``data`` is kept alive by the frames that view it; the caller owns the frames. Never raises: see
        ``error``.
        """
        if self.error is not None:
            return []
        frames: list[Buffer] = []
        position = 0
        end = len(data)
        if self.missing_bytes:
            position = min(end, self.missing_bytes)
            self._frame.add(memoryview(data)[:position])
            frames += self._grown(position)
            if position == end:
                return frames
        elif self._size_prefix:
            data = self._size_prefix + data
            self._size_prefix = b""
            end = len(data)
        view = memoryview(data)
        size_of = _SIZE.unpack_from
        while end - position >= 4:
            (size,) = size_of(data, position)
            if not 0 <= size <= self.frame_bytes_max:
                self.error = PeerProtocolError(
                    "the peer speaks TLS, this listener does not"
                    if size & _TLS_MASK == _TLS_HANDSHAKE
                    else f"a frame of {size} bytes, allowed are 0 to {self.frame_bytes_max}"
                    " (socket.request.max.bytes)"
                )
                return frames
            position += 4
            stop = position + size
            if stop > end:
                self._frame.begin(size)
                self._frame.add(view[position:])
                self.missing_bytes = stop - end
                self.expected_bytes = size
                self.begun += 1
                return frames
            frames.append(view[position:stop])
            position = stop
        if position < end:
            self._size_prefix = bytes(view[position:])
        return frames

    def room(self) -> memoryview | None:
        """Where the remainder of a large frame may be received, in order and without a copy; ``received`` is
        told. None: ``feed`` is the only way."""
        return self._frame.room()

    def received(self, count: int) -> list[Buffer]:
        """So many bytes are in ``room``. The frame, when it is complete."""
        self._frame.filled += count
        return self._grown(count)

    def forget(self) -> None:
        """The connection is over, and the memory for its frame is another's."""
        self._frame.forget()
        self.missing_bytes = self.expected_bytes = 0

    def _grown(self, count: int) -> list[Buffer]:
        self.missing_bytes -= count
        if self.missing_bytes:
            return []
        self.expected_bytes = 0
        return [self._frame.take()]
