"""Groups and client metrics subscriptions: set, applied, found again, gone with their last property."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.cli.groups import GroupAdmin
from minikafka.config.resource import Alteration, AlterOperation, ConfigResource, ConfigResourceType
from minikafka.coordination import paths
from minikafka.coordination.store import NoNodeError
from minikafka.coordinator.group.environment import ShareGroupSettings
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing import Broker

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ODD_NAMES = ["g", "a/b", "..", ".", "100%", "grüße", "<default>", " ", "%2F"]
DEADLINE_MS = 20_000
SET, DELETE = AlterOperation.SET, AlterOperation.DELETE


def group(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.GROUP, name)


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_group_of_any_name_keeps_what_is_set_over_a_restart(admin_broker: Any, name: str) -> None:
    await admin_broker.configs.alter_incrementally(group(name), [Alteration(SESSION, SET, "50000")])
    settings = admin_broker.configs.consumer_group_settings(name)
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (50_000, 5_000)
    await admin_broker.stop()
    again = await admin_broker.restarted()
    assert again.configs.configured_groups() == [name]
    assert again.configs.consumer_group_settings(name).session_timeout_ms == 50_000
    await again.stop()


async def test_what_a_group_has_set_holds_within_the_bounds_of_the_broker_that_comes(
    admin_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await admin_broker.stop()
    generous = await admin_broker.restarted(**{"group.consumer.max.session.timeout.ms": "90000"})
    await generous.configs.alter_incrementally(group("g"), [Alteration(SESSION, SET, "80000")])
    assert generous.configs.consumer_group_settings("g").session_timeout_ms == 80_000
    await generous.stop()
    strict = await generous.restarted()
    assert strict.configs.consumer_group_settings("g").session_timeout_ms == 60_000
    assert "consumer.session.timeout.ms is 80000, of which this broker allows 60000" in caplog.text
    described = {each.name: each.value for each in strict.configs.describe(group("g"))}
    assert described[SESSION] == "80000", "as it was set"
    await strict.stop()


async def test_a_group_without_properties_has_the_brokers_and_no_node(admin_broker: Any) -> None:
    configs, path = admin_broker.configs, paths.named_config_path(paths.GROUP_CONFIGS, "g")
    await configs.alter_incrementally(
        group("g"), [Alteration(SESSION, SET, "50000"), Alteration(HEARTBEAT, SET, "6000")]
    )
    await configs.alter_incrementally(group("g"), [Alteration(SESSION, DELETE)])
    settings = configs.consumer_group_settings("g")
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (45_000, 6_000)
    await configs.alter_incrementally(group("g"), [Alteration(HEARTBEAT, DELETE)])
    assert (configs.consumer_group_settings("g").heartbeat_interval_ms, configs.configured_groups()) == (
        5_000,
        [],
    )
    with pytest.raises(NoNodeError):
        await admin_broker.store.get(path)
    await configs.alter_incrementally(group("g"), [Alteration(HEARTBEAT, DELETE)])


async def test_a_share_groups_settings_are_those_set_for_it(admin_broker: Any) -> None:
    configs = admin_broker.configs
    sets = {
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.delivery.count.limit": "7",
    }
    await configs.alter_incrementally(
        group("g"), [Alteration(name, SET, text) for name, text in sets.items()]
    )
    settings = configs.share_group_settings("g")
    assert settings == ShareGroupSettings(
        auto_offset_reset="by_duration",
        auto_offset_reset_ms=3_600_000,
        is_read_committed=True,
        delivery_count_limit=7,
    )
    assert configs.share_group_settings("other") == ShareGroupSettings()
    described = {entry.name: entry for entry in configs.describe(group("g"))}
    assert {name: described[name].value for name in sets} == sets
    assert described["share.record.lock.duration.ms"].value == "30000"


async def test_only_validating_writes_nothing(admin_broker: Any) -> None:
    await admin_broker.configs.alter(group("g"), {SESSION: "50000"}, validate_only=True)
    assert admin_broker.configs.configured_groups() == []
    assert await admin_broker.store.children(paths.GROUP_CONFIGS) == []


async def test_what_another_broker_has_set_is_applied_when_it_is_heard_of(admin_broker: Any) -> None:
    told: list[tuple[str, dict[str, str]]] = []
    admin_broker.configs.follow_client_metrics(lambda name, overrides: told.append((name, dict(overrides))))
    path = paths.named_config_path(paths.CLIENT_METRICS_CONFIGS, "a/b")
    await admin_broker.store.create(path, paths.encode_config({"metrics": "*"}))
    await admin_broker.configs.reload(path.removeprefix("/config/"))
    assert admin_broker.configs.client_metrics_subscriptions() == ["a/b"]
    await admin_broker.store.delete(path)
    await admin_broker.configs.reload(path.removeprefix("/config/"))
    assert told == [("a/b", {"metrics": "*"}), ("a/b", {})]


async def test_stored_properties_that_cannot_be_used_are_left_out(admin_broker: Any) -> None:
    path = paths.named_config_path(paths.GROUP_CONFIGS, "g")
    await admin_broker.store.create(
        path, paths.encode_config({SESSION: "50000", HEARTBEAT: "often", "share.session.timeout.ms": "1"})
    )
    await admin_broker.configs.reload("groups/g")
    settings = admin_broker.configs.consumer_group_settings("g")
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (50_000, 5_000)


async def test_the_members_of_a_group_are_told_its_own_heartbeat_interval() -> None:
    async with Broker() as broker:
        configs = broker.server.services.configs
        client = await BrokerClient.connect(
            "127.0.0.1", broker.port, client_id="test", deadline_ms=DEADLINE_MS
        )
        admin = GroupAdmin([("127.0.0.1", broker.port)], client_id="test", timeout_ms=DEADLINE_MS)
        member = {"group_id": "g", "rebalance_timeout": 10_000, "topic_partitions": []}
        member |= {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}

        async def heartbeat(epoch: int) -> Any:
            return await client.request(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, member | {"member_epoch": epoch}, deadline_ms=DEADLINE_MS
            )

        async with admin:
            await admin.groups()
            with pytest.raises(KafkaError):
                await admin.describe("g")  # finds the coordinator, once there is one
        joined = await heartbeat(0)
        assert (joined.error_code, joined.heartbeat_interval) == (0, 5_000)
        await configs.alter(group("g"), {HEARTBEAT: "7000"})
        again = await heartbeat(joined.member_epoch)
        assert (again.error_code, again.heartbeat_interval) == (0, 7_000)
        await client.close()
