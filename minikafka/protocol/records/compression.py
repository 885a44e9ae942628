"""The five codecs of record batches, with a bound on what decompression may yield.

Kafka: ``CompressionType``, ``Compression``; KIP-57 (LZ4 frames), KIP-110 (zstd). Java and librdkafka write
snappy in xerial's framing (a magic, then blocks of at most 32 KiB, each raw snappy), others as one raw
block; both are read, and the framing is written, as Java's clients expect it.

Decompression never yields more than ``bytes_max``: gzip is inflated up to the bound, snappy states its size,
LZ4 and zstd are decompressed into a buffer that grows fourfold up to the bound, as long as it is too small.
The decoded bytes are the caller's own. cramjam does the work, as in aiokafka; gzip is zlib's.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

from minikafka.deferred import cramjam
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import Buffer

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
"""The default of snappy-java's ``SnappyOutputStream``."""

_SNAPPY_RATIO_MAX: Final = 24
"""Three bytes of a snappy copy stand for at most 64; a size beyond that is a lie and reserves nothing."""

_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_GZIP_LEVEL: Final = 6
_LZ4_LEVEL: Final = 1
"""Of what this broker compresses without being told how: Kafka's writer has level 9 (KIP-390), which is ten
times slower for a tenth less. Topics have levels of their own (``compression.lz4.level``)."""
_ZSTD_LEVEL: Final = 3
"""Kafka's default (``CompressionType.ZSTD``)."""

_BUFFER_FULL: Final = "whole buffer"
"""In the words of cramjam's error. A test holds it to them: without it a larger buffer would be refused."""

_FIRST_GUESS_BYTES_MIN: Final = 64 * 1024
_I32 = Struct(">i")


class CompressionType(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_name(cls, name: str) -> CompressionType:
        """From the value of ``compression.type``; "uncompressed" is NONE. ValueError for "producer" and
        others."""
        if name == "uncompressed":
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"no compression type is called {name!r}") from None


_LZ4: Final = CompressionType.LZ4.value
_ZSTD: Final = CompressionType.ZSTD.value


class CorruptBatch(KafkaError):
    """A record batch that is not what its header says (Kafka's ``CorruptRecordException``)."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(code, message)


_RATIO_MAX: Final = {CompressionType.LZ4: 256, CompressionType.ZSTD: 1 << 16}
"""What a byte can stand for at most: in LZ4 255 bytes of a match; in zstd a quarter of a block of 128 KiB
that repeats one byte, twice as much for good measure."""


def compress(data: Buffer, compression: CompressionType, level: int | None = None) -> bytes:
    """``data`` as it stands in a batch of that compression. ``level``: of gzip, LZ4 and zstd (KIP-390)."""
    match compression:
        case CompressionType.NONE:
            return bytes(data)
        case CompressionType.GZIP:
            deflate = zlib.compressobj(_GZIP_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
            return deflate.compress(data) + deflate.flush()
        case CompressionType.SNAPPY:
            return _compress_xerial(memoryview(data))
        case CompressionType.LZ4:  # independent blocks: Java's reader knows no others
            frame = cramjam.lz4.Compressor(
                level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
            )
            frame.compress(bytes(data))  # cramjam takes no view here
            return bytes(frame.finish())
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(data: Buffer, compression: int, *, bytes_max: int, reserve: int = 0) -> bytearray:
    """The records of a compressed batch, behind ``reserve`` bytes for the caller to fill.

    Raises:
        CorruptBatch: INVALID_RECORD for bytes that are not in that compression, MESSAGE_TOO_LARGE for more
        than
            ``bytes_max`` bytes, UNSUPPORTED_COMPRESSION_TYPE where there is no such compression.
    """
    match compression:
        case CompressionType.GZIP:
            return _gunzip(data, bytes_max, reserve)
        case CompressionType.SNAPPY:
            return _unsnappy(memoryview(data), bytes_max, reserve)
        case CompressionType.LZ4 | CompressionType.ZSTD:
            return _into_buffer(data, CompressionType(compression), bytes_max, reserve)
        case CompressionType.NONE:
            return bytearray(reserve) + data
        case _:
            raise CorruptBatch(
                f"unknown compression type {compression}", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            )


def decompress_into(data: Buffer, compression: int, target: memoryview) -> int | None:
    """The size of what ``data`` held, which is in ``target`` then; None for what has no room there, and for
    the codecs that make buffers of their own.

    Raises:
        CorruptBatch: INVALID_RECORD for bytes that are not in that compression.
    """
    if compression != _LZ4 and compression != _ZSTD:
        return None
    try:
        if compression == _LZ4:
            return int(cramjam.lz4.decompress_into(data, target))
        return int(cramjam.zstd.decompress_into(data, target))
    except cramjam.DecompressionError as error:
        if _BUFFER_FULL in str(error):
            return None
        raise _undecodable(CompressionType(compression), error) from error


def _too_large(compression: CompressionType, bytes_max: int) -> CorruptBatch:
    return CorruptBatch(
        f"{compression.name} records of more than {bytes_max} bytes", ErrorCode.MESSAGE_TOO_LARGE
    )


def _undecodable(compression: CompressionType, reason: object) -> CorruptBatch:
    """Not CORRUPT_MESSAGE, which a producer retries: the CRC was right, the bytes will not get better."""
    return CorruptBatch(
        f"{compression.name} records cannot be decompressed: {reason}", ErrorCode.INVALID_RECORD
    )


def _gunzip(data: Buffer, bytes_max: int, reserve: int) -> bytearray:
    out = bytearray(reserve)
    rest: Buffer = data
    while True:  # several members in a row are one stream, as for Java
        inflate = zlib.decompressobj(_GZIP_WBITS)
        try:
            out += inflate.decompress(rest, reserve + bytes_max + 1 - len(out))
        except zlib.error as error:
            raise _undecodable(CompressionType.GZIP, error) from error
        if len(out) - reserve > bytes_max:
            raise _too_large(CompressionType.GZIP, bytes_max)
        if not inflate.eof:
            raise _undecodable(CompressionType.GZIP, "they end too early")
        rest = inflate.unused_data
        if not rest:
            return out


def _unsnappy(data: memoryview, bytes_max: int, reserve: int) -> bytearray:
    out = bytearray(reserve)
    if data[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
        _append_snappy_block(out, data, reserve + bytes_max)
        return out
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise _undecodable(CompressionType.SNAPPY, "they end inside the size of a block")
        size = _I32.unpack_from(data, position)[0]
        position += 4
        if not 0 <= size <= len(data) - position:
            raise _undecodable(
                CompressionType.SNAPPY, f"a block of {size} bytes where {len(data) - position} remain"
            )
        _append_snappy_block(out, data[position : position + size], reserve + bytes_max)
        position += size
    return out


def _append_snappy_block(out: bytearray, block: memoryview, size_max: int) -> None:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise _undecodable(CompressionType.SNAPPY, f"a block of {len(block)} bytes cannot hold {size}")
        if len(out) + size > size_max:
            raise _too_large(CompressionType.SNAPPY, size_max)
        start = len(out)
        out.extend(bytes(size))
        with memoryview(out) as target:
            cramjam.snappy.decompress_raw_into(block, target[start:])
    except cramjam.DecompressionError as error:
        raise _undecodable(CompressionType.SNAPPY, error) from error


def _into_buffer(data: Buffer, compression: CompressionType, bytes_max: int, reserve: int) -> bytearray:
    """Grows the buffer only when it was too small, never for bytes that are corrupt, and never beyond what so
    few bytes can stand for."""
    bound = min(bytes_max, _RATIO_MAX[compression] * len(data))
    capacity = min(bound, max(_FIRST_GUESS_BYTES_MIN, 4 * len(data)))
    while True:
        out = bytearray(reserve + capacity)
        with memoryview(out) as target:
            size = decompress_into(data, compression, target[reserve:])
        if size is not None:
            del out[reserve + size :]
            return out
        if capacity == bound:
            raise _too_large(compression, bytes_max)
        capacity = min(bound, 4 * capacity)


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_I32.pack(len(block)), block)
    return b"".join(parts)
