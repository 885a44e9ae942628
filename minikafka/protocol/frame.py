"""A stream of bytes cut into frames: each is a big-endian int32 size and that many bytes.

Kafka: ``NetworkReceive`` (size check, ``socket.request.max.bytes``). It allocates the whole frame once the
size is known; here memory grows with what has arrived, at most twofold, so that a peer cannot reserve 100
MiB with four bytes.

Invariants: bytes leave in the order they came; a frame that lies within one chunk is a view of it, not a
copy; a frame over several chunks is copied once into its own buffer, plus what doubling that buffer costs.
"""

from __future__ import annotations

from struct import Struct

from minikafka.errors import PeerProtocolError
from minikafka.types import Buffer

_SIZE = Struct(">i")

_FIRST_RESERVE_BYTES = 64 * 1024
"""What the first byte of a split frame reserves: one chunk as uvloop and asyncio usually read it."""


class FrameReader:
    """Feed it what a socket gives; it returns the frames that are complete.

    After ``PeerProtocolError`` the stream has no meaning any more: close the connection.
    """

    __slots__ = ("_buffer", "_frame_bytes_max", "_received", "_size", "_size_prefix")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._size_prefix = b""  # the first 0 to 3 bytes of a size
        self._buffer: bytearray | None = None  # a frame whose size is known and whose rest is still to come
        self._size = 0
        self._received = 0

    def __repr__(self) -> str:
        if self._buffer is None:
            return f"FrameReader({len(self._size_prefix)} of 4 size bytes)"
        return f"FrameReader({self._received} of {self._size} bytes)"

    @property
    def buffered_bytes(self) -> int:
        """Bytes held for frames that are not complete."""
        return len(self._size_prefix) if self._buffer is None else len(self._buffer)

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take ``data`` in; return the frames it completes, without their sizes, read-only.

        The frames may be views of ``data``, which must not change while they are in use.

        Raises:
            PeerProtocolError: a size below 0 or above ``frame_bytes_max``.
        """
        view = memoryview(data).toreadonly()
        position = 0
        end = len(view)
        frames: list[memoryview] = []
        if self._buffer is not None:
            position = self._fill(view, 0)
            if self._received < self._size:
                return frames
            frames.append(self._take())
        elif self._size_prefix:
            missing = 4 - len(self._size_prefix)
            prefix = self._size_prefix + view[:missing].tobytes()
            if len(prefix) < 4:
                self._size_prefix = prefix
                return frames
            self._size_prefix = b""
            position = missing
            size = self._checked(_SIZE.unpack(prefix)[0])
            if end - position < size:
                self._begin(size, view, position)
                return frames
            frames.append(view[position : position + size])
            position += size
        while end - position >= 4:
            size = self._checked(_SIZE.unpack_from(view, position)[0])
            position += 4
            if end - position < size:
                self._begin(size, view, position)
                return frames
            frames.append(view[position : position + size])
            position += size
        self._size_prefix = view[position:].tobytes()
        return frames

    def _checked(self, size: int) -> int:
        if 0 <= size <= self._frame_bytes_max:
            return size
        raise PeerProtocolError(f"a frame of {size} bytes; 0 to {self._frame_bytes_max} are allowed")

    def _begin(self, size: int, view: memoryview, position: int) -> None:
        self._size = size
        self._received = 0
        self._buffer = bytearray(min(size, max(_FIRST_RESERVE_BYTES, len(view) - position)))
        self._fill(view, position)

    def _fill(self, view: memoryview, position: int) -> int:
        """Copy what belongs to the open frame; returns the position behind it."""
        buffer = self._buffer
        assert buffer is not None
        count = min(self._size - self._received, len(view) - position)
        received = self._received + count
        if received > len(buffer):
            grown = min(self._size, max(received, 2 * len(buffer)))
            buffer.extend(bytes(grown - len(buffer)))
        buffer[self._received : received] = view[position : position + count]
        self._received = received
        return position + count

    def _take(self) -> memoryview:
        frame = memoryview(self._buffer or b"").toreadonly()
        self._buffer = None
        return frame
