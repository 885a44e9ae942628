"""The records that clients send to each other, and what must come back: every field that Kafka keeps."""

from __future__ import annotations

import hashlib
import random
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

EPOCH_MS = 1_700_000_000_000
"""All timestamps count from here: far in the past, so that a broker's clock cannot pass for one of them."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """What a producer is given. No timestamp: the client cannot set one and takes its clock's."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Consumed(NamedTuple):
    """What a consumer was given."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


def every_shape() -> list[Record]:
    """Records with every shape of key, value, header and timestamp, in one fixed order."""
    noise = random.Random(20_250_824)
    shapes: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"", b"an empty key is not a missing one", ()),
        (b"empty value", b"", ()),
        (b"tombstone", None, ()),
        (None, None, ()),
        (b"\x00\xff\n\t|,=", b"\x00\n\r\xff", ()),
        ("clé-ключ".encode(), "välue-値".encode(), (("clé-ключ", "välue-値".encode()),)),
        (b"one header", b"v", (("h", b"1"),)),
        (b"two of a name", b"v", (("h", b"1"), ("g", b"2"), ("h", b"3"))),
        (b"empty header", b"v", (("h", b""),)),
        (b"binary header", b"v", (("h", bytes(range(256))),)),
        (b"long", b"compressible " * 8_000, ()),
        (b"noise", noise.randbytes(100_000), (("crc", b"none"),)),
        (noise.randbytes(5_000), b"a long key", ()),
    ]
    shapes += [(f"k{i % 7}".encode(), f"value {i}".encode(), (("i", str(i).encode()),)) for i in range(200)]
    # Timestamps go forth and back: only the order of offsets is the order of the records.
    return [
        Record(key, value, headers, EPOCH_MS + i * 1_000 - (5_500 if i % 10 == 7 else 0))
        for i, (key, value, headers) in enumerate(shapes)
    ]


def numbered(index: int, *, size: int = 0) -> Record:
    """Record number `index` of an endless series: all of it follows from the number."""
    digest = hashlib.blake2b(index.to_bytes(8, "big"), digest_size=16).digest()
    return Record(
        key=None if index % 5 == 4 else b"%d" % (index % 1_009),
        value=b"%012d" % index + digest + digest * max(0, size // 16 - 1),
        headers=(("n", b"%d" % index),) if index % 3 == 0 else (),
        timestamp_ms=EPOCH_MS + index // 10,
    )
