"""What ``minikafka transactions`` asks a cluster: one method per question, answers as plain values.

Kafka: the part of ``KafkaAdminClient`` about transactions (``ListTransactionsHandler``,
``DescribeTransactionsHandler``, ``DescribeProducersHandler``, ``AbortTransactionHandler``). Works with any
broker since Kafka 3.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from minikafka.cli.shared.admin_client import AdminClient, CoordinatorType
from minikafka.cli.shared.commands import error_of
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition

PARTITIONS_MAX = 500
"""Of one DescribeProducers (``TransactionsCommand.MAX_BATCH_SIZE``)."""

NOBODY = -1


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id as ListTransactions has it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(msgspec.Struct, frozen=True):
    """A transactional id, as its coordinator has it. ``start_time_ms`` is None without a transaction."""

    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition]


class ProducerState(msgspec.Struct, frozen=True):
    """A producer, as a replica of a partition knows it. ``transaction_start_offset`` is None without one."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


class TransactionAdmin(AdminClient):
    """Methods raise KafkaError for what a broker refuses, and BrokerUnavailable when there is no answer."""

    async def transactions(
        self,
        *,
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Those of all brokers that pass the filters, sorted by id."""
        body = {
            "state_filters": [],
            "producer_id_filters": sorted(producer_ids),
            "duration_filter": duration_ms,
            "transactional_id_pattern": transactional_id_pattern,
        }
        found = [
            TransactionListing(each.transactional_id, broker, each.producer_id, each.transaction_state)
            for broker in (await self.nodes()).brokers
            for each in (await self.ask_loaded(broker, ApiKey.LIST_TRANSACTIONS, body)).transaction_states
        ]
        return sorted(found, key=lambda each: (each.transactional_id, each.coordinator))

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """One transactional id. One that there is not: a KafkaError TRANSACTIONAL_ID_NOT_FOUND."""
        coordinator, answer = await self.ask_coordinator(
            CoordinatorType.TRANSACTION,
            transactional_id,
            ApiKey.DESCRIBE_TRANSACTIONS,
            {"transactional_ids": [transactional_id]},
            lambda answer: answer.transaction_states[0],
        )
        found = answer.transaction_states[0]
        return TransactionDescription(
            coordinator.node_id,
            transactional_id,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout,
            found.transaction_start_time if found.transaction_start_time >= 0 else None,
            [TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions],
        )

    async def producers(
        self, partitions: Sequence[TopicPartition], *, broker: int | None = None
    ) -> list[ProducerState]:
        """The producers that partitions know: their leaders, or the replicas on one ``broker``."""
        found: list[ProducerState] = []
        for asked, each in (await self._by_broker(partitions, broker)).items():
            for first in range(0, len(each), PARTITIONS_MAX):
                found += await self._producers(asked, each[first : first + PARTITIONS_MAX])
        return sorted(found, key=lambda each: (each.topic, each.partition, each.producer_id))

    async def _by_broker(
        self, partitions: Sequence[TopicPartition], broker: int | None
    ) -> dict[int, list[TopicPartition]]:
        if broker is not None:
            return {broker: list(partitions)}
        by_broker: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            by_broker.setdefault(await self._leader(each), []).append(each)
        return by_broker

    async def _leader(self, partition: TopicPartition) -> int:
        known = (await self.partitions([partition.topic])).get(partition)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        if known.leader == NOBODY:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {partition}")
        return known.leader

    async def _producers(self, broker: int, partitions: Sequence[TopicPartition]) -> list[ProducerState]:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        body = {
            "topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()],
        }
        answer = await self.ask_broker(broker, ApiKey.DESCRIBE_PRODUCERS, body)
        found = []
        for topic in answer.topics:
            for each in topic.partitions:
                error = error_of(each.error_code)
                if error is not None:
                    where = TopicPartition(topic.name, each.partition_index)
                    raise KafkaError(error.code, f"{where} on broker {broker}")
                found += [_producer(topic.name, each.partition_index, one) for one in each.active_producers]
        return found

    async def abort(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write the marker of an abort into one partition, whatever the coordinator thinks."""
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "transaction_result": False,
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": 0,
        }
        answer = await self.ask_broker(
            await self._leader(partition), ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}
        )
        error = error_of(answer.markers[0].topics[0].partitions[0].error_code)
        if error is not None:
            raise error


def _producer(topic: str, partition: int, found: Any) -> ProducerState:
    start = found.current_txn_start_offset
    return ProducerState(
        topic,
        partition,
        found.producer_id,
        found.producer_epoch,
        found.coordinator_epoch,
        found.last_sequence,
        found.last_timestamp,
        start if start >= 0 else None,
    )
