"""A produce with acks=all that waits until the in-sync replicas have its records.

Kafka: ``DelayedProduce``. Made after the append, when at least one partition is not committed yet. Each
partition stands at REQUEST_TIMED_OUT with its acknowledgement pending, until one of these settles it:

    A  this broker does not host it any more     C  the high watermark has reached the end of the append
    B  this broker does not lead it any more     D  so it has, but the ISR is below min.insync.replicas

The answer leaves when every partition is settled, or at the timeout of the request. The connection continues
with its next requests meanwhile. A deposed leader settles all by B, so nothing is acknowledged that its
successor may not have (I7). Coordinators and markers, whose writes are no requests, wait in the same way
(``when_committed``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import PendingResponse
from minikafka.purgatory.purgatory import DelayedOperation
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.types import Offset, TopicPartition

_TIMED_OUT: Final = KafkaError(
    ErrorCode.REQUEST_TIMED_OUT, "the records were appended, but too few replicas had them in time"
)


def _nothing() -> None:
    """What is left to do once the answer is on its way."""


class UncommittedAppend:
    """One partition of the request: what was appended ends at ``required_offset``."""

    __slots__ = ("error", "is_pending", "required_offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, required_offset: Offset) -> None:
        self.topic_partition = topic_partition
        self.required_offset = required_offset
        self.is_pending = True
        self.error: KafkaError | None = _TIMED_OUT
        """What its producer is told; None when the append is committed."""

    def __repr__(self) -> str:
        state = "pending" if self.is_pending else self.error
        return f"UncommittedAppend({self.topic_partition} to {self.required_offset}: {state})"

    def fail(self, error: KafkaError) -> None:
        """It is not known whether it will be committed. Nothing, when it is settled."""
        if self.is_pending:
            self.error, self.is_pending = error, False

    def try_settle(self, replicas: ReplicaManager) -> bool:
        """Whether it is settled, now or before."""
        if self.is_pending:
            try:
                if not replicas.partition(self.topic_partition).is_committed(self.required_offset):
                    return False
                self.error = None
            except KafkaError as error:
                self.error = error
            self.is_pending = False
        return True


class DelayedProduce(DelayedOperation):
    """A parked produce. ``then`` is called once, when every append is settled or the time is up."""

    __slots__ = ("_appends", "_is_abandoned", "_pending", "_replicas", "_then")

    def __init__(
        self,
        replicas: ReplicaManager,
        appends: Sequence[UncommittedAppend],
        then: Callable[[], None],
        *,
        timeout_ms: int,
    ) -> None:
        super().__init__(timeout_ms)
        self._replicas = replicas
        self._appends = appends
        self._then = then
        self._is_abandoned = False
        self._pending: PendingResponse | None = None

    def park(self, pending: PendingResponse) -> None:
        """Wait for the replicas, as long as ``pending`` is waited for."""
        self._pending = pending
        pending.on_closed = self.abandon
        self.wait()

    def wait(self) -> None:
        """Wait for the replicas, without a client that waits."""
        keys = [append.topic_partition for append in self._appends]
        self._replicas.parked.produce.try_complete_else_watch(self, keys)

    def try_complete(self) -> bool:
        replicas = self._replicas
        is_settled = True
        for append in self._appends:
            is_settled = append.try_settle(replicas) and is_settled
        return is_settled and self.force_complete()

    def on_complete(self) -> None:
        then, self._then = self._then, _nothing
        self._appends = ()  # a purgatory keeps what is over for a while, see ``DelayedOperationPurgatory``
        if not self._is_abandoned:
            then()

    def on_failure(self, error: Exception) -> None:
        """A client that waits gets an error, as the outcome is not known; one that cannot be answered is
        closed."""
        for append in self._appends:
            append.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        try:
            self.on_complete()
        finally:
            if self._pending is not None and self._pending.is_waiting:
                self._pending.abandon()

    def abandon(self) -> None:
        """The connection is gone: leave the purgatory, answer nothing."""
        self._is_abandoned = True
        self.force_complete()


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
    now.

    Kafka: ``DelayedProduce`` as ``ReplicaManager.appendRecords`` uses it for coordinators and for markers. It
    waits in the purgatory of the produces; where ``flush.messages`` makes a flush due, it waits for that too.
    """
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
