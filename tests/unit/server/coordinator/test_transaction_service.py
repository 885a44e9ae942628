"""The transaction coordinator of a broker over its restarts: what was decided is done, what expired goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.server.cluster.topic_validation import TRANSACTION_STATE_TOPIC
from minikafka.types import TopicPartition
from tests.unit.server.apis.test_transaction_apis import Producer
from tests.unit.server.conftest import AdminBroker, transacting
from tests.unit.server.running import eventually

AT = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


async def state(producer: Producer) -> Any:
    """A state's name, or the error."""
    found = await producer.described()
    return found.transaction_state or ErrorCode(found.error_code)


async def until(producer: Producer, wanted: Any) -> None:
    async def is_so() -> bool:
        return bool(await state(producer) == wanted)

    await eventually(is_so, f"{wanted}")


def without_markers(broker: AdminBroker, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """No marker is written; returns what was to be."""
    wanted: list[Any] = []

    async def refuse(body: Any) -> Any:
        wanted.append(body)
        raise BrokerUnavailable("not now")

    monkeypatch.setattr(broker.services.transactions.markers, "_write_here", refuse)
    return wanted


async def test_an_open_transaction_is_open_after_a_restart(store: Any, tmp_path: Path) -> None:
    async with transacting(store, tmp_path) as broker:
        producer = await Producer.init(broker)
        await producer.add(3, 0, 1)
    async with transacting(store, tmp_path) as broker:
        producer = producer._replace(broker=broker)
        assert (await state(producer), await producer.partitions()) == (
            "Ongoing",
            [("orders", 0), ("orders", 1)],
        )
        assert (await producer.end(3, commit=True)).error_code == ErrorCode.NONE
        await until(producer, "CompleteCommit")


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_the_next_coordinator_does_what_was_decided(
    how: str, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with transacting(store, tmp_path) as broker:
        wanted = without_markers(broker, monkeypatch)
        producer = await Producer.init(broker)
        await producer.add(3, 0)
        assert (await producer.end(3, commit=False)).error_code == ErrorCode.NONE

        async def tried() -> bool:
            return bool(wanted)

        await eventually(tried, "the markers were to be written")
        assert await state(producer) == "PrepareAbort"
        if how == "kill":
            await broker.kill()
    async with transacting(store, tmp_path) as broker:
        await until(producer._replace(broker=broker), "CompleteAbort")


async def test_markers_are_tried_until_they_are_written(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await Producer.init(transacting_broker)
    await producer.add(3, 0)
    with monkeypatch.context() as patch:
        wanted = without_markers(transacting_broker, patch)
        channel = transacting_broker.services.transactions.markers
        await producer.end(3, commit=True)

        async def tried_again() -> bool:
            return len(wanted) > 1

        await eventually(tried_again, "a second attempt")
        assert await producer.add(3, 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        channel._channels.clear()
    await until(producer, "CompleteCommit")


async def test_unused_ids_are_removed(store: Any, tmp_path: Path) -> None:
    properties = {
        "transactional.id.expiration.ms": "1",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    }
    async with transacting(store, tmp_path, **properties) as broker:
        producer = await Producer.init(broker)
        await until(producer, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        again = await Producer.init(broker)
        assert again.producer_id > producer.producer_id


async def test_without_a_producer_id_the_producer_is_to_ask_again(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> Any:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the store is out of reach")

    with monkeypatch.context() as patch:
        patch.setattr(transacting_broker.services.producer_ids, "next", refuse)
        with pytest.raises(AssertionError):
            await Producer.init(transacting_broker)
    assert (await Producer.init(transacting_broker)).epoch == 0


async def test_a_load_waits_for_the_high_watermark(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with transacting(store, tmp_path) as broker:
        producer = await Producer.init(broker)
        coordinator = broker.services.transactions
        held: list[Callable[[KafkaError | None], None]] = []
        monkeypatch.setattr(
            "minikafka.server.coordinator.hosted_shard.HostedShard.when_committed",
            lambda shard, end_offset, settled: held.append(settled),
        )
        partition = broker.replica_manager.partition(AT)
        (shard,) = coordinator.hosted_shards()
        shard.close()
        coordinator._begin(partition)

        async def read() -> bool:
            return bool(held)

        for answer in (KafkaError(ErrorCode.REQUEST_TIMED_OUT), None):
            await eventually(read, "the log is read")
            assert await state(producer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            held.pop()(answer)
        await until(producer, "Empty")


async def test_a_load_that_cannot_end_fails(
    transacting_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = await Producer.init(transacting_broker)
    coordinator = transacting_broker.services.transactions
    lost = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    monkeypatch.setattr(
        "minikafka.server.coordinator.hosted_shard.HostedShard.when_committed",
        lambda shard, end_offset, settled: settled(lost),
    )
    (shard,) = coordinator.hosted_shards()
    shard.close()
    coordinator._begin(transacting_broker.replica_manager.partition(AT))
    await until(producer, ErrorCode.NOT_COORDINATOR)
    assert "the transactions of __transaction_state-0 cannot be loaded" in caplog.text
