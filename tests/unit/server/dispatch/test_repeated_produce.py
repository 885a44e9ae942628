"""A transactional producer that repeats itself takes the fast path, but for what begins a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.apis import produce as slow_path
from minikafka.testing import Broker
from tests.unit.server.apis.transactional import batch
from tests.unit.server.running import topics_of

DEADLINE_MS = 20_000


async def test_only_the_first_batch_of_a_transaction_takes_the_slow_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = 0
    begun = slow_path._Produce.start

    def counted(self: Any) -> Any:
        nonlocal taken
        taken += 1
        return begun(self)

    monkeypatch.setattr(slow_path._Produce, "start", counted)
    async with Broker() as broker:
        await topics_of(broker.server).create_topic("orders")
        connection = await BrokerClient.connect(
            "127.0.0.1", broker.port, client_id="test", deadline_ms=DEADLINE_MS
        )

        async def ask(key: ApiKey, body: dict[str, Any], version: int | None = None) -> Any:
            return await connection.request(key, body, version=version, deadline_ms=DEADLINE_MS)

        await ask(ApiKey.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["t1"], "key": "t1"})
        begin = {"transactional_id": "t1", "transaction_timeout": 60_000, "producer_id": -1}
        made = await ask(ApiKey.INIT_PRODUCER_ID, begin | {"producer_epoch": -1})
        assert made.error_code == 0
        epoch = made.producer_epoch

        async def write(sequence: int) -> tuple[int, int]:
            records = batch(sequence, producer_id=made.producer_id, epoch=epoch)
            data = [{"index": 0, "records": records}]
            topic = [{"name": "orders", "partition_data": data}]
            body = {"transactional_id": "t1", "acks": -1, "timeout": 5000, "topic_data": topic}
            answer = await ask(ApiKey.PRODUCE, body, version=12)
            found = answer.responses[0].partition_responses[0]
            return found.error_code, found.base_offset

        assert [await write(sequence) for sequence in range(5)] == [(0, offset) for offset in range(5)]
        assert taken == 1
        ended = await ask(
            ApiKey.END_TXN,
            {
                "transactional_id": "t1",
                "producer_id": made.producer_id,
                "producer_epoch": epoch,
                "committed": True,
            },
        )
        assert ended.error_code == 0
        assert await write(5) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1), "its epoch is over"
        epoch = ended.producer_epoch
        assert [await write(sequence) for sequence in range(3)] == [(0, offset) for offset in (6, 7, 8)]
        assert taken == 3, "and the fast path is known as before"
        await connection.close()
