"""UpdateFeatures in every version: levels move up and down, all of a request or none, and are kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, StartError
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.cluster.features import FEATURES, UpgradeType
from tests.unit.server.running import eventually

KEY = ApiKey.UPDATE_FEATURES
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
UP, SAFE, UNSAFE = UpgradeType


async def update(
    broker: Any, version: int, *levels: tuple[str, int], upgrade_type: int = UP, validate_only: bool = False
) -> Any:
    updates = [
        {"feature": name, "max_version_level": level, "allow_downgrade": False, "upgrade_type": upgrade_type}
        for name, level in levels
    ]
    body = {"timeout": 1000, "feature_updates": updates, "validate_only": validate_only}
    return await broker.ask(KEY, version, body)


async def api_versions(broker: Any, version: int = 4) -> Any:
    body = {"client_software_name": "tests", "client_software_version": "1"}
    return await broker.ask(ApiKey.API_VERSIONS, version, body)


async def finalized(broker: Any) -> dict[str, int]:
    answer = await api_versions(broker)
    return {each.name: each.max_version_level for each in answer.finalized_features}


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_update_and_the_level_that_is_there_succeed(admin_broker: Any, version: int) -> None:
    answer = await update(admin_broker, version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    answer = await update(admin_broker, version, ("transaction.version", 2))
    assert answer.error_code == ErrorCode.NONE
    if version < 2:
        assert [each.feature for each in answer.results] == ["transaction.version"]
    assert (await api_versions(admin_broker)).finalized_features_epoch == 0, "nothing has changed"


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "why"),
    [
        ("group.version", 2, UP, "Local controller 1 only supports versions 0-1"),
        ("kraft.version", 0, SAFE, "Can't downgrade the version of this feature."),
        ("metadata.version", 6, SAFE, "Local controller 1 only supports versions 7-33"),
        ("metadata.version", 34, UP, "Local controller 1 only supports versions 7-33"),
        ("eligible.leader.replicas.version", 0, UNSAFE, "Can't downgrade the version of this feature."),
        ("no.such.version", 1, UP, "Local controller 1 does not support this feature."),
        ("no.such.version", 0, UP, "Feature no.such.version not found."),
        ("group.version", -1, UP, "A feature version cannot be less than 0."),
        ("group.version", 1, 9, "The controller does not support the given upgrade type."),
        (
            "transaction.version",
            1,
            UP,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        ),
    ],
)
async def test_what_is_wrong_with_one_is_the_answer_to_all(
    admin_broker: Any, name: str, level: int, upgrade_type: int, why: str
) -> None:
    before = await finalized(admin_broker)
    answer = await update(
        admin_broker, 2, ("share.version", before["share.version"]), (name, level), upgrade_type=upgrade_type
    )
    if upgrade_type == 9:
        name, level = "share.version", before["share.version"]
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {name}. {why}"
    )
    assert await finalized(admin_broker) == before


@pytest.mark.parametrize(
    ("upgrade_type", "why"),
    [
        (SAFE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
async def test_the_metadata_version_is_not_lowered_as_by_kafka(
    admin_broker: Any, upgrade_type: int, why: str
) -> None:
    answer = await update(admin_broker, 2, ("metadata.version", 27), upgrade_type=upgrade_type)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith(f"Unsupported metadata.version downgrade from 33 to 27. {why}")
    assert (await finalized(admin_broker))["metadata.version"] == 33


async def test_levels_go_down_and_up_again(admin_broker: Any) -> None:
    answer = await update(
        admin_broker, 2, ("transaction.version", 1), ("share.version", 0), upgrade_type=SAFE
    )
    assert answer.error_code == ErrorCode.NONE
    levels = await finalized(admin_broker)
    assert levels["transaction.version"] == 1
    assert "share.version" not in levels, "Kafka does not name what is switched off"
    assert (await api_versions(admin_broker)).finalized_features_epoch == 1

    answer = await update(admin_broker, 2, ("transaction.version", 2), upgrade_type=UNSAFE)
    assert "Can't downgrade to a newer version." in answer.error_message
    answer = await update(admin_broker, 2, ("transaction.version", 2), ("share.version", 1))
    assert answer.error_code == ErrorCode.NONE
    assert await finalized(admin_broker) == levels | {"transaction.version": 2, "share.version": 1}
    assert (await api_versions(admin_broker)).finalized_features_epoch == 2


async def test_fast_paths_do_not_outlive_a_level(admin_broker: Any) -> None:
    """What a connection remembers of its last heartbeat is served without a look at the level."""
    epoch = admin_broker.services.fast_paths.epoch
    await update(admin_broker, 2, ("group.version", 0), upgrade_type=SAFE)
    assert admin_broker.services.fast_paths.epoch > epoch


async def test_validating_changes_nothing(admin_broker: Any) -> None:
    before = await finalized(admin_broker)
    levels = ("transaction.version", 0)
    answer = await update(admin_broker, 2, levels, upgrade_type=SAFE, validate_only=True)
    assert answer.error_code == ErrorCode.NONE
    assert await finalized(admin_broker) == before
    answer = await update(admin_broker, 2, levels, validate_only=True)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_the_first_version_may_allow_a_downgrade(admin_broker: Any) -> None:
    each = {"feature": "group.version", "max_version_level": 0, "allow_downgrade": True}
    answer = await admin_broker.ask(KEY, 0, {"timeout": 1000, "feature_updates": [each]})
    assert answer.error_code == ErrorCode.NONE
    assert "group.version" not in await finalized(admin_broker)


async def test_a_level_that_another_broker_does_not_know_is_refused(admin_broker: Any) -> None:
    store = admin_broker.services.store
    await update(admin_broker, 2, ("share.version", 0), upgrade_type=SAFE)
    endpoint = paths.Endpoint("PLAINTEXT", "h", 1)
    for features, why in (
        ({}, "Broker 7 does not support this feature."),
        ({"share.version": (0, 0)}, "Broker 7 only supports versions 0"),
    ):
        entry = paths.BrokerRegistration((endpoint,), 1, features=features)
        await store.create(paths.broker_path(7), paths.encode_broker(entry))
        answer = await update(admin_broker, 2, ("share.version", 1))
        assert answer.error_message.endswith(f"feature share.version. {why}")
        await store.delete(paths.broker_path(7))
    assert (await update(admin_broker, 2, ("share.version", 1))).error_code == ErrorCode.NONE


async def test_with_an_apache_kafka_3_9_in_the_cluster_its_levels_hold_until_it_is_gone(
    admin_broker: Any,
) -> None:
    """A Java producer that took our transaction.version 2 lost its transactions at brokers of 3.9."""
    store, before = admin_broker.services.store, await finalized(admin_broker)
    assert before["transaction.version"] == 2
    entry = paths.BrokerRegistration((paths.Endpoint("PLAINTEXT", "h", 1),), 1, is_kafka=True)
    await store.create(paths.broker_path(7), paths.encode_broker(entry))

    async def is_off(name: str) -> bool:
        return name not in await finalized(admin_broker)

    for name in ("group.version", "share.version", "streams.version", "transaction.version"):
        await eventually(partial(is_off, name), f"{name} is off")
    assert (await api_versions(admin_broker)).finalized_features_epoch > 0, "news to clients"
    answer = await update(admin_broker, 2, ("transaction.version", 2))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    await store.delete(paths.broker_path(7))
    assert await is_off("transaction.version"), "it may come back"
    answer = await update(admin_broker, 2, *((each, before[each]) for each in before))
    assert answer.error_code == ErrorCode.NONE
    assert await finalized(admin_broker) == before


async def test_a_change_of_another_broker_is_heard_of(admin_broker: Any) -> None:
    """Also of one that Kafka on ZooKeeper wrote, which kept ranges in its first version."""
    services = admin_broker.services
    levels = b'{"min_version_level":1,"max_version_level":0}'
    data = b'{"version":1,"status":1,"features":{"group.version":' + levels + b"}}"

    async def is_at(level: int) -> bool:
        return bool(services.features.level("group.version") == level)

    await services.store.create(paths.FEATURE, data)
    await eventually(lambda: is_at(0), "group.version 0")
    assert services.features.level("transaction.version") == 0, "what Kafka 3.9 does not name is off"
    await services.store.delete(paths.FEATURE)
    await eventually(lambda: is_at(1), "group.version 1")


async def test_api_versions_says_the_same(admin_broker: Any) -> None:
    answer = await api_versions(admin_broker)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert supported == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }, "those of Kafka 4.4.0 (BrokerFeatures.defaultSupportedFeatures)"
    assert await finalized(admin_broker) == {name: levels.default for name, levels in FEATURES.items()}
    assert answer.finalized_features_epoch == 0, "more than -1, of a client that has heard of none"
    older = await api_versions(admin_broker, 3)
    assert {each.name for each in older.supported_features} == {"metadata.version"}, (
        "clients before version 4 read no lowest level of 0 (KIP-1022)"
    )


async def test_a_level_is_kept_over_restarts(admin_broker: Any) -> None:
    await update(admin_broker, 2, ("group.version", 0), upgrade_type=SAFE)
    await admin_broker.stop()
    again = await admin_broker.restarted()
    try:
        assert again.services.features.level("group.version") == 0
        assert (await api_versions(again)).finalized_features_epoch == 1
    finally:
        await again.stop()


async def test_a_broker_does_not_join_a_cluster_that_it_is_too_old_for(admin_broker: Any) -> None:
    await admin_broker.stop()
    await admin_broker.store.create(paths.FEATURE, paths.encode_features({"share.version": 3}))
    with pytest.raises(StartError, match=r"share.version is 3, of which this broker knows 0 to 2"):
        await admin_broker.restarted()
    await admin_broker.store.set(paths.FEATURE, paths.encode_features({"new.version": 1}), 0)
    with pytest.raises(StartError, match=r"new.version is 1, of which this broker knows no level"):
        await admin_broker.restarted()
