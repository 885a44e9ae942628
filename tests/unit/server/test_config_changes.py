"""What one broker changes in a configuration, the others run with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.config.broker import broker_config
from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError, CoordinationStore
from minikafka.server.cluster.coordination_store import NOTIFICATIONS_EXPIRATION_MS, NOTIFICATIONS_PAUSE_MS
from minikafka.server.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from minikafka.server.config_service import ConfigService
from minikafka.server.config_store import ConfigChangeListener
from minikafka.types import BrokerId, LeaderEpoch, ReplicaAssignment
from tests.unit.server.virtual_store import expire, open_store
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "a")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
ONE = BrokerId(1)


class Member:
    """The configurations of one broker, on its own client of the store."""

    def __init__(self, store: Any, node_id: int) -> None:
        self.store = store
        metadata = MetadataCache()
        partition = PartitionMetadata(
            partition=0, leader=ONE, leader_epoch=LeaderEpoch(0), replicas=(ONE,), isr=(ONE,)
        )
        metadata.put_topic(TopicMetadata(name="a", topic_id=UUID(int=1), partitions=(partition,)))
        self.configs = ConfigService(
            node_id=BrokerId(node_id),
            static_config=broker_config({"node.id": str(node_id), "log.dirs": "nowhere"}),
            store=store,
            metadata=metadata,
        )
        self.reloaded: list[str] = []
        self.listener = ConfigChangeListener(store, clock=LoopClock(), reload=self.reload)
        self.topic_configs: list[int] = []
        """``retention.ms`` of each configuration that the logs were told of."""
        self.configs.subscribe_topics(lambda topic, config: self.topic_configs.append(config.retention_ms))

    async def reload(self, entity_path: str) -> None:
        self.reloaded.append(entity_path)
        await self.configs.reload(entity_path)

    async def start(self) -> Member:
        await self.listener.begin()
        await self.configs.load()
        await self.configs.load_topics({"a": UUID(int=1)})
        self.task = asyncio.create_task(self.listener.run())
        return self

    async def stop(self) -> None:
        assert not self.task.done()
        self.task.cancel()
        await self.store.close()

    @property
    def retention_ms(self) -> int:
        return self.configs.topic_config("a").retention_ms


async def with_topic(store: CoordinationStore) -> None:
    for path in paths.PERSISTENT_PATHS:
        await store.ensure_path(path)
    topic = paths.TopicAssignment(UUID(int=1), {0: ReplicaAssignment((ONE,))})
    await store.create(paths.topic_path("a"), paths.encode_topic(topic))


@asynccontextmanager
async def members(directory: Path, **options: Any) -> AsyncIterator[tuple[Member, Member]]:
    stores = [await open_store(directory, **options) for _ in range(2)]
    await with_topic(stores[0])
    one, two = [await Member(store, number).start() for number, store in enumerate(stores, 1)]
    yield one, two
    for member in (one, two):
        await member.stop()


@in_virtual_time
async def test_a_topics_change_reaches_the_logs_of_the_other_broker(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        await one.configs.alter(TOPIC, {"retention.ms": "1000"})
        assert one.retention_ms == 1000
        await passing(1000)
        assert (two.retention_ms, two.topic_configs) == (1000, [1000])
        await two.configs.alter(TOPIC, {})
        await passing(1000)
        assert one.retention_ms == 604_800_000


@in_virtual_time
async def test_a_change_for_all_brokers_reaches_all(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        await one.configs.alter(ALL_BROKERS, {"log.retention.ms": "77"})
        await passing(1000)
        assert two.configs.broker_config.log_retention_ms == 77
        assert two.retention_ms == 77


@in_virtual_time
async def test_what_was_changed_before_a_start_is_loaded_and_not_applied_again(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, _):
        await one.configs.alter(TOPIC, {"retention.ms": "1000"})
        late = await Member(await open_store(tmp_path), 3).start()
        assert late.retention_ms == 1000
        await one.configs.alter(ALL_BROKERS, {"log.retention.ms": "77"})
        await passing(1000)
        assert late.reloaded == ["brokers/<default>"]
        await late.stop()


@in_virtual_time
async def test_a_damaged_notification_is_named_and_the_next_one_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with members(tmp_path) as (one, two):
        await one.store.create(paths.CONFIG_CHANGE_PREFIX, b"no json", sequential=True)
        await one.configs.alter(TOPIC, {"retention.ms": "1000"})
        await passing(1000)
        assert two.retention_ms == 1000
        assert f"{paths.CONFIG_CHANGES}/config_change_" in caplog.text
        assert two.reloaded == ["topics/a"]


@in_virtual_time
async def test_old_notifications_are_removed_by_any_broker_that_comes_by(tmp_path: Path) -> None:
    slow = {"poll_interval_ms": 5_000, "session_timeout_ms": 2 * NOTIFICATIONS_EXPIRATION_MS}
    async with members(tmp_path, **slow) as (one, _):
        await one.configs.alter(TOPIC, {"retention.ms": "1000"})
        await passing(NOTIFICATIONS_EXPIRATION_MS - 10_000)
        await one.configs.alter(TOPIC, {"retention.ms": "2000"})
        await passing(9_000)
        assert len(await one.store.children(paths.CONFIG_CHANGES)) == 2
        await passing(10_000)
        await one.configs.alter(TOPIC, {"retention.ms": "3000"})
        await passing(10_000)
        assert len(await one.store.children(paths.CONFIG_CHANGES)) == 2  # the first has gone


@in_virtual_time
async def test_what_comes_while_the_store_is_away_is_applied_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with members(tmp_path) as (one, two):

        async def away(*args: Any, **kwargs: Any) -> Any:
            raise ConnectionLossError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(two.store, "get", away)
            await one.configs.alter(TOPIC, {"retention.ms": "1000"})
            await one.configs.alter(TOPIC, {"retention.ms": "2000"})
            await passing(5 * NOTIFICATIONS_PAUSE_MS)
            assert two.topic_configs == []
        await passing(2 * NOTIFICATIONS_PAUSE_MS)
        assert two.retention_ms == 2000
        assert two.reloaded == ["topics/a", "topics/a"]


@in_virtual_time
async def test_changes_between_two_sessions_are_not_missed(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        await expire(two.store)
        await one.configs.alter(TOPIC, {"retention.ms": "1000"})
        await passing(10_000)
        assert two.topic_configs == []
        await two.store.start_session()
        await two.listener.session_began()
        await passing(2 * NOTIFICATIONS_PAUSE_MS)
        assert two.retention_ms == 1000
        await one.configs.alter(TOPIC, {"retention.ms": "2000"})  # and it watches again
        await passing(1000)
        assert two.retention_ms == 2000


@in_virtual_time
async def test_a_notification_of_kafkas_older_format_counts(tmp_path: Path) -> None:
    async with members(tmp_path) as (one, two):
        config = paths.encode_config({"retention.ms": "5"})
        await one.store.create(paths.topic_config_path("a"), config)
        data = b'{"version":1,"entity_type":"topics","entity_name":"a"}'
        assert paths.decode_config_change(data) == "topics/a"
        await one.store.create(paths.CONFIG_CHANGE_PREFIX, data, sequential=True)
        await passing(1000)
        assert (one.retention_ms, two.retention_ms) == (5, 5)
