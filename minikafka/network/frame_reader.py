"""Bytes in, frames out: cuts what a socket delivers into Kafka frames. No I/O.

Kafka's ``NetworkReceive``. A frame is a 4-byte big-endian size and that many bytes.

Invariants:
- A frame that arrived in one chunk is a view of that chunk; no byte of it is copied. A frame in several
  chunks is collected in one ``bytearray``: each byte is copied once, whatever the number of chunks.
- Memory grows with the bytes that arrive, never with the size that a header claims.
- The result does not depend on where the chunks were cut: frames in front of a bad size are delivered first,
  then ``error`` is set and nothing more comes out.
"""

from __future__ import annotations

from struct import Struct

from minikafka.errors import PeerProtocolError
from minikafka.types import Buffer

_SIZE = Struct(">i")


class FrameReader:
    """One direction of one connection."""

    __slots__ = ("_frame", "_frame_bytes_max", "_missing_bytes", "_rest", "error", "expected_bytes")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._rest = b""  # up to 3 bytes of a size
        self._frame = bytearray()  # the frame being collected
        self._missing_bytes = 0
        self.expected_bytes = 0
        """The whole size of the frame being collected; 0 between frames."""
        self.error: PeerProtocolError | None = None
        """Set once the peer has sent a size that cannot be; the connection is of no more use."""

    def __repr__(self) -> str:
        return f"FrameReader({self.buffered_bytes} of {self.expected_bytes} bytes, error={self.error})"

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept here for a frame that is not complete."""
        return len(self._frame) + len(self._rest)

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
        if self._missing_bytes:
            if end < self._missing_bytes:
                self._frame += data
                self._missing_bytes -= end
                return frames
            position = self._missing_bytes
            self._frame += memoryview(data)[:position]
            frames.append(self._frame)
            self._frame = bytearray()
            self._missing_bytes = self.expected_bytes = 0
            if position == end:
                return frames
        elif self._rest:
            data = self._rest + data
            self._rest = b""
            end = len(data)
        view = memoryview(data)
        size_of = _SIZE.unpack_from
        while end - position >= 4:
            (size,) = size_of(data, position)
            if not 0 <= size <= self._frame_bytes_max:
                self.error = PeerProtocolError(
                    f"a frame of {size} bytes, allowed are 0 to {self._frame_bytes_max}"
                    " (socket.request.max.bytes)"
                )
                return frames
            position += 4
            stop = position + size
            if stop > end:
                self._frame = bytearray(view[position:])
                self._missing_bytes = stop - end
                self.expected_bytes = size
                return frames
            frames.append(view[position:stop])
            position = stop
        if position < end:
            self._rest = bytes(view[position:])
        return frames
