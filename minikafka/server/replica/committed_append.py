"""When what was appended with acks=-1 is safe: all in-sync replicas have it, and the disk where that is due.

Kafka: ``DelayedProduce`` as ``ReplicaManager.appendRecords`` uses it for coordinators and for markers. It
waits in the purgatory of the produces; where ``flush.messages`` makes a flush due, it waits for that too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from minikafka.errors import KafkaError
from minikafka.server.replica.delayed_produce import DelayedProduce, UncommittedAppend
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.types import Offset, TopicPartition

Settled = Callable[[KafkaError | None], None]
"""Told once what became of a write: None, when it is committed."""


def when_committed(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    required_offset: Offset,
    settled: Settled,
    *,
    timeout_ms: int,
) -> None:
    """Call ``settled`` when all below ``required_offset`` is committed, or will not be in time; that may be
    now."""
    flushed = replicas.flushed(topic_partition)
    append = UncommittedAppend(topic_partition, required_offset)

    def after_flush(done: asyncio.Future[None]) -> None:
        if done.cancelled():  # the broker stops
            return
        try:
            replicas.partition(topic_partition)
        except KafkaError as error:  # the flush failed, and took the log directory offline
            settled(error)
        else:
            settled(None)

    def replicated() -> None:
        if append.error is None and flushed is not None and not flushed.done():
            flushed.add_done_callback(after_flush)
        else:
            settled(append.error)

    if append.try_settle(replicas):
        replicated()
    else:
        DelayedProduce(replicas, (append,), replicated, timeout_ms=timeout_ms).wait()
