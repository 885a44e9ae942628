"""The wire protocol by hand, for what no stock client would send; it shares no code with the broker.

Only old, inflexible request versions, which are plain `struct`: ApiVersions 0, Produce 3, Fetch 4,
ListOffsets 1, Metadata 1. `RawClient` is also the fetch load of the benchmarks, so it does nothing it need
not do.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18

_CASTAGNOLI = 0x82F63B78


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_CASTAGNOLI if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit from its definition: an opinion of its own on every batch's checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while True:
        if zigzag < 0x80:
            out.append(zigzag)
            return bytes(out)
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7


def record(offset_delta: int, value: bytes, *, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    key_part = varint(-1) if key is None else varint(len(key)) + key
    body = b"".join(
        (b"\0", varint(timestamp_delta), varint(offset_delta), key_part, varint(len(value)), value, varint(0))
    )
    return varint(len(body)) + body


def batch(
    values: Sequence[bytes],
    *,
    base_timestamp: int = 1_700_000_000_000,
    attributes: int = 0,
    magic: int = 2,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    records: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """A version 2 record batch; every field can be made to lie."""
    if records is None:
        records = b"".join(record(i, value) for i, value in enumerate(values))
    count = len(values) if record_count is None else record_count
    last = len(values) - 1 if last_offset_delta is None else last_offset_delta
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last,
        base_timestamp,
        base_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    checked += records
    checksum = crc32c(checked) if crc is None else crc
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, magic, checksum) + checked


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def request(api_key: int, api_version: int, body: bytes, *, correlation_id: int = 1) -> bytes:
    """A whole frame with a version 1 request header."""
    head = struct.pack(">hhi", api_key, api_version, correlation_id) + string("raw")
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_body(
    topic: str,
    partition: int,
    records: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    return b"".join(
        (
            string(transactional_id),
            struct.pack(">hii", acks, timeout_ms, 1),
            string(topic),
            struct.pack(">iii", 1, partition, len(records)),
            records,
        )
    )


def fetch_body(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 * 1024 * 1024,
    partition_max_bytes: int = 1024 * 1024,
) -> bytes:
    return b"".join(
        (
            struct.pack(">iiiib", -1, max_wait_ms, min_bytes, max_bytes, 0),
            struct.pack(">i", 1),
            string(topic),
            struct.pack(">iiqi", 1, partition, offset, partition_max_bytes),
        )
    )


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    records: memoryview


class Produced(NamedTuple):
    error: int
    base_offset: int


class RawClient:
    """One connection on a blocking socket; `timeout_s` bounds every wait."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_eof(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def _receive_exactly(self, size: int) -> memoryview:
        buffer = bytearray(size)
        view = memoryview(buffer)
        position = 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if count == 0:
                raise ConnectionResetError(
                    f"the broker closed the connection, {size - position} bytes missing"
                )
            position += count
        return view

    def receive(self) -> tuple[int, memoryview]:
        """The next response: correlation id, body. Raises ConnectionError when the broker hung up."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        frame = self._receive_exactly(size)
        return int.from_bytes(frame[:4], "big"), frame[4:]

    def is_closed_by_peer(self) -> bool:
        """Wait for the broker to hang up. False when it answers; TimeoutError when it does neither."""
        try:
            return self._socket.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            return True

    def call(self, api_key: int, api_version: int, body: bytes, *, correlation_id: int = 1) -> memoryview:
        self.send(request(api_key, api_version, body, correlation_id=correlation_id))
        answered, response = self.receive()
        assert answered == correlation_id, f"asked {correlation_id}, answered {answered}"
        return response

    def api_versions(self) -> dict[int, tuple[int, int]]:
        return parse_api_versions(self.call(API_VERSIONS, 0, b""))

    def produce(
        self,
        topic: str,
        partition: int,
        records: bytes,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Produced:
        body = produce_body(topic, partition, records, acks=acks, transactional_id=transactional_id)
        return parse_produce(self.call(PRODUCE, 3, body))

    def fetch(self, topic: str, partition: int, offset: int, **options: int) -> Fetched:
        return parse_fetch(self.call(FETCH, 4, fetch_body(topic, partition, offset, **options)))

    def list_offset(self, topic: str, partition: int, timestamp: int) -> tuple[int, int, int]:
        """Returns (error, timestamp, offset); -1 asks for the end, -2 for the start."""
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, timestamp)
        response = self.call(LIST_OFFSETS, 1, body)
        return struct.unpack_from(">hqq", response, 4 + 2 + len(topic.encode()) + 4 + 4)

    def controller(self) -> int:
        """The broker's node id that this one names in its Metadata; -1: it knows none yet."""
        return parse_controller(self.call(METADATA, 1, struct.pack(">i", 0)))

    def create_topic_by_metadata(self, topic: str) -> None:
        """Ask for a topic's metadata, which makes the broker create it."""
        self.call(METADATA, 1, struct.pack(">i", 1) + string(topic))


def parse_api_versions(body: memoryview) -> dict[int, tuple[int, int]]:
    error, count = struct.unpack_from(">hi", body)
    assert error == 0, f"ApiVersions answered error {error}"
    triples = struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
    return {key: (lowest, highest) for key, lowest, highest in triples}


def parse_controller(body: memoryview) -> int:
    """Of a Metadata response of version 1."""
    count, at = *struct.unpack_from(">i", body), 4
    for _ in range(count):
        (host_size,) = struct.unpack_from(">h", body, at + 4)
        at += 4 + 2 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", body, at)
        at += 2 + max(rack_size, 0)
    (controller,) = struct.unpack_from(">i", body, at)
    return int(controller)


def parse_produce(body: memoryview) -> Produced:
    (name_size,) = struct.unpack_from(">h", body, 4)
    _, error, base_offset = struct.unpack_from(">ihq", body, 4 + 2 + name_size + 4)
    return Produced(error, base_offset)


def parse_fetch(body: memoryview) -> Fetched:
    (name_size,) = struct.unpack_from(">h", body, 8)
    position = 8 + 2 + name_size + 4
    _, error, high_watermark, _, aborted = struct.unpack_from(">ihqqi", body, position)
    position += 26 + 16 * max(0, aborted)
    (size,) = struct.unpack_from(">i", body, position)
    return Fetched(error, high_watermark, body[position + 4 : position + 4 + max(0, size)])
