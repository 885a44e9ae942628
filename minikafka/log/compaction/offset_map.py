"""Which records are the newest of their keys: what a compaction knows when it copies (``NewestRecords``).

``OffsetMap`` has the newest offset of each key in the dirty part of a log in memory. Kafka:
``SkimpyOffsetMap``, which keeps 24 bytes an entry (MD5 and offset) in one preallocated table. In Python a
table of that kind costs several interpreted steps a probe; a ``dict`` does the same in one. So this is a
``dict``, with a bound on its entries that counts what an entry takes at worst.

Measured (CPython 3.11, 100,000 to 900,000 entries): 110 to 186 bytes an entry, the most right after the
table has grown, when the old one is still there: ``ENTRY_BYTES``. ``put`` takes 0.2 µs for a key shorter
than a digest, 0.6 µs for a longer one. The default of 128 MiB holds 630,000 keys, Kafka's 5 million; a log
with more dirty keys than that is compacted in several rounds.

A key shorter than a digest stands for itself; a longer one for its digest of 16 bytes. So memory does not
depend on the length of keys, and short ones never collide.

``RetainedOffsets`` knows the same by going through two ordered things side by side: the offsets of the newest
records, which a shuffle of Spark's has sorted, and the batches of a log. So it needs no more memory for a
billion keys than for one.

Invariants: ``latest_offset`` is the offset up to which every key is known. Every retained offset is found in
the batches: one that is not means that the log is not the one which was read before, or that both readings
disagree about it; then nothing may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.files.names import OFFSET_MAX
from minikafka.protocol.records.filtered_batch import RawRecord

ENTRY_BYTES = 192
_DIGEST_BYTES = 16


class OffsetMap:
    """A bounded map from keys to offsets."""

    __slots__ = ("_offsets", "entries_max", "latest_offset")

    def __init__(self, *, buffer_bytes: int, load_factor: float) -> None:
        """``load_factor`` is the part of the buffer that may be filled."""
        self.entries_max = max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __repr__(self) -> str:
        return f"OffsetMap({len(self)} of {self.entries_max} entries, latest_offset={self.latest_offset})"

    def put(self, key: bytes, offset: int) -> bool:
        """Note a key's newer offset. False, and nothing noted, when there is no room for another key."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self.entries_max and key not in offsets:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """The newest known offset of the key; -1 for a key that is not in the dirty part."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """Those records, in their order, that have a key and no newer one of it."""
        newest = self.get
        return [
            record for record in records if (key := record.key) is not None and record.offset >= newest(key)
        ]


class RetainedOffsets:
    """Selects records by their offsets. Batches must come in the order of offsets."""

    def __init__(self, offsets: Iterator[int], *, latest_offset: int) -> None:
        """``latest_offset`` is the last one of the log that the offsets cover; beyond it, all is retained."""
        self.latest_offset = latest_offset
        self._offsets = offsets
        self._next = next(offsets, OFFSET_MAX)

    def __repr__(self) -> str:
        return f"RetainedOffsets(next={self._next}, latest_offset={self.latest_offset})"

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """The retained records.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: an offset before them was in no batch.
        """
        following, offsets = self._next, self._offsets
        kept = []
        for record in records:
            offset = record.offset
            if offset >= following:
                if offset > following:
                    raise _missing(following)
                kept.append(record)
                following = next(offsets, OFFSET_MAX)
        self._next = following
        return kept

    def finish(self) -> None:
        """All batches were seen.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: an offset was in none of them.
        """
        if self._next != OFFSET_MAX:
            raise _missing(self._next)


def _missing(offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"the record at offset {offset}, the newest of its key, is not in the log any more: it has changed "
        f"since it was read",
    )
