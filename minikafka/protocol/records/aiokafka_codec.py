"""Imports aiokafka. To be imported by ``record_codec.load`` alone, which says why."""

from __future__ import annotations

from typing import Final

from aiokafka.errors import CorruptRecordException  # type: ignore[import-untyped]
from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from minikafka.protocol.records.record_codec import RecordCodec

CODEC: Final = RecordCodec(
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
    (CorruptRecordException, ValueError, OverflowError, MemoryError),
)
