"""Configuration that changes while the broker runs: checked, stored, applied, there again after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.config.definition import ConfigSource
from minikafka.config.resource import Alteration, AlterOperation, ConfigResource, ConfigResourceType
from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TopicPartition

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "a")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
LOGGERS = ConfigResource(ConfigResourceType.BROKER_LOGGER, "1")
SET, DELETE, APPEND, SUBTRACT = AlterOperation


async def failure(work: Any) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value


def values(broker: Any, resource: ConfigResource) -> dict[str, Any]:
    return {entry.name: entry.value for entry in broker.configs.describe(resource)}


def entry(broker: Any, resource: ConfigResource, name: str) -> Any:
    return next(each for each in broker.configs.describe(resource) if each.name == name)


def log_config(broker: Any) -> Any:
    return broker.replica_manager.partition(TopicPartition("a", 0)).log.config


@pytest.fixture
async def broker(admin_broker: Any) -> Any:
    """With one topic, "a"."""
    await admin_broker.topics.create_topic("a", configs={"retention.ms": "1000"})
    return admin_broker


async def test_a_topics_change_reaches_its_log_the_store_and_the_next_start(broker: Any) -> None:
    await broker.configs.alter_incrementally(TOPIC, [Alteration("segment.ms", SET, "5000")])
    assert (log_config(broker).segment_ms, log_config(broker).retention_ms) == (5000, 1000)
    stored = paths.decode_config((await broker.store.get(paths.topic_config_path("a"))).data)
    assert stored == {"retention.ms": "1000", "segment.ms": "5000"}
    await broker.stop()
    again = await broker.restarted()
    assert log_config(again).segment_ms == 5000
    assert values(again, TOPIC)["segment.ms"] == "5000"
    await again.stop()


async def test_alter_replaces_everything_that_was_set(broker: Any) -> None:
    await broker.configs.alter(TOPIC, {"segment.ms": "5000"})
    assert (log_config(broker).segment_ms, log_config(broker).retention_ms) == (5000, 604_800_000)


async def test_lists_are_added_to_and_taken_from(broker: Any) -> None:
    await broker.configs.alter_incrementally(TOPIC, [Alteration("cleanup.policy", APPEND, "compact")])
    assert log_config(broker).cleanup_policy == ("delete", "compact")
    await broker.configs.alter_incrementally(TOPIC, [Alteration("cleanup.policy", SUBTRACT, "delete")])
    assert log_config(broker).cleanup_policy == ("compact",)
    await broker.configs.alter_incrementally(TOPIC, [Alteration("cleanup.policy", DELETE)])
    assert log_config(broker).cleanup_policy == ("delete",)


@pytest.mark.parametrize(
    ("resource", "alteration", "code", "named"),
    [
        (TOPIC, Alteration("segment.ms", SET, "0"), ErrorCode.INVALID_CONFIG, "segment.ms"),
        (TOPIC, Alteration("segment.ms", SET, "long"), ErrorCode.INVALID_CONFIG, "long"),
        (TOPIC, Alteration("no.such.name", SET, "1"), ErrorCode.INVALID_CONFIG, "no.such.name"),
        (TOPIC, Alteration("segment.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "segment.ms"),
        (TOPIC, Alteration("segment.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "9"),
        (TOPIC, Alteration("segment.ms", SET, None), ErrorCode.INVALID_REQUEST, "segment.ms"),
        (BROKER, Alteration("node.id", SET, "2"), ErrorCode.INVALID_REQUEST, "node.id"),
        (BROKER, Alteration("message.max.bytes", SET, "x"), ErrorCode.INVALID_REQUEST, "message.max.bytes"),
        (
            ConfigResource(ConfigResourceType.TOPIC, "b"),
            Alteration("segment.ms", SET, "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "'b'",
        ),
        (
            ConfigResource(ConfigResourceType.TOPIC, "b/c"),
            Alteration("segment.ms", SET, "1"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "b/c",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER, "2"),
            Alteration("message.max.bytes", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "2",
        ),
        (
            ConfigResource(ConfigResourceType.BROKER, "two"),
            Alteration("message.max.bytes", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "two",
        ),
        (
            ConfigResource(ConfigResourceType.GROUP, "g"),
            Alteration("x", SET, "1"),
            ErrorCode.INVALID_CONFIG,
            "x",
        ),
        (
            ConfigResource(ConfigResourceType.GROUP, "g"),
            Alteration("consumer.session.timeout.ms", SET, "1000"),
            ErrorCode.INVALID_CONFIG,
            "group.consumer.min.session.timeout.ms",
        ),
        (
            ConfigResource(ConfigResourceType.CLIENT_METRICS, "m"),
            Alteration("interval.ms", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "interval.ms",
        ),
        (
            ConfigResource(ConfigResourceType.CLIENT_METRICS, "m"),
            Alteration("match", APPEND, "client=x"),
            ErrorCode.INVALID_CONFIG,
            "client=x",
        ),
        (ConfigResource(77, "g"), Alteration("x", SET, "1"), ErrorCode.INVALID_REQUEST, "77"),
    ],
)
async def test_a_bad_change_names_what_is_wrong_and_changes_nothing(
    broker: Any, resource: ConfigResource, alteration: Alteration, code: ErrorCode, named: str
) -> None:
    before = values(broker, TOPIC), values(broker, BROKER)
    good = Alteration("retention.ms", SET, "7")
    alterations = [good, alteration] if resource == TOPIC else [alteration]
    error = await failure(broker.configs.alter_incrementally(resource, alterations))
    assert error.code is code
    assert named in str(error)
    assert (values(broker, TOPIC), values(broker, BROKER)) == before
    assert log_config(broker).retention_ms == 1000


async def test_validate_only_checks_and_changes_nothing(broker: Any) -> None:
    for resource, name, code in (
        (TOPIC, "retention.ms", ErrorCode.INVALID_CONFIG),
        (BROKER, "log.retention.ms", ErrorCode.INVALID_REQUEST),  # as Kafka does, KAFKA-13609
    ):
        await broker.configs.alter_incrementally(resource, [Alteration(name, SET, "7")], validate_only=True)
        await broker.configs.alter(resource, {name: "7"}, validate_only=True)
        error = await failure(broker.configs.alter(resource, {name: "x"}, validate_only=True))
        assert error.code is code
    assert log_config(broker).retention_ms == 1000
    assert broker.configs.broker_config.log_retention_ms is None


async def test_a_dynamic_default_reaches_the_broker_its_topics_and_the_next_start(broker: Any) -> None:
    seen: list[Any] = []
    broker.configs.subscribe_broker(seen.append)
    changes = {"log.segment.bytes": "2097152", "log.retention.ms": "9"}
    await broker.configs.alter(ALL_BROKERS, changes | {"min.insync.replicas": "1"})
    assert broker.services.config.log_segment_bytes == seen[-1].log_segment_bytes == 2_097_152
    assert (log_config(broker).segment_bytes, log_config(broker).retention_ms) == (2_097_152, 1000)
    assert entry(broker, TOPIC, "segment.bytes").source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert values(broker, ALL_BROKERS) == changes | {"min.insync.replicas": "1"}
    await broker.stop()
    again = await broker.restarted()
    assert log_config(again).segment_bytes == 2_097_152
    await again.stop()


async def test_this_brokers_own_value_wins_over_the_default_of_all(broker: Any) -> None:
    everywhere = [Alteration("message.max.bytes", SET, "1000")]
    await broker.configs.alter_incrementally(ALL_BROKERS, everywhere)
    await broker.configs.alter(BROKER, {"message.max.bytes": "2000"})
    assert log_config(broker).max_message_bytes == 2000
    described = entry(broker, BROKER, "message.max.bytes")
    assert (described.value, described.source) == ("2000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(each.value, each.source) for each in described.synonyms] == [
        ("2000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    await broker.configs.alter(BROKER, {})
    assert log_config(broker).max_message_bytes == 1000


async def test_min_insync_replicas_is_the_clusters(
    admin_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka with eligible leader replicas: what the first broker was configured with holds for all."""
    await admin_broker.stop()
    broker = await admin_broker.restarted(**{"min.insync.replicas": "3"})
    assert "min.insync.replicas=3 of this broker's configuration has no effect" in caplog.text
    assert values(broker, ALL_BROKERS) == {"min.insync.replicas": "1"}
    await broker.topics.create_topic("a")
    described = entry(broker, TOPIC, "min.insync.replicas")
    assert (described.value, described.source) == ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    await broker.configs.alter_incrementally(ALL_BROKERS, [Alteration("min.insync.replicas", SET, "2")])
    assert log_config(broker).min_insync_replicas == 2
    removed = await failure(
        broker.configs.alter_incrementally(ALL_BROKERS, [Alteration("min.insync.replicas", DELETE)])
    )
    assert removed.code is ErrorCode.INVALID_CONFIG
    assert removed.message == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    assert (await failure(broker.configs.alter(ALL_BROKERS, {}))).code is ErrorCode.INVALID_CONFIG
    on_one = await failure(
        broker.configs.alter_incrementally(BROKER, [Alteration("min.insync.replicas", SET, "1")])
    )
    assert on_one.code is ErrorCode.INVALID_CONFIG
    assert on_one.message == "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    assert log_config(broker).min_insync_replicas == 2
    await broker.stop()


async def test_changes_of_one_topic_at_the_same_time_are_all_kept(broker: Any) -> None:
    changes = [("segment.ms", "5"), ("flush.ms", "6"), ("index.interval.bytes", "7")]
    await asyncio.gather(
        *(broker.configs.alter_incrementally(TOPIC, [Alteration(name, SET, text)]) for name, text in changes)
    )
    assert {name: values(broker, TOPIC)[name] for name, _ in changes} == dict(changes)


async def test_a_change_by_another_broker_is_not_lost(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker writes between our reading and our writing: ours starts again from theirs."""
    path, read = paths.topic_config_path("a"), broker.own_store.get
    theirs = [paths.encode_config({"flush.ms": "6"})]

    async def read_then_lose(asked: str, **arguments: Any) -> Any:
        node = await read(asked, **arguments)
        if asked == path and theirs:
            await broker.store.set(path, theirs.pop())
        return node

    monkeypatch.setattr(broker.own_store, "get", read_then_lose)
    await broker.configs.alter_incrementally(TOPIC, [Alteration("segment.ms", SET, "5")])
    stored = paths.decode_config((await read(path)).data)
    assert stored == {"flush.ms": "6", "segment.ms": "5"}


async def test_a_topic_that_was_deleted_meanwhile_gets_no_configuration(broker: Any) -> None:
    """The store knows better than this broker's cache."""
    for path in (
        paths.partition_state_path("a", 0),
        paths.partition_path("a", 0),
        paths.partitions_path("a"),
        paths.topic_path("a"),
        paths.topic_config_path("a"),
    ):
        await broker.store.delete(path)
    error = await failure(broker.configs.alter(TOPIC, {"segment.ms": "5"}))
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await broker.store.exists(paths.topic_config_path("a")) is None


async def test_stored_properties_that_this_broker_cannot_use_are_left_out(broker: Any) -> None:
    bad = {"retention.ms": "8", "remote.storage.enable": "true", "segment.ms": "long"}
    await broker.store.set(paths.topic_config_path("a"), paths.encode_config(bad))
    await broker.store.ensure_path(paths.BROKER_CONFIGS)
    stored = {"message.max.bytes": "1500", "node.id": "3", "no.such": "1"}
    await broker.store.create(paths.broker_config_path(1), paths.encode_config(stored))
    await broker.stop()
    again = await broker.restarted()
    assert (log_config(again).retention_ms, log_config(again).segment_ms) == (8, 604_800_000)
    assert again.configs.broker_config.message_max_bytes == 1500
    assert values(again, TOPIC)["retention.ms"] == "8"
    await again.stop()


async def test_loggers_are_described_and_changed_incrementally_only(broker: Any) -> None:
    assert values(broker, LOGGERS)["root"] in {"DEBUG", "INFO", "WARN", "ERROR"}
    assert (await failure(broker.configs.alter(LOGGERS, {"root": "INFO"}))).code is ErrorCode.INVALID_REQUEST
    error = await failure(broker.configs.alter_incrementally(LOGGERS, [Alteration("root", SET, "LOUD")]))
    assert error.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(KafkaError, match="must not be empty"):
        broker.configs.describe(ConfigResource(ConfigResourceType.BROKER_LOGGER, ""))
