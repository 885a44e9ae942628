"""A cluster with transactional producers: what ``minikafka transactions`` asks, answered through the real
codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minikafka.errors import ErrorCode
from minikafka.types import TopicPartition
from tests.unit.cli.fake_cluster import NONE
from tests.unit.cli.fake_coordinators import FakeCoordinators

NO_TRANSACTION = -1


class FakeTransaction(NamedTuple):
    """A transactional id, as its coordinator has it."""

    coordinator: int
    producer_id: int
    state: str = "Ongoing"
    start_ms: int = 1_000
    partitions: tuple[TopicPartition, ...] = ()


class FakeProducer(NamedTuple):
    """A producer, as a partition has it."""

    producer_id: int
    start_offset: int = NO_TRANSACTION
    last_timestamp_ms: int = 2_000
    coordinator_epoch: int = 4
    epoch: int = 7


class FakeTransactions(FakeCoordinators):
    """Markers that were written end the transaction of their producer."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: dict[str, FakeTransaction] = {}
        self.producers: dict[TopicPartition, list[FakeProducer]] = {}
        self.refuses_markers: ErrorCode = ErrorCode.NONE

    def coordinator_of(self, key: str) -> int | None:
        return self.transactions[key].coordinator if key in self.transactions else None

    def _find_coordinator(self, node_id: int, request: Any) -> Mapping[str, Any]:
        assert request.key_type == 1
        return super()._find_coordinator(node_id, request)

    def _list_transactions(self, node_id: int, request: Any) -> Mapping[str, Any]:
        states = [
            {
                "transactional_id": name,
                "producer_id": each.producer_id,
                "transaction_state": each.state,
            }
            for name, each in self.transactions.items()
            if each.coordinator == node_id
            and (not request.producer_id_filters or each.producer_id in request.producer_id_filters)
        ]
        return {
            "throttle_time": 0,
            "error_code": NONE,
            "unknown_state_filters": [],
            "transaction_states": states,
        }

    def _describe_transactions(self, node_id: int, request: Any) -> Mapping[str, Any]:
        return {
            "throttle_time": 0,
            "transaction_states": [self._described(node_id, each) for each in request.transactional_ids],
        }

    def _described(self, node_id: int, name: str) -> Mapping[str, Any]:
        code = ErrorCode.NONE
        if self.has_moved():
            code = ErrorCode.NOT_COORDINATOR
        elif name not in self.transactions:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        found = self.transactions.get(name, FakeTransaction(node_id, -1))
        topics: dict[str, list[int]] = {}
        for topic, partition in found.partitions:
            topics.setdefault(topic, []).append(partition)
        return {
            "error_code": code,
            "transactional_id": name,
            "transaction_state": found.state,
            "transaction_timeout": 60_000,
            "transaction_start_time": found.start_ms,
            "producer_id": found.producer_id,
            "producer_epoch": 7,
            "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
        }

    def _describe_producers(self, node_id: int, request: Any) -> Mapping[str, Any]:
        return {
            "throttle_time": 0,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        self._producers(node_id, TopicPartition(topic.name, each))
                        for each in topic.partition_indexes
                    ],
                }
                for topic in request.topics
            ],
        }

    def _producers(self, node_id: int, partition: TopicPartition) -> Mapping[str, Any]:
        is_here = node_id in self.partitions[partition].assignment.replicas
        return {
            "partition_index": partition.partition,
            "error_code": NONE if is_here else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "error_message": None,
            "active_producers": [
                {
                    "producer_id": each.producer_id,
                    "producer_epoch": each.epoch,
                    "last_sequence": 9,
                    "last_timestamp": each.last_timestamp_ms,
                    "coordinator_epoch": each.coordinator_epoch,
                    "current_txn_start_offset": each.start_offset,
                }
                for each in self.producers.get(partition, ())
                if is_here
            ],
        }

    def _write_txn_markers(self, node_id: int, request: Any) -> Mapping[str, Any]:
        results = []
        for marker in request.markers:
            (topic,) = marker.topics
            (number,) = topic.partition_indexes
            partition = TopicPartition(topic.name, number)
            if self.refuses_markers is ErrorCode.NONE:
                self.producers[partition] = [
                    each._replace(start_offset=NO_TRANSACTION)
                    if each.producer_id == marker.producer_id
                    else each
                    for each in self.producers[partition]
                ]
            written = {"partition_index": number, "error_code": self.refuses_markers}
            results.append(
                {
                    "producer_id": marker.producer_id,
                    "topics": [{"name": topic.name, "partitions": [written]}],
                }
            )
        return {"markers": results}
