"""InitProducerId in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.api_versions import SUPPORTED, ApiKey

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
@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("t", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ("", ErrorCode.INVALID_REQUEST)],
)
async def test_transactions_are_refused(
    admin_broker: Any, version: int, transactional_id: str, code: ErrorCode
) -> None:
    answer = await init(admin_broker, version, transactional_id)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("version", VERSIONS[3:])
async def test_a_producer_may_leave_its_id_behind_but_not_half_of_it(admin_broker: Any, version: int) -> None:
    answer = await init(admin_broker, version, producer_id=900, producer_epoch=4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)
    for half in ({"producer_id": 900}, {"producer_epoch": 4}):
        assert (await init(admin_broker, version, **half)).error_code == ErrorCode.INVALID_REQUEST
