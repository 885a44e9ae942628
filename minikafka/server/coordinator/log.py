"""A partition of a coordinator's topic as a shard writes it: records in, and whether they are safe.

Kafka: ``CoordinatorPartitionWriter``, ``TransactionStateManager.appendTransactionToLog``. A write is a
produce with acks=-1: it is in the leader's log at once, and committed when the high watermark has passed it
(KAFKA_BEHAVIOUR: purgatory 11, ``when_committed``). It waits for that for a time that the shard says, or
the coordinator's properties.

Where it differs from Kafka: there a shard of the group coordinator collects what it writes for
``group.coordinator.append.linger.ms``; here each call of a shard is a batch of its own, as it was in the
coordinator before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from minikafka.coordinator.effects import BatchOfTransaction
from minikafka.log.producers.append_origin import BY_COORDINATOR, AppendOrigin, AppendTerms
from minikafka.log.producers.verification_state import VerificationGuard
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.control_records import marker_batch
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.replica.delayed_produce import Settled, when_committed
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, TopicPartition

R = TypeVar("R")

Encode = Callable[[R], tuple[bytes, bytes | None]]
"""Key and value of a record."""


class CoordinatorLog(Generic[R]):
    """See the module header."""

    def __init__(
        self,
        replicas: ReplicaManager,
        topic_partition: TopicPartition,
        *,
        encode: Encode[R],
        compression: CompressionType,
        timeout_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self._replicas = replicas
        self._encode = encode
        self._compression = compression
        self._timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"CoordinatorLog({self.topic_partition})"

    def append(
        self, records: Iterable[R], *, now_ms: int, transaction: BatchOfTransaction | None = None
    ) -> Offset:
        """Write ``records``, or a marker, as one batch. Returns the offset behind it, for ``when_committed``.

        Raises:
            KafkaError: the log's own (MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER, …).
        """
        terms = BY_COORDINATOR
        if transaction is not None:
            guard = transaction.verification_guard
            assert guard is None or isinstance(guard, VerificationGuard)
            terms = AppendTerms(AppendOrigin.COORDINATOR, guard, transaction.transaction_version)
        batch = self._batch(records, now_ms, transaction)
        info = self._replicas.append(self.topic_partition, batch, required_acks=-1, terms=terms)
        return Offset(info.last_offset + 1)

    def _batch(self, records: Iterable[R], now_ms: int, transaction: BatchOfTransaction | None) -> bytes:
        if transaction is not None and transaction.marker is not None:
            return marker_batch(
                transaction.marker,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                timestamp_ms=now_ms,
            )
        return build_batch(
            (Record(index, now_ms, *self._encode(record), ()) for index, record in enumerate(records)),
            compression=self._compression,
            producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if transaction is None else transaction.producer_epoch,
            transactional=transaction is not None,
        )

    def when_committed(
        self, required_offset: Offset, settled: Settled, *, timeout_ms: int | None = None
    ) -> None:
        """Call ``settled`` when all below ``required_offset`` is committed, or will not be in time; that may
        be now."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        when_committed(self._replicas, self.topic_partition, required_offset, settled, timeout_ms=timeout_ms)
