"""Control records: what a batch with the control bit holds instead of data.

Kafka: ``ControlRecordType``, ``EndTransactionMarker`` (KIP-98). The key is version (int16) and type (int16),
the value of an end-of-transaction marker version (int16) and coordinator epoch (int32).
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from minikafka.errors import ErrorCode
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import Record, build_batch

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlRecordType(IntEnum):
    """The types that end a transaction; KRaft's own never get into a partition of data."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it."""

    type: ControlRecordType
    coordinator_epoch: int

    def key(self) -> bytes:
        return _KEY.pack(_VERSION, self.type)

    def value(self) -> bytes:
        return _VALUE.pack(_VERSION, self.coordinator_epoch)


def marker_batch(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a producer's transaction (``MemoryRecords.withEndTransactionMarker``)."""
    return build_batch(
        [Record(0, timestamp_ms, marker.key(), marker.value(), ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    """The marker in a control record; None for a control record of another type.

    Newer versions may append fields, which are ignored.

    Raises:
        CorruptBatch: INVALID_RECORD: too short, or a version below 0.
    """
    try:
        version, kind = _KEY.unpack_from(key or b"")
        if version < 0:
            raise CorruptBatch(f"a control record of version {version}", ErrorCode.INVALID_RECORD)
        if kind not in ControlRecordType.__members__.values():
            return None
        value_version, coordinator_epoch = _VALUE.unpack_from(value or b"")
    except error:
        raise CorruptBatch("a control record is cut off", ErrorCode.INVALID_RECORD) from None
    if value_version < 0:
        raise CorruptBatch(
            f"an end-of-transaction marker of version {value_version}", ErrorCode.INVALID_RECORD
        )
    return EndTransactionMarker(ControlRecordType(kind), coordinator_epoch)
