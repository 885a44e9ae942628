"""InitProducerId in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.INIT_PRODUCER_ID
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


async def init(broker: Any, version: int, transactional_id: str | None = None, **fields: Any) -> Any:
    body = {"transactional_id": transactional_id, "transaction_timeout": 60_000, **fields}
    return await broker.ask(KEY, version, body)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_producer_gets_an_id_of_its_own_at_epoch_0(admin_broker: Any, version: int) -> None:
    first, second = await init(admin_broker, version), await init(admin_broker, version)
    assert (first.error_code, first.producer_id, first.producer_epoch) == (ErrorCode.NONE, 0, 0)
    assert (second.producer_id, second.producer_epoch) == (1, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_transactional_id_keeps_its_producer_id_and_its_epoch_rises(
    transacting_broker: Any, version: int
) -> None:
    answers = [await init(transacting_broker, version, "t") for _ in range(3)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (ErrorCode.NONE, 0, epoch) for epoch in range(3)
    ]
    other = await init(transacting_broker, version, "u")
    assert (other.producer_id, other.producer_epoch) == (1, 0)


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_a_producer_that_lost_its_epoch_is_fenced(transacting_broker: Any, version: int) -> None:
    for _ in range(3):
        await init(transacting_broker, version, "t")
    answer = await init(transacting_broker, version, "t", producer_id=0, producer_epoch=2)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 3), "KIP-360"
    answer = await init(transacting_broker, version, "t", producer_id=0, producer_epoch=1)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (fenced, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_not_allowed_changes_nothing(transacting_broker: Any, version: int) -> None:
    empty = await init(transacting_broker, version, "")
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    for timeout in (0, 15 * 60_000 + 1):
        answer = await init(transacting_broker, version, "t", transaction_timeout=timeout)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await init(transacting_broker, version, "t")).producer_epoch == 0


async def test_a_broker_that_does_not_lead_the_partition_is_not_the_coordinator(admin_broker: Any) -> None:
    assert (await init(admin_broker, 5, "t")).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_a_producer_may_leave_its_id_behind_but_not_half_of_it(admin_broker: Any, version: int) -> None:
    answer = await init(admin_broker, version, producer_id=900, producer_epoch=4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)
    for half in ({"producer_id": 900}, {"producer_epoch": 4}):
        assert (await init(admin_broker, version, **half)).error_code == ErrorCode.INVALID_REQUEST
