"""Transactions over all partitions while brokers fail: each is whole or not there (I10)."""

from __future__ import annotations

import asyncio
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.replica.partition import Partition
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import (
    TRANSACTIONAL_OFFSETS_VERSION,
    SimulatedClient,
    check,
    make_batch,
)
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun
from minikafka.testing.simulation.scenarios.plan import TOPIC
from minikafka.testing.simulation.scenarios.waiting import until

TRANSACTION_TIMEOUT_MS = 10_000
RETRY_PAUSE_MS = 100
_GROUP, _TRANSACTION = 0, 1
"""What is coordinated, ``FindCoordinatorRequest.CoordinatorType``."""
CONFIG: dict[str, Property] = {
    "log.cleaner.enable": "false",
    "transaction.state.log.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
_AGAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
)
"""What a transaction may fail with, once its coordinator has given it up for its time-out."""


class TransactionalProducer:
    """Speaks the second version of the protocol. Several may ``send`` at the same time, each to a partition
    of its own."""

    def __init__(
        self, client: SimulatedClient, transactional_id: str, *, partitions: int, topic: str = TOPIC
    ) -> None:
        self._client = client
        self._topic = topic
        self._id = transactional_id
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._producer_id = self._epoch = -1
        self._sequences = [0] * partitions

    async def _ask(self, key: ApiKey, body: dict[str, Any], *, group: str = "", **options: Any) -> Any:
        """Ask the coordinator, of ``group`` where one is given, until it answers with something that does not
        pass."""
        at = (_GROUP, group) if group else (_TRANSACTION, self._id)
        while True:
            try:
                if at not in self._coordinators:
                    self._coordinators[at] = await self._find_coordinator(*at)
                answer = await self._client.request(self._coordinators[at], key, body, **options)
                for code in _error_codes(answer):
                    check(code)
                return answer
            except (BrokerUnavailable, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _AGAIN:
                    raise
                self._coordinators.pop(at, None)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)

    async def _find_coordinator(self, key_type: int, key: str) -> tuple[str, int]:
        """Raises KafkaError, BrokerUnavailable."""
        metadata = await self._client.metadata([])
        broker = metadata.brokers[0]
        wanted = {"key_type": key_type, "coordinator_keys": [key], "key": key}
        answer = await self._client.request((broker.host, broker.port), ApiKey.FIND_COORDINATOR, wanted)
        (found,) = answer.coordinators
        check(found.error_code)
        return found.host, found.port

    async def begin(self) -> None:
        body = {
            "transactional_id": self._id,
            "transaction_timeout": TRANSACTION_TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, body)
        self._take(answer)

    def _take(self, answer: Any) -> None:
        if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences = [0] * len(self._sequences)

    async def send(self, partition: int, value: bytes) -> None:
        batch = make_batch(
            [value],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        while True:
            try:
                await self._client.produce(self._topic, partition, batch, transactional_id=self._id)
                break
            except (BrokerUnavailable, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _AGAIN:
                    raise
                self._client.forget_leader(self._topic, partition)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
        self._sequences[partition] += 1

    async def send_offsets(self, group: str, positions: dict[int, int]) -> None:
        """``sendOffsetsToTransaction``: how far ``group`` has read ``TOPIC``, by partition."""
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": None,
            }
            for partition, offset in positions.items()
        ]
        body = {
            "transactional_id": self._id,
            "group_id": group,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        version = TRANSACTIONAL_OFFSETS_VERSION
        await self._ask(ApiKey.TXN_OFFSET_COMMIT, body, group=group, version=version)

    async def end(self, *, commit: bool) -> None:
        body = {
            "transactional_id": self._id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "committed": commit,
        }
        self._take(await self._ask(ApiKey.END_TXN, body))


def _error_codes(answer: Any) -> list[int]:
    """Of an answer as a whole, or of its partitions."""
    if hasattr(answer, "error_code"):
        return [answer.error_code]
    return [each.error_code for topic in answer.topics for each in topic.partitions]


class TransactionRun(ClusterRun):
    """Transactional producers."""

    def produce(self) -> None:
        for number in range(self.plan.transactions):
            self._producers.append(asyncio.create_task(self._transact(number)))

    async def _transact(self, number: int) -> None:
        rng = self.simulation.rng(f"producer-{number}")
        client = SimulatedClient(self.addresses, client_id=f"producer-{number}")
        producer = self.recorder.transactional(
            f"producer-{number}",
            TransactionalProducer(client, f"t{number}", partitions=self.plan.partitions),
            topic=TOPIC,
        )
        await producer.begin()
        count = 0
        while not self._stopping:
            commit = rng.random() < 0.7
            began_s, is_ending = asyncio.get_running_loop().time(), False
            try:
                for partition in range(self.plan.partitions):
                    await producer.send(partition, b"%d-%d" % (number, count))
                    await asyncio.sleep(rng.uniform(0, 0.05))
                is_ending = True
                await producer.end(commit=commit)
            except KafkaError as error:
                lasted_ms = (asyncio.get_running_loop().time() - began_s) * 1000
                # A commit that comes after the abort for the time-out, and before any other epoch, is told by
                # the state that the abort has left (TransactionCoordinator.endTransaction).
                came_too_late = is_ending and commit and lasted_ms >= TRANSACTION_TIMEOUT_MS
                if error.code not in FENCED and not (
                    came_too_late and error.code is ErrorCode.INVALID_TXN_STATE
                ):
                    raise
                producer.give_up()
                await producer.begin()
            count += 1
            await self.rest(rng, rng.randint(0, 100))

    def _led(self) -> list[Partition]:
        return [
            partition
            for broker in self.simulation.brokers.values()
            for partition in hosted_partitions(broker)
            if partition.is_leader and partition.topic_partition.topic == TOPIC
        ]

    async def check_history(self) -> None:
        """And before, every transaction comes to its end."""
        await until(
            lambda: all(each.log.last_stable_offset == each.log.log_end_offset for each in self._led()),
            "every transaction is ended",
            within_ms=TRANSACTION_TIMEOUT_MS * 3,
        )
        await super().check_history()
