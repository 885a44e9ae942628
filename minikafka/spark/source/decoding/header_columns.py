"""The columns of a record that its batch's header knows, for many records at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from minikafka.protocol.records.batch import COMPRESSION_MASK, TIMESTAMP_TYPE_MASK, CompressionType
from minikafka.spark.source.schemas import RECORD_SCHEMA, arrow_type
from minikafka.spark.source.segment_scan import Headers, Int64s
from minikafka.types import NO_SEQUENCE

if TYPE_CHECKING:
    from minikafka.spark.source.decoding.decode import Origin

_FIELDS: Final = {
    "leader_epoch": "leader_epoch",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "batch_offset": "base_offset",
}

HEADER_COLUMNS: Final = frozenset(
    {
        *_FIELDS,
        "topic",
        "partition",
        "offset",
        "timestampType",
        "sequence",
        "codec",
        "segment",
        "log_dir",
        "error",
    }
)
"""What can be told without a record. The offset only where the offsets of a batch leave no gaps."""

CODEC_NAMES: Final = [
    CompressionType(code).name.lower() if code in CompressionType.__members__.values() else f"unknown {code}"
    for code in range(COMPRESSION_MASK + 1)
]
_SEQUENCE_MAX: Final = 2**31 - 1


class Rows(NamedTuple):
    """Which batch each record belongs to, and its offset from there."""

    headers: Headers
    batch_index: Int64s
    offset_deltas: Int64s

    def only(self, chosen: Int64s | None) -> Rows:
        """The ``chosen`` ones; None: all."""
        if chosen is None:
            return self
        return self._replace(batch_index=self.batch_index[chosen], offset_deltas=self.offset_deltas[chosen])


def header_column(name: str, rows: Rows, origin: Origin) -> pa.Array:
    """One of ``HEADER_COLUMNS``, a value a row."""
    count = rows.batch_index.size
    wanted = arrow_type(name, RECORD_SCHEMA)
    match name:
        case "topic" | "segment" | "log_dir":
            return pa.repeat(pa.scalar(getattr(origin, name), type=wanted), count)
        case "partition":
            return pa.array(np.full(count, origin.partition, dtype=np.int32))
        case "error":
            return pa.nulls(count, type=wanted)
        case "offset":
            return pa.array(_of_each(rows, "base_offset") + rows.offset_deltas)
        case "sequence":
            base = rows.headers["base_sequence"].astype(np.int64)[rows.batch_index]
            sequence = np.where(base == NO_SEQUENCE, NO_SEQUENCE, (base + rows.offset_deltas) & _SEQUENCE_MAX)
            return pa.array(sequence.astype(np.int32))
        case "timestampType":
            types = (rows.headers["attributes"] & TIMESTAMP_TYPE_MASK) != 0
            return pa.array(types.astype(np.int32)[rows.batch_index])
        case "codec":
            codes = (rows.headers["attributes"] & COMPRESSION_MASK).astype(np.int8)
            return pa.array(CODEC_NAMES, type=wanted).take(pa.array(codes[rows.batch_index]))
        case _:
            return pa.array(_of_each(rows, _FIELDS[name]), type=wanted)


def _of_each(rows: Rows, field: str) -> Int64s:
    """A field of the header of each record's batch, in the machine's byte order."""
    values = rows.headers[field]
    return values.astype(values.dtype.newbyteorder("="))[rows.batch_index]
