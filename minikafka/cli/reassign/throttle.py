"""Throttles of reassignments: worked out, set, found and removed.

Kafka: ``ReassignPartitionsCommand.calculateProposedMoveMap``, ``modifyReassignmentThrottle``,
``clearAllThrottles`` (KIP-73, KIP-113). A throttle is a rate on brokers plus a list of replicas on topics: on
the leaders' side every replica that a partition has now (any of them may lead), on the followers' side those
that it gets.

A rate that stays on a broker when nothing moves any more is a trap: it does nothing until a replica falls
behind that is still in a list. So a throttle without a reassignment is called stale, and named.

A broker's own configurations are changed by asking that broker. One that is down keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minikafka.cli.shared.admin_client import AdminClient, broker_resource, topic_resource
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.types import ReplicaAssignment, TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

BROKER_CONFIGS = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
TOPIC_CONFIGS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class Throttle(NamedTuple):
    """One throttle property that is set."""

    resource: ConfigResource
    name: str
    value: str

    def __str__(self) -> str:
        kind = "topic" if self.resource.type == ConfigResourceType.TOPIC else "broker"
        whose = f"{kind} {self.resource.name}" if self.resource.name else "all brokers"
        return f"{whose}: {self.name}={self.value}"


class ReplicaMoves(NamedTuple):
    """Between which brokers one partition is copied."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def moves_of(
    planned: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    under_way: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[TopicPartition, ReplicaMoves]:
    """What moves once ``planned`` is under way too; ``current``: the replicas of what is planned now."""
    moves = {
        partition: ReplicaMoves(tuple(assignment.origin), tuple(assignment.adding))
        for partition, assignment in under_way.items()
    }
    for partition, replicas in planned.items():
        sources = moves[partition].sources if partition in moves else tuple(current[partition])
        targets = tuple(replica for replica in replicas if replica not in sources)
        moves[partition] = ReplicaMoves(sources, targets)
    return moves


def replica_lists(
    moves: Mapping[TopicPartition, ReplicaMoves],
) -> dict[ConfigResource, dict[str, str | None]]:
    """The topics' configurations: ``partition:broker`` lists for both sides."""
    topics: dict[str, dict[str, list[str]]] = {}
    for partition, (sources, targets) in sorted(moves.items()):
        lists = topics.setdefault(partition.topic, {name: [] for name in TOPIC_CONFIGS})
        lists[LEADER_REPLICAS] += [f"{partition.partition}:{broker}" for broker in sources]
        lists[FOLLOWER_REPLICAS] += [f"{partition.partition}:{broker}" for broker in targets]
    return {
        topic_resource(topic): {name: ",".join(replicas) for name, replicas in lists.items()}
        for topic, lists in topics.items()
    }


def brokers_of(moves: Mapping[TopicPartition, ReplicaMoves]) -> list[int]:
    """All brokers that send or receive, sorted."""
    return sorted({broker for move in moves.values() for broker in (*move.sources, *move.targets)})


async def set_throttle(
    admin: AdminClient, moves: Mapping[TopicPartition, ReplicaMoves], *, bytes_per_s: int
) -> list[int]:
    """Throttle what ``moves``. Returns brokers that are not there, and are not throttled when they come."""
    await admin.alter_configs(replica_lists(moves))
    rates: dict[str, str | None] = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(bytes_per_s))
    return await _set_on(admin, brokers_of(moves), rates)


async def set_log_dirs_throttle(admin: AdminClient, brokers: Iterable[int], *, bytes_per_s: int) -> list[int]:
    """Throttle moves between the directories of ``brokers``. Returns as ``set_throttle``."""
    return await _set_on(admin, sorted(set(brokers)), {LOG_DIRS_RATE: str(bytes_per_s)})


async def _set_on(admin: AdminClient, brokers: Sequence[int], rates: Mapping[str, str | None]) -> list[int]:
    live = (await admin.nodes()).brokers
    for node_id in brokers:
        if node_id in live:
            await admin.alter_configs({broker_resource(node_id): rates}, node_id=node_id)
    return [node_id for node_id in brokers if node_id not in live]


async def find_throttles(admin: AdminClient) -> list[Throttle]:
    """Every throttle that is set on a topic, or on a broker that is there."""
    topics = dict.fromkeys(partition.topic for partition in await admin.partitions())
    described = await admin.configs([topic_resource(topic) for topic in topics], TOPIC_CONFIGS)
    for node_id in (await admin.nodes()).brokers:
        described |= await admin.configs([broker_resource(node_id)], BROKER_CONFIGS, node_id=node_id)
    found = []
    for resource, values in described.items():
        for name, value in values.items():
            if value.is_set and value.value:
                for_all = value.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                found.append(Throttle(broker_resource(None) if for_all else resource, name, value.value))
    return list(dict.fromkeys(found))


async def remove_throttles(admin: AdminClient, throttles: Iterable[Throttle]) -> None:
    """Remove each of ``throttles``."""
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    for throttle in throttles:
        changes.setdefault(throttle.resource, {})[throttle.name] = None
    topics = {each: names for each, names in changes.items() if each.type == ConfigResourceType.TOPIC}
    await admin.alter_configs(topics)
    for resource, names in changes.items():
        if resource.type == ConfigResourceType.BROKER:
            node_id = int(resource.name) if resource.name else None
            await admin.alter_configs({resource: names}, node_id=node_id)
