"""UpdateFeatures in every version: a cluster whose features stand at one level each."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.UPDATE_FEATURES
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


async def update(broker: Any, version: int, *levels: tuple[str, int], upgrade_type: int = 1) -> Any:
    updates = [
        {"feature": name, "max_version_level": level, "allow_downgrade": False, "upgrade_type": upgrade_type}
        for name, level in levels
    ]
    return await broker.ask(
        KEY, version, {"timeout": 1000, "feature_updates": updates, "validate_only": False}
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_update_and_level_0_succeed(admin_broker: Any, version: int) -> None:
    answer = await update(admin_broker, version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    answer = await update(admin_broker, version, ("kraft.version", 0))
    assert answer.error_code == ErrorCode.NONE
    if version < 2:
        assert [each.feature for each in answer.results] == ["kraft.version"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_any_level_is_refused_for_all_features(admin_broker: Any, version: int) -> None:
    answer = await update(admin_broker, version, ("kraft.version", 0), ("metadata.version", 27))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Invalid update version 27 for feature metadata.version" in answer.error_message
    answer = await update(admin_broker, version, ("kraft.version", -1))
    assert "cannot be less than 0" in answer.error_message
    if version >= 1:
        answer = await update(admin_broker, version, ("kraft.version", 0), upgrade_type=9)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_version_of_transactions_stays_where_it_is(admin_broker: Any, version: int) -> None:
    assert (await update(admin_broker, version, ("transaction.version", 2))).error_code == ErrorCode.NONE
    for level in (0, 1, 3):
        answer = await update(admin_broker, version, ("transaction.version", level), upgrade_type=2)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_api_versions_says_the_same(admin_broker: Any) -> None:
    body = {"client_software_name": "tests", "client_software_version": "1"}
    answer = await admin_broker.ask(ApiKey.API_VERSIONS, 4, body)
    features = (
        ("eligible.leader.replicas.version", 1, 1),
        ("group.version", 1, 1),
        ("share.version", 1, 1),
        ("streams.version", 1, 1),
        ("transaction.version", 2, 2),
    )
    assert answer.supported_features == features
    assert answer.finalized_features == features
    assert answer.finalized_features_epoch == 0, "more than -1, of a client that has heard of none"
