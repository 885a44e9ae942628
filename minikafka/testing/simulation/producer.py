"""``SimulatedProducer``: an idempotent producer (KIP-98) on top of ``SimulatedClient``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation.client import (
    DELIVERY_TIMEOUT_MS,
    SimulatedClient,
    check,
    make_batch,
    pause_or_raise,
)


class SimulatedProducer:
    """Sends numbered batches, one at a time for each partition: each is there once, however often tried."""

    def __init__(self, client: SimulatedClient, *, acks: int = -1) -> None:
        self._client = client
        self._acks = acks
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def __repr__(self) -> str:
        return f"SimulatedProducer(id {self._producer_id}, next {self._sequences})"

    async def send(
        self, topic: str, partition: int, values: Sequence[bytes], *, deadline_ms: int = DELIVERY_TIMEOUT_MS
    ) -> int:
        """Deliver one batch. Returns its first offset; -1 when it was there already and nobody knows where.

        Raises:
            KafkaError, BrokerUnavailable: the last error; the batch may be there all the same, and its number
                is used again, so what follows must be the same batch or go to another partition.
        """
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        while self._producer_id < 0:
            try:
                await self._init_producer_id()
            except (KafkaError, BrokerUnavailable) as error:
                await pause_or_raise(error, deadline)
        sequence = self._sequences.get((topic, partition), 0)
        batch = make_batch(
            values,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        left_ms = round((deadline - asyncio.get_running_loop().time()) * 1000)
        try:
            offset = await self._client.deliver(topic, partition, batch, acks=self._acks, deadline_ms=left_ms)
        except KafkaError as error:
            if error.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise
            offset = -1
        self._sequences[topic, partition] = sequence + len(values)
        return offset

    async def _init_producer_id(self) -> None:
        body = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._client.metadata([])
        broker = answer.brokers[0]
        found = await self._client.request((broker.host, broker.port), ApiKey.INIT_PRODUCER_ID, body)
        check(found.error_code)
        self._producer_id, self._epoch = found.producer_id, found.producer_epoch
