"""Batches that are followed, and a tracer with a clock that one moves."""

from __future__ import annotations

from uuid import UUID

from minikafka.clock import ManualClock
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.tracing.tracer import Tracer
from minikafka.types import BrokerId, TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT}-01"
EPOCH_NS = 1_700_000_000_000_000_000


def batch(
    *traceparents: str | None,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
) -> bytes:
    """A record for each, with that header or none."""
    return build_batch(
        [
            Record(
                base_offset + index,
                0,
                b"key",
                b"value",
                () if text is None else (("colour", b"red"), ("traceparent", text.encode())),
            )
            for index, text in enumerate(traceparents)
        ],
        base_offset=base_offset,
        compression=compression,
    )


class Following:
    """A tracer, its clock, and what it exports."""

    def __init__(self, node_id: int = 1) -> None:
        self.clock = ManualClock()
        self.tracer = Tracer(node_id=BrokerId(node_id), clock=self.clock, wall_ns=self.wall_ns)

    def wall_ns(self) -> int:
        return EPOCH_NS + self.clock.monotonic_ns()
