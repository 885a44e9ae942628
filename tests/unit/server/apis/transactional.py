"""Transactional batches and requests, for tests of the APIs that take them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from minikafka.coordinator.transaction.messages import AddPartitionsToTxn, AddPartitionsToTxnResult
from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.coordinator.transaction_verification import TransactionVerification, _body
from minikafka.types import TopicPartition
from tests.unit.server.conftest import AdminBroker

PRODUCER_ID, EPOCH = 7, 2


def batch(
    sequence: int,
    *,
    count: int = 1,
    producer_id: int = PRODUCER_ID,
    epoch: int = EPOCH,
    transactional: bool = True,
) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch(
        [Record(index, now_ms, None, b"v", ()) for index in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class FakeCoordinator:
    """Stands for the coordinator of all transactions: answers as the test says, when it says."""

    def __init__(self, broker: AdminBroker) -> None:
        self.requests: list[list[dict[str, Any]]] = []
        """The transactions of each AddPartitionsToTxn."""
        self.code = ErrorCode.NONE
        self.codes: list[ErrorCode] = []
        """Of the next requests, before ``code`` is that of all."""
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._asked = asyncio.Event()
        services = broker.services
        services.transaction_verification = TransactionVerification(
            config=lambda: broker.configs.broker_config,
            replicas=services.replica_manager,
            topic=services.transactions.topic,
            connect=services.connect,
            ask_here=self.ask,
            supervisor=services.supervisor,
        )

    async def ask(self, transactions: Sequence[AddPartitionsToTxn]) -> list[AddPartitionsToTxnResult]:
        self.requests.append(_body(transactions)["transactions"])
        self._asked.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        code = self.codes.pop(0) if self.codes else self.code
        return [AddPartitionsToTxnResult((code,) * len(each.partitions)) for each in transactions]

    async def heard(self, requests: int) -> None:
        """Until so many have come."""
        async with asyncio.timeout(60):
            while len(self.requests) < requests:
                self._asked.clear()
                await self._asked.wait()

    @property
    def asked(self) -> list[tuple[str, bool, list[tuple[str, tuple[int, ...]]]]]:
        """Of each transaction in each request: its id, whether it is only verified, its partitions."""
        return [
            (
                each["transactional_id"],
                each["verify_only"],
                [(topic["name"], tuple(topic["partitions"])) for topic in each["topics"]],
            )
            for request in self.requests
            for each in request
        ]


async def produce(
    broker: AdminBroker,
    *batches: bytes,
    version: int = 12,
    transactional_id: str | None = "t1",
    acks: int = -1,
) -> list[tuple[int, int]]:
    """A batch for each of the first partitions of "orders". Returns their codes and base offsets."""
    body = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 5000,
        "topic_data": [
            {
                "name": "orders",
                "partition_data": [
                    {"index": index, "records": records} for index, records in enumerate(batches) if records
                ],
            }
        ],
    }
    answer = await broker.ask(ApiKey.PRODUCE, version, body)
    return [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]


async def write_marker(
    broker: AdminBroker,
    *partitions: TopicPartition,
    is_commit: bool = True,
    epoch: int = EPOCH,
    coordinator_epoch: int = 0,
    version: int = 1,
    transaction_version: int = 2,
) -> list[int]:
    """The codes, in the order of ``partitions``."""
    marker = {
        "producer_id": PRODUCER_ID,
        "producer_epoch": epoch,
        "transaction_result": is_commit,
        "topics": [{"name": each.topic, "partition_indexes": [each.partition]} for each in partitions],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
    }
    answer = await broker.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]})
    ((found),) = answer.markers
    assert found.producer_id == PRODUCER_ID
    codes = {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in found.topics
        for each in topic.partitions
    }
    return [codes[each] for each in partitions]
