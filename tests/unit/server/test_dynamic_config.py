"""What IncrementalAlterConfigs may change at run time is in force at once, and again after a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.config.broker import BROKER_CONFIG_KEYS, broker_config
from minikafka.config.definition import UpdateMode
from minikafka.config.resolution import BrokerProperties
from minikafka.config.resource import Alteration, AlterOperation, ConfigResource, ConfigResourceType
from minikafka.config.security import SecurityConfig
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.coordinator.group.environment import StreamsGroupSettings
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.staged_compaction import CompactionJob, CompactionResult
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import HEADER_SIZE
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.broker import Broker
from minikafka.server.config_service import usable_broker_properties
from minikafka.server.storage.log_cleaner import LogCleaner
from minikafka.types import TopicPartition
from tests.unit.server.running import topics_of

TP = TopicPartition("t", 0)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
PROBES = {
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.zstd.level": "5",
    "cleanup.policy": "compact",
    "compression.type": "gzip",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "preallocate": "true",
    "unclean.leader.election.enable": "true",
    "segment.bytes": "2097152",
    "max.compaction.lag.ms": "98765432",
    "segment.ms": "98765432",
    "segment.index.bytes": "4096",
}
"""A value unlike the default; where none is given, 77 is one."""

COMPACTION = {
    "log.cleaner.backoff.ms": "7",
    "log.cleaner.dedupe.buffer.size": "100000",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.buffer.size": "1400000",
    "log.cleaner.io.max.bytes.per.second": "5000.0",
    "log.cleaner.threads": "2",
}
"""What the log cleaner asks the configuration for when it has to do."""

TOPIC_DEFAULTS = sorted(
    (key.synonyms[0].name, name)
    for name, key in TOPIC_CONFIG_KEYS.items()
    if key.synonyms and BROKER_CONFIG_KEYS[key.synonyms[0].name].update_mode is not UpdateMode.READ_ONLY
)

Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    started: list[Broker] = []

    async def start(**properties: str) -> Broker:
        settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = Broker(broker_config(settings | {k.replace("_", "."): v for k, v in properties.items()}))
        started.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in started:
        await broker.stop()


async def set_dynamically(broker: Broker, *, per_broker: bool = False, **properties: object) -> None:
    await set_properties(broker, {k.replace("_", "."): str(v) for k, v in properties.items()}, per_broker)


async def set_properties(broker: Broker, properties: dict[str, str], per_broker: bool = False) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker.node_id) if per_broker else "")
    await broker.services.configs.alter_incrementally(
        resource, [Alteration(name, AlterOperation.SET, value) for name, value in properties.items()]
    )


async def unset_dynamically(broker: Broker, name: str) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker.node_id))
    await broker.services.configs.alter_incrementally(resource, [Alteration(name, AlterOperation.DELETE)])


def append(broker: Broker, *, size: int = 1, age_ms: int = 0, **options: Any) -> UnifiedLog:
    now_ms = int(time.time() * 1000) - age_ms
    records = build_batch([Record(0, now_ms, b"k", bytes(size), ())], **options)
    broker.services.replica_manager.append(TP, records, required_acks=1)
    return log_of(broker)


def log_of(broker: Broker) -> UnifiedLog:
    return broker.services.replica_manager.partition(TP).log


def test_every_dynamic_property_belongs_to_a_group_that_is_tested_here() -> None:
    dynamic = {
        name
        for name, key in BROKER_CONFIG_KEYS.items()
        if key.update_mode is not UpdateMode.READ_ONLY
        and key.attribute not in SecurityConfig.__struct_fields__  # see tests/unit/server/security
    }
    assert dynamic - {broker_name for broker_name, _ in TOPIC_DEFAULTS} == {
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "group.consumer.assignment.interval.ms",
        "group.consumer.assignor.offload.enable",
        "group.share.assignment.interval.ms",
        "group.share.assignor.offload.enable",
        "group.streams.assignor.offload.enable",
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "trace.one.in",
        *COMPACTION,
    }


async def test_batches_are_followed_as_is_set(start: Start) -> None:
    broker = await start(trace_one_in="3")
    tracer = broker.services.replica_manager.tracer
    assert tracer.is_on
    await set_dynamically(broker, trace_one_in=0)
    assert not tracer.is_on
    await set_dynamically(broker, trace_one_in=5)
    (session,) = tracer.sessions()
    assert (session.name, session.options.one_in) == ("trace.one.in", 5)


async def test_the_next_assignment_follows_what_is_set(start: Start) -> None:
    broker = await start()
    configs = broker.services.configs
    assert configs.consumer_group_settings("g").assignment_interval_ms == 0
    assert configs.share_group_settings("g").assignment_interval_ms == 1_000
    await set_dynamically(
        broker, group_consumer_assignment_interval_ms=700, group_share_assignment_interval_ms=800
    )
    assert configs.consumer_group_settings("g").assignor_offload_enable
    assert configs.share_group_settings("g").assignor_offload_enable
    assert StreamsGroupSettings.of(configs.group_config("g")).assignor_offload_enable
    await set_dynamically(
        broker,
        group_consumer_assignor_offload_enable="false",
        group_share_assignor_offload_enable="false",
        group_streams_assignor_offload_enable="false",
    )
    assert not configs.consumer_group_settings("g").assignor_offload_enable
    assert not configs.share_group_settings("g").assignor_offload_enable
    assert not StreamsGroupSettings.of(configs.group_config("g")).assignor_offload_enable
    assert configs.consumer_group_settings("g").assignment_interval_ms == 700
    assert configs.share_group_settings("g").assignment_interval_ms == 800


async def test_the_next_dead_letter_goes_where_what_is_set_allows(start: Start) -> None:
    broker = await start()
    queues, configs = broker.services.share_partitions._parts.dead_letters, broker.services.configs
    with pytest.raises(KafkaError, match="auto create is disabled"):
        queues._check("g", "dlq.g")
    await set_dynamically(broker, errors_deadletterqueue_auto_create_topics_enable="true")
    queues._check("g", "dlq.g")
    await set_dynamically(broker, errors_deadletterqueue_topic_name_prefix="dead.")
    assert configs.broker_config.errors_deadletterqueue_topic_name_prefix == "dead."
    with pytest.raises(KafkaError, match=r"topic prefix dead\."):
        queues._check("g", "dlq.g")


async def test_the_next_compaction_follows_what_is_set(start: Start) -> None:
    broker = await start(log_cleaner_enable="false")
    await topics_of(broker).create_topic("t", configs={"cleanup.policy": "compact"})
    append(broker).roll()
    await set_properties(broker, COMPACTION)
    seen: list[tuple[CompactionJob, float]] = []

    class Runner:
        async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
            seen.append((job, bytes_per_second))
            return CompactionResult((), 1, 0, 0, 0)

        async def release(self) -> None:
            return None

        def close(self) -> None:
            return None

    cleaner = LogCleaner(broker.services, remove_later=lambda deleted, *, delay_ms: None)
    assert await cleaner.clean_dirtiest(Runner())
    ((job, bytes_per_second),) = seen
    assert (job.map_bytes, job.map_load_factor, job.read_bytes) == (50_000, 0.5, 700_000), "of two threads"
    assert bytes_per_second == 5000
    assert broker.services.config.log_cleaner_backoff_ms == 7


async def test_every_default_of_topics_reaches_the_logs_that_are_open(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    await topics_of(broker).create_topic("own", configs={"retention.ms": "5"})
    for broker_name, topic_name in TOPIC_DEFAULTS:
        attribute = TOPIC_CONFIG_KEYS[topic_name].attribute
        before = getattr(log_of(broker).config, attribute)
        await set_properties(broker, {broker_name: PROBES.get(topic_name, "77")})
        assert getattr(log_of(broker).config, attribute) != before, broker_name
    own = broker.services.replica_manager.partition(TopicPartition("own", 0)).log.config
    assert own.retention_ms == 5 and own.max_message_bytes == 77


async def test_the_next_request_meets_the_new_limits(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    append(broker, size=500)
    await set_dynamically(broker, message_max_bytes=200)
    with pytest.raises(KafkaError) as caught:
        append(broker, size=500)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    await set_dynamically(broker, per_broker=True, message_max_bytes=10_000)  # beats the cluster's
    append(broker, size=500)


async def test_a_deleted_log_waits_as_long_as_is_configured_now(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    await set_dynamically(broker, log_segment_delete_delay_ms=0)
    await topics_of(broker).delete_topic("t")
    assert len(broker.services.log_manager.take_removals()) == 1


async def test_flush_messages_makes_the_disk_thread_flush(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    append(broker)
    await set_dynamically(broker, log_flush_interval_messages=1)
    log = append(broker)
    async with asyncio.timeout(60):
        while log.recovery_point < 2:
            await broker.services.log_io.run(lambda: None)


async def test_idle_producers_are_forgotten_after_the_new_time(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    log = append(broker, age_ms=3_600_000, producer_id=7, producer_epoch=0, base_sequence=0)
    assert log.remove_expired_producers() == 0
    await set_dynamically(broker, producer_id_expiration_ms=60_000)
    assert log.remove_expired_producers() == 1
    await topics_of(broker).create_topic("later")
    later = broker.services.replica_manager.partition(TopicPartition("later", 0)).log
    assert later.producers.producer_id_expiration_ms == 60_000


async def test_transactional_writes_are_checked_or_not_from_now_on(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    assert log_of(broker).producers.verifies_transactions
    await set_dynamically(broker, transaction_partition_verification_enable="false")
    await topics_of(broker).create_topic("later")
    later = broker.services.replica_manager.partition(TopicPartition("later", 0)).log
    assert not log_of(broker).producers.verifies_transactions
    assert not later.producers.verifies_transactions


async def test_the_replication_quotas_have_the_new_rates_at_once(start: Start) -> None:
    broker = await start()
    quotas = broker.services.replication_quotas
    for quota in (quotas.leader, quotas.follower, quotas.alter_log_dirs):
        quota.record(1000, 0)
    assert not any(each.is_quota_exceeded(0) for each in (quotas.leader, quotas.follower))
    await set_dynamically(broker, leader_replication_throttled_rate=999)  # for all brokers
    assert quotas.leader.is_quota_exceeded(0) and not quotas.follower.is_quota_exceeded(0)
    await set_dynamically(
        broker,
        per_broker=True,
        leader_replication_throttled_rate=1000,
        follower_replication_throttled_rate=5,
        replica_alter_log_dirs_io_max_bytes_per_second=0,
    )
    assert not quotas.leader.is_quota_exceeded(0), "what is set for the broker beats the cluster's"
    assert quotas.follower.is_quota_exceeded(0) and quotas.alter_log_dirs.is_quota_exceeded(0)
    await unset_dynamically(broker, "follower.replication.throttled.rate")
    assert not quotas.follower.is_quota_exceeded(0)


async def test_a_topics_throttled_replicas_hold_at_once_and_after_a_restart(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t", configs={"leader.replication.throttled.replicas": "*"})
    assert broker.services.replication_quotas.leader.is_throttled(TP), "from the beginning"
    await broker.services.configs.alter(TOPIC, {"follower.replication.throttled.replicas": "0:2,0:1"})
    assert not broker.services.replication_quotas.leader.is_throttled(TP)
    assert broker.services.replication_quotas.follower.is_throttled(TP)
    await broker.stop()
    again = await start()
    assert again.services.replication_quotas.follower.is_throttled(TP)
    await topics_of(again).delete_topic("t")
    assert not again.services.replication_quotas.follower.is_active, "nothing is left of a topic that is gone"


@pytest.mark.parametrize("name", ["leader.replication.throttled.replicas"])
@pytest.mark.parametrize("wrong", ["0", "0:", "a:1", "0:1,*", "0:1,,1:1", "-1:1", "0:1:2", "0:2147483648"])
async def test_a_list_of_throttled_replicas_that_is_none_changes_nothing(
    start: Start, name: str, wrong: str
) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t", configs={name: "0:1"})
    with pytest.raises(KafkaError) as refused:
        await broker.services.configs.alter_incrementally(
            TOPIC, [Alteration(name, AlterOperation.SET, wrong)]
        )
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message and name in refused.value.message and wrong in refused.value.message
    assert broker.services.replication_quotas.leader.is_throttled(TP)


async def test_connections_over_the_new_limit_are_refused(start: Start) -> None:
    broker = await start()

    async def is_admitted() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writers.append(writer)
        writer.write(bytes.fromhex("0000000e 0012 0000 00000001 0004 74657374"))  # ApiVersions v0
        try:
            async with asyncio.timeout(60):
                return bool(await reader.read(4))
        except ConnectionError:
            return False

    writers: list[asyncio.StreamWriter] = []
    assert await is_admitted()
    await set_dynamically(broker, max_connections=1)
    assert not await is_admitted()
    await set_dynamically(broker, max_connections=100, max_connections_per_ip=1)
    assert not await is_admitted()
    assert broker._socket_server is not None
    limits = broker._socket_server.limits
    with pytest.raises(
        KafkaError, match=r"max.connections.per.ip.overrides: the host 'no.invalid' is unknown"
    ):
        await set_dynamically(broker, max_connections_per_ip_overrides="no.invalid:2")
    assert limits.max_connections_per_ip_overrides == {}
    await set_dynamically(broker, max_connections_per_ip_overrides="localhost:2")
    assert await is_admitted()
    await set_dynamically(broker, max_connection_creation_rate=7)
    assert limits.max_connection_creation_rate == 7
    own = {"listener.name.plaintext.max.connections": "5"}
    await set_properties(broker, own, per_broker=True)
    assert limits.listeners["PLAINTEXT"].max_connections == 5
    for writer in writers:
        writer.close()


async def test_what_was_set_holds_after_a_restart(start: Start) -> None:
    broker = await start()
    await topics_of(broker).create_topic("t")
    await set_dynamically(
        broker,
        producer_id_expiration_ms=4321,
        max_connections=3,
        log_retention_ms=1234,
        log_segment_delete_delay_ms=99,
    )
    await broker.stop()
    again = await start()
    assert log_of(again).config.retention_ms == 1234
    assert log_of(again).producers.producer_id_expiration_ms == 4321
    assert again.services.log_manager.default_config.file_delete_delay_ms == 99
    limits = again._socket_server.limits  # type: ignore[union-attr]
    assert limits.max_connections == 3


SAFE = {
    "listeners": "SAFE://127.0.0.1:0",
    "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SAFE",
}
TOGETHER = {
    "listener.name.safe.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.safe.sasl.mechanism.inter.broker.protocol": "PLAIN",
}
"""A mechanism that brokers use must be enabled: neither of the two can be set without the other."""


@pytest.mark.parametrize(
    "unusable",
    [
        {},
        {"max.connections": "many"},
        {"max.connections": "many", "listener.name.other.ssl.keystore.type": "?", "node.id": "7"},
        {f"log.cleaner.{name}": "?" for name in ("threads", "backoff.ms", "io.buffer.size")},
    ],
    ids=["nothing", "a-value", "values-and-names", "several"],
)
def test_what_holds_only_together_is_used_after_a_restart(
    unusable: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    properties = BrokerProperties(static=SAFE)
    others = {"a.plugins.property": "1", "max.connections.per.ip": "7"}
    kept = usable_broker_properties(
        properties, dynamic_default={}, dynamic={**TOGETHER, **others, **unusable}
    )
    assert kept.dynamic == TOGETHER | others
    assert kept.effective().max_connections_per_ip == 7
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(unusable)
    for name in unusable:
        assert any(f"stored configuration {name} of this broker is ignored: " in line for line in lines)


def test_what_holds_only_with_what_all_brokers_have_is_used_after_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of_all = {"log.cleaner.min.compaction.lag.ms": "900", "max.connections": "many"}
    own = {"log.cleaner.max.compaction.lag.ms": "1000"}
    static = SAFE | {"log.cleaner.max.compaction.lag.ms": "100"}
    kept = usable_broker_properties(BrokerProperties(static=static), dynamic_default=of_all, dynamic=own)
    assert (kept.dynamic_default, kept.dynamic) == ({"log.cleaner.min.compaction.lag.ms": "900"}, own)
    assert "stored configuration max.connections of all brokers is ignored: " in caplog.text


def test_of_two_that_contradict_each_other_one_is_used(caplog: pytest.LogCaptureFixture) -> None:
    own = {"log.cleaner.max.compaction.lag.ms": "100", "log.cleaner.min.compaction.lag.ms": "900"}
    kept = usable_broker_properties(BrokerProperties(static=SAFE), dynamic_default={}, dynamic=own | TOGETHER)
    assert kept.dynamic == {"log.cleaner.max.compaction.lag.ms": "100"} | TOGETHER
    assert "stored configuration log.cleaner.min.compaction.lag.ms of this broker is ignored: " in caplog.text


@pytest.mark.parametrize(("level", "flags"), [("9", 2), ("1", 4), ("-1", 0)])
@pytest.mark.parametrize("is_default", [False, True])
async def test_what_the_broker_compresses_has_the_level_that_is_set(
    start: Start, tmp_path: Path, level: str, flags: int, is_default: bool
) -> None:
    """gzip's header says what it was made with (RFC 1952, XFL)."""
    broker = await start()
    await topics_of(broker).create_topic("t", configs={"compression.type": "gzip"})
    if is_default:
        await set_properties(broker, {"compression.gzip.level": level})
    else:
        topic = ConfigResource(ConfigResourceType.TOPIC, "t")
        await broker.services.configs.alter_incrementally(
            topic, [Alteration("compression.gzip.level", AlterOperation.SET, level)]
        )
    append(broker)
    (path,) = (tmp_path / "data" / "t-0").glob("*.log")
    assert path.read_bytes()[HEADER_SIZE:][8] == flags
