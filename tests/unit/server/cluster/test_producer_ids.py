"""Producer ids: never the same one twice, whichever broker asks, whatever crashes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError, NoNodeError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import OlderController
from minikafka.server.cluster.producer_ids import (
    BLOCK_SIZE,
    PRODUCER_ID_MAX,
    ProducerIdManager,
    ask_for_block,
)
from minikafka.types import BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)


async def test_ids_come_in_order_and_a_block_is_claimed_before_its_first_id(store: Any) -> None:
    ids = ProducerIdManager(node_id=ONE, store=store)
    assert [await ids.next() for _ in range(3)] == [0, 1, 2]
    block = paths.decode_producer_id_block((await store.get(paths.PRODUCER_ID_BLOCK)).data)
    assert block == paths.ProducerIdBlock(ONE, 0, BLOCK_SIZE - 1)


async def test_the_next_block_follows_when_one_is_used_up(store: Any) -> None:
    ids = ProducerIdManager(node_id=ONE, store=store)
    assert [await ids.next() for _ in range(BLOCK_SIZE + 1)] == list(range(BLOCK_SIZE + 1))


async def test_producers_that_ask_at_once_get_different_ids(store: Any) -> None:
    ids = ProducerIdManager(node_id=ONE, store=store)
    got = await asyncio.gather(*(ids.next() for _ in range(BLOCK_SIZE + 50)))
    assert sorted(got) == list(range(BLOCK_SIZE + 50))


async def test_two_brokers_and_a_restarted_one_never_share_an_id(store: Any) -> None:
    brokers = [ProducerIdManager(node_id=node_id, store=store) for node_id in (ONE, TWO, ONE)]
    got = await asyncio.gather(*(broker.next() for broker in brokers for _ in range(5)))
    assert len(set(got)) == len(got)


async def test_the_empty_node_that_kafka_makes_at_its_start_is_no_block(store: Any) -> None:
    await store.create(paths.PRODUCER_ID_BLOCK)
    assert await ProducerIdManager(node_id=ONE, store=store).next() == 0


async def test_ids_end_with_an_error_and_not_at_the_beginning(store: Any) -> None:
    last = paths.ProducerIdBlock(TWO, PRODUCER_ID_MAX - BLOCK_SIZE, PRODUCER_ID_MAX)
    await store.create(paths.PRODUCER_ID_BLOCK, paths.encode_producer_id_block(last))
    with pytest.raises(KafkaError, match="used up"):
        await ProducerIdManager(node_id=ONE, store=store).next()


async def test_a_store_that_is_away_makes_producers_wait_and_wastes_nothing(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ProducerIdManager(node_id=ONE, store=store)

    async def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionLossError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", away)
        with pytest.raises(KafkaError) as caught:
            await ids.next()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await ids.next() == 0


async def test_a_damaged_node_is_reported_and_not_overwritten(store: Any) -> None:
    await store.create(paths.PRODUCER_ID_BLOCK, b"{}")
    with pytest.raises(KafkaError) as caught:
        await ProducerIdManager(node_id=ONE, store=store).next()
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await store.get(paths.PRODUCER_ID_BLOCK)).data == b"{}"


class _Controller:
    """A connection to it: what it answers to each request, or the error that comes instead."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[ApiKey, Any]] = []

    async def request(self, api_key: ApiKey, body: Any) -> Any:
        self.asked.append((api_key, body))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _asking(controller: Any, store: Any) -> ProducerIdManager:
    ids = ProducerIdManager(node_id=TWO, store=store)
    ids.ask_controller = lambda: ask_for_block(controller, node_id=TWO, broker_epoch=7)
    return ids


def _block(first: int, *, error: ErrorCode = ErrorCode.NONE) -> SimpleNamespace:
    return SimpleNamespace(error_code=error, producer_id_start=first, producer_id_len=BLOCK_SIZE)


async def test_a_broker_among_others_gets_its_blocks_from_the_controller(store: Any) -> None:
    controller = _Controller(_block(4000), _block(9000))
    ids = _asking(controller, store)
    got = [await ids.next() for _ in range(BLOCK_SIZE + 1)]
    assert got == [*range(4000, 4000 + BLOCK_SIZE), 9000]
    assert controller.asked == [(ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": TWO, "broker_epoch": 7})] * 2
    with pytest.raises(NoNodeError):
        await store.get(paths.PRODUCER_ID_BLOCK)


@pytest.mark.parametrize(
    "answer",
    [
        BrokerUnavailable("broker 1 does not answer"),
        KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is not known here"),
        _block(-1, error=ErrorCode.STALE_BROKER_EPOCH),
    ],
)
async def test_producers_wait_and_retry_while_no_controller_has_a_block(store: Any, answer: Any) -> None:
    ids = _asking(_Controller(answer, _block(0)), store)
    with pytest.raises(KafkaError, match="No producer ids from the controller") as raised:
        await ids.next()
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await ids.next() == 0


async def test_under_a_controller_of_0_2_0_a_broker_claims_its_own_blocks(store: Any) -> None:
    assert await _asking(_Controller(OlderController("broker 1")), store).next() == 0
    assert paths.decode_producer_id_block((await store.get(paths.PRODUCER_ID_BLOCK)).data).broker_id == TWO
