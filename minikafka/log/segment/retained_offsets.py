"""The records that are the newest of their keys, as a stream of their offsets in ascending order.

What ``OffsetMap`` knows from memory, this knows by going through two ordered things side by side: the offsets
and the batches of a log. So it needs no more memory for a billion keys than for one.

Invariant: every offset is found in the batches. One that is not means that the log is not the one which was
read before, or that both readings disagree about it; then nothing may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.files.names import OFFSET_MAX
from minikafka.protocol.records.filtered_batch import RawRecord


class RetainedOffsets:
    """Selects records by their offsets. Batches must come in the order of offsets."""

    def __init__(self, offsets: Iterator[int], *, latest_offset: int) -> None:
        """``latest_offset`` is the last one of the log that the offsets speak of; beyond it, all stays."""
        self.latest_offset = latest_offset
        self._offsets = offsets
        self._next = next(offsets, OFFSET_MAX)

    def __repr__(self) -> str:
        return f"RetainedOffsets(next={self._next}, latest_offset={self.latest_offset})"

    def select(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """Those records that stay.

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
