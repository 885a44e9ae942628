"""aiokafka's compiled record codec, loaded when the first record is looked at.

Importing any part of aiokafka imports all of it, clients and TLS included: 80 to 110 ms and 12 MB, which a
broker that is to answer its first ApiVersions within half a second had better spend afterwards.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from minikafka.named_tuple import NamedTuple


class RecordCodec(NamedTuple):
    """What is used of aiokafka."""

    Batch: Any
    """``DefaultRecordBatch``: iterates the records of one uncompressed batch."""
    Builder: Any
    """``DefaultRecordBatchBuilder``."""
    refusals: tuple[type[Exception], ...]
    """What iterating raises on records that it cannot read; OverflowError and MemoryError for lengths near
    2⁶³."""


@cache
def load() -> RecordCodec:
    """The codec; the first call imports it. While a thread does that, others wait for its end. Python sees to
    it for modules that are in no circle, such as ours; aiokafka's import each other, and one that is half
    done does not have all of its names."""
    from minikafka.protocol.records.aiokafka_codec import CODEC

    return CODEC
