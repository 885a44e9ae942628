"""Each kind of configuration, from the request that changes it at one broker to what another one then does.

The other broker learns of it by a notification in the store. Each story is told again without it, when
nothing may happen there.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from minikafka.config.resource import ConfigResourceType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.config_service import ConfigService
from minikafka.testing.simulation.client import SimulatedClient, make_batch
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.simulation import Simulation
from minikafka.types import TopicPartition

CHANGED_AT, SEEN_AT = 1, 2
CONFIG = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}
TOPIC, GROUP, CLIENT_ID = "t", "g", "producer-7"
ANONYMOUS = "ANONYMOUS"
"""The user of every client, as none authenticates."""
SET = 0
HEARD_WITHIN_S = 5.0


class World:
    """Two brokers and a topic that the second one leads."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.client = SimulatedClient([("broker-1", 9092), ("broker-2", 9092)], client_id=CLIENT_ID)

    async def start(self) -> None:
        for node_id in (CHANGED_AT, SEEN_AT):
            await self.simulation.start_broker(node_id, CONFIG)
        await self.client.create_topic(TOPIC, assignment=[[SEEN_AT]])

    async def ask(self, at: int, key: ApiKey, body: dict[str, Any]) -> Any:
        return await self.client.request(self.simulation.brokers[at].address, key, body)

    async def alter(
        self, kind: ConfigResourceType, name: str, key: str, value: str, *, at: int = CHANGED_AT
    ) -> None:
        change = {"name": key, "config_operation": SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        body = {"resources": [resource], "validate_only": False}
        answer = await self.ask(at, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer

    async def set_quota(self, **entity: str) -> None:
        """A byte a second for producers; the names of the types have ``_`` for ``-``."""
        parts = [
            {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()
        ]
        entry = {
            "entity": parts,
            "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
        }
        answer = await self.ask(
            CHANGED_AT, ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False}
        )
        assert answer.entries[0].error_code == ErrorCode.NONE, answer

    async def is_throttled(self) -> bool:
        partition = {"index": 0, "records": make_batch([bytes(100)])}
        topics = [{"name": TOPIC, "partition_data": [partition]}]
        body = {"transactional_id": None, "acks": 1, "timeout": 1_000, "topic_data": topics}
        answer = await self.client.request(
            self.simulation.brokers[SEEN_AT].address, ApiKey.PRODUCE, body, version=9
        )
        return bool(answer.throttle_time)

    def retention_ms(self) -> int:
        replicas = self.simulation.brokers[SEEN_AT].server.services.replica_manager
        return replicas.partition(TopicPartition(TOPIC, 0)).log.config.retention_ms


async def topic(world: World) -> None:
    await world.alter(ConfigResourceType.TOPIC, TOPIC, "retention.ms", "77")
    await until(lambda: world.retention_ms() == 77, "the log has it", within_ms=5_000)


async def all_brokers(world: World) -> None:
    await world.alter(ConfigResourceType.BROKER, "", "log.retention.ms", "78")
    await until(lambda: world.retention_ms() == 78, "the log has it", within_ms=5_000)


async def group(world: World) -> None:
    found: Any = None
    while found is None or found.error_code:
        body = {"key_type": 0, "coordinator_keys": [GROUP]}
        (found,) = (await world.ask(SEEN_AT, ApiKey.FIND_COORDINATOR, body)).coordinators
    coordinator = found.node_id
    member = {
        "group_id": GROUP,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }

    async def heartbeat(epoch: int) -> Any:
        return await world.ask(coordinator, ApiKey.CONSUMER_GROUP_HEARTBEAT, member | {"member_epoch": epoch})

    joined = await heartbeat(0)
    while joined.error_code:
        joined = await heartbeat(0)
    other = CHANGED_AT if coordinator == SEEN_AT else SEEN_AT
    await world.alter(ConfigResourceType.GROUP, GROUP, "consumer.heartbeat.interval.ms", "7000", at=other)
    await eventually(world, lambda: has_interval(heartbeat, joined.member_epoch))


async def has_interval(heartbeat: Callable[[int], Awaitable[Any]], epoch: int) -> bool:
    answer = await heartbeat(epoch)
    assert answer.error_code == ErrorCode.NONE, answer
    return bool(answer.heartbeat_interval == 7_000)


async def client_metrics(world: World) -> None:
    await world.alter(ConfigResourceType.CLIENT_METRICS, "all", "metrics", "org.apache.kafka")

    async def is_subscribed() -> bool:
        newcomer = SimulatedClient([])  # who connects before there is a subscription does not see the API
        address = world.simulation.brokers[SEEN_AT].address
        try:
            body = {"client_instance_id": uuid.UUID(int=7)}
            answer = await newcomer.request(address, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, body)
        except KafkaError as error:
            assert error.code == ErrorCode.UNSUPPORTED_VERSION
            return False
        return "org.apache.kafka" in answer.requested_metrics

    await eventually(world, is_subscribed)


async def quota_of_a_user(world: World) -> None:
    await world.set_quota(user=ANONYMOUS)
    await eventually(world, world.is_throttled)


async def quota_of_a_client(world: World) -> None:
    await world.set_quota(client_id=CLIENT_ID)
    await eventually(world, world.is_throttled)


async def quota_of_a_users_client(world: World) -> None:
    await world.set_quota(user=ANONYMOUS, client_id=CLIENT_ID)
    await eventually(world, world.is_throttled)


async def eventually(world: World, condition: Callable[[], Awaitable[bool]]) -> None:
    """Raises TimeoutError."""
    loop = world.simulation.loop
    end = loop.time() + HEARD_WITHIN_S
    while not await condition():
        if loop.time() > end:
            raise TimeoutError("the other broker has not heard of it")
        await asyncio.sleep(0.2)


Story = Callable[[World], Awaitable[None]]

STORIES: list[tuple[str, Story]] = [
    ("topics", topic),
    ("brokers", all_brokers),
    ("groups", group),
    ("client-metrics", client_metrics),
    ("users", quota_of_a_user),
    ("clients", quota_of_a_client),
    ("users", quota_of_a_users_client),
]


def tell(monkeypatch: pytest.MonkeyPatch, story: Story, *, is_lost: bool) -> list[str]:
    """Returns the kinds that the second broker has heard of."""
    heard: list[str] = []
    reload = ConfigService.reload

    async def noted(configs: ConfigService, entity_path: str) -> None:
        heard.append(entity_path.partition("/")[0])
        if not is_lost:
            await reload(configs, entity_path)

    monkeypatch.setattr(ConfigService, "reload", noted)

    async def scenario(simulation: Simulation) -> None:
        world = World(simulation)
        await world.start()
        await story(world)

    Simulation(6).run(scenario)
    return heard


@pytest.mark.parametrize(("kind", "story"), STORIES)
def test_what_is_changed_at_one_broker_has_its_effect_at_another(
    monkeypatch: pytest.MonkeyPatch, kind: str, story: Story
) -> None:
    assert kind in tell(monkeypatch, story, is_lost=False)


@pytest.mark.parametrize(("kind", "story"), STORIES)
def test_a_broker_that_does_not_hear_of_a_change_goes_on_as_before(
    monkeypatch: pytest.MonkeyPatch, kind: str, story: Story
) -> None:
    with pytest.raises(TimeoutError):
        tell(monkeypatch, story, is_lost=True)
