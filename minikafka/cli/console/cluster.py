"""The cluster, as every page of the console begins with it, and ``api/cluster`` itself.

``ClusterView`` asks for Metadata and for the numbers beside it. A snapshot is loaded once for all who look at
the same time. Which topics are under min.insync.replicas is asked only of those that lack a replica: no other
can be. ``api/cluster`` are brokers, what they have served, and what is wrong with how many partitions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from minikafka.cli.console.exchange import Shared, why_not
from minikafka.cli.groups import EARLIEST, LATEST, GroupAdmin, ListedOffset
from minikafka.cli.shared.admin_client import AdminClient, Connect, raise_error, topic_resource
from minikafka.cli.shared.commands import Address
from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.network.client_security import ClientSecurity
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import NO_LEADER, TopicPartition

TIMEOUT_MS: Final = 5_000
"""For each answer of a broker, unless told otherwise: who looks at a page waits no longer."""
KEEP_S: Final = 1.0
THIN_TOPICS_MAX: Final = 500
"""Topics that lack replicas and whose min.insync.replicas is asked for; of more it is taken to be 1."""
OFFSETS_MAX: Final = 5_000
"""Partitions whose ends are asked for in one question."""

CLIENT_ID: Final = "minikafka-console"
MIN_ISR: Final = "min.insync.replicas"

Admin = TypeVar("Admin", bound=AdminClient)

LOG_DIRS_PARTITIONS_MAX: Final = 5_000
"""Of a cluster whose brokers have no ``counters``: in a larger one the sizes of logs are not asked for."""

_COUNTED: Final = (
    *("version", "started_at_ms", "page", "log_bytes", "in_bytes", "out_bytes", "requests", "connections"),
)


class PartitionState(NamedTuple):
    """A partition; ``leader`` is -1 when there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicState(NamedTuple):
    """A topic, its partitions in order, and what is wrong with how many of them."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: list[PartitionState]
    offline: int
    under_replicated: int
    under_min_isr: int

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)


class KnownBroker(NamedTuple):
    """A broker that is registered, or was (``is_alive`` False), or that only replicas speak of (no host)."""

    node_id: int
    host: str | None
    port: int | None
    rack: str | None
    is_alive: bool


class Snapshot(NamedTuple):
    """How the cluster was at one time."""

    at_ms: int
    cluster_id: str
    controller_id: int
    brokers: dict[int, KnownBroker]
    topics: dict[str, TopicState]
    """By name, sorted."""

    def topic(self, name: str) -> TopicState:
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
        found = self.topics.get(name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        return found

    def alive(self) -> list[int]:
        return [each.node_id for each in self.brokers.values() if each.is_alive]


class Connection(NamedTuple):
    """How the cluster is reached: as ``security`` says, or by ``connect``."""

    addresses: Sequence[Address]
    security: ClientSecurity | None = None
    connect: Connect | None = None
    timeout_ms: int = TIMEOUT_MS

    def admin(self, kind: type[Admin]) -> Admin:
        return kind(
            self.addresses,
            client_id=CLIENT_ID,
            timeout_ms=self.timeout_ms,
            security=self.security,
            connect=self.connect,
        )


class Ends(NamedTuple):
    """Of a partition's log; None: that cannot be known."""

    log_start_offset: int | None
    high_watermark: int | None

    @property
    def records(self) -> int | None:
        """At most so many: compaction and transactions leave gaps."""
        if self.log_start_offset is None or self.high_watermark is None:
            return None
        return max(0, self.high_watermark - self.log_start_offset)


class ClusterView:
    """Asks the cluster for all pages. ``close`` it."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self.connection = connection
        self.clock = clock
        self._admins: dict[type[AdminClient], AdminClient] = {}
        self.admin = self.admin_of(GroupAdmin)
        self._snapshot = Shared(self._load, keep_s=KEEP_S)

    def __repr__(self) -> str:
        return f"ClusterView({self.admin})"

    async def snapshot(self) -> Snapshot:
        """At most ``KEEP_S`` old. Raises KafkaError, BrokerUnavailable."""
        return await self._snapshot.get()

    def admin_of(self, kind: type[Admin]) -> Admin:
        """The client that asks questions of this kind; it has connections of its own."""
        found = self._admins.get(kind)
        if found is None:
            found = self._admins[kind] = self.connection.admin(kind)
        assert isinstance(found, kind)
        return found

    async def close(self) -> None:
        for admin in self._admins.values():
            await admin.close()

    def changed(self) -> None:
        """By us: what is kept is old."""
        self._snapshot.forget()

    async def _load(self) -> Snapshot:
        described, metadata = await asyncio.gather(self._described(), self._metadata())
        brokers = _brokers(described, metadata)
        alive = frozenset(each.node_id for each in brokers.values() if each.is_alive)
        min_isr = await self._min_isr(metadata)
        topics = [
            _topic(each, alive, min_isr.get(each.name, 1))
            for each in metadata.topics
            if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        return Snapshot(
            self.clock.now_ms(),
            described.cluster_id,
            described.controller_id,
            brokers,
            {each.name: each for each in sorted(topics, key=lambda each: each.name)},
        )

    async def _described(self) -> Any:
        await self.admin.nodes()  # so that the others are asked, too, when the first one is away
        body = {
            "include_cluster_authorized_operations": False,
            "endpoint_type": 1,
            "include_fenced_brokers": True,
        }
        answer = await self.admin.ask_any(ApiKey.DESCRIBE_CLUSTER, body)
        raise_error(answer)
        return answer

    async def _metadata(self) -> Any:
        body = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        return await self.admin.ask_any(ApiKey.METADATA, body)

    async def _min_isr(self, metadata: Any) -> dict[str, int]:
        thin = [
            topic.name
            for topic in metadata.topics
            if any(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)
        ]
        if not thin:
            return {}
        resources = [topic_resource(name) for name in thin[:THIN_TOPICS_MAX]]
        try:
            found = await self.admin.configs(resources, [MIN_ISR])
        except (KafkaError, BrokerUnavailable):
            return {}
        return {
            resource.name: int(values[MIN_ISR].value or 1)
            for resource, values in found.items()
            if MIN_ISR in values
        }

    async def ends(
        self, partitions: Sequence[TopicPartition], *, is_read_committed: bool = False
    ) -> dict[TopicPartition, Ends]:
        """Where the logs of partitions begin and end; of those behind ``OFFSETS_MAX`` it is not known."""
        asked = partitions[:OFFSETS_MAX]
        starts, ends = await asyncio.gather(
            self.admin.list_offsets(asked, EARLIEST),
            self.admin.list_offsets(asked, LATEST, is_read_committed=is_read_committed),
        )
        found = {each: Ends(_offset(starts[each]), _offset(ends[each])) for each in asked}
        return found | dict.fromkeys(partitions[OFFSETS_MAX:], Ends(None, None))

    async def leader_bytes(self, topics: Iterable[TopicState]) -> dict[TopicPartition, int]:
        """The sizes of leaders' logs; those of brokers that do not say are left out."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic in topics:
            for each in topic.partitions:
                if each.leader != NO_LEADER:
                    by_leader.setdefault(each.leader, []).append(TopicPartition(topic.name, each.partition))
        bounded = {leader: partitions[:OFFSETS_MAX] for leader, partitions in by_leader.items()}
        answers = await self.of_brokers(
            bounded, lambda node_id: self.admin.log_dirs(node_id, bounded[node_id])
        )
        sizes: dict[TopicPartition, int] = {}
        for dirs in answers.values():
            for each in () if isinstance(dirs, str) else dirs:
                sizes |= {
                    at: replica.size_bytes for at, replica in each.replicas.items() if not replica.is_future
                }
        return sizes

    async def of_brokers(self, brokers: Iterable[int], ask: Callable[[int], Any]) -> dict[int, Any]:
        """What each broker answers, all asked at once; a text is why one does not."""

        async def one(node_id: int) -> Any:
            try:
                return await ask(node_id)
            except (KafkaError, BrokerUnavailable) as error:
                return why_not(error)

        asked = list(brokers)
        return dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))


def _offset(listed: ListedOffset | KafkaError) -> int | None:
    return None if isinstance(listed, KafkaError) or listed.offset < 0 else listed.offset


def _brokers(described: Any, metadata: Any) -> dict[int, KnownBroker]:
    found = {
        int(each.broker_id): KnownBroker(
            each.broker_id, each.host, each.port, each.rack, not getattr(each, "is_fenced", False)
        )
        for each in described.brokers
    }
    for topic in metadata.topics:
        for partition in topic.partitions:
            for node_id in partition.replica_nodes:
                if node_id not in found:
                    found[int(node_id)] = KnownBroker(node_id, None, None, None, False)
    return dict(sorted(found.items()))


def _topic(topic: Any, alive: frozenset[int], min_isr: int) -> TopicState:
    partitions = [
        PartitionState(
            each.partition_index,
            each.leader_id,
            getattr(each, "leader_epoch", -1),
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    ]
    offline = [each for each in partitions if each.leader not in alive]
    return TopicState(
        topic.name,
        getattr(topic, "topic_id", None),
        bool(topic.is_internal),
        partitions,
        len(offline),
        sum(len(each.isr) < len(each.replicas) for each in partitions),
        sum(each.leader in alive and len(each.isr) < min(min_isr, len(each.replicas)) for each in partitions),
    )


def by_size(sizes: Mapping[TopicPartition, int], topic: TopicState) -> int | None:
    """Of a topic's leaders' logs; None: one does not say."""
    found = [sizes.get(TopicPartition(topic.name, each.partition)) for each in topic.partitions]
    return None if None in found else sum(each for each in found if each is not None)


# api/cluster


async def cluster(view: ClusterView, *, asked_of: int | None) -> dict[str, Any]:
    """Raises KafkaError, BrokerUnavailable: no broker answers."""
    snapshot = await view.snapshot()
    counters = await view.of_brokers(snapshot.alive(), lambda node_id: _counters(view, snapshot, node_id))
    partitions = [each for topic in snapshot.topics.values() for each in topic.partitions]
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(node_id for each in partitions for node_id in each.replicas)
    versions = [each["version"] for each in counters.values() if isinstance(each, dict) and each["version"]]
    return {
        "at_ms": view.clock.now_ms(),
        "cluster_id": snapshot.cluster_id,
        "controller_id": snapshot.controller_id,
        "software": f"minikafka {versions[0]}" if versions else None,
        "asked_of": asked_of,
        "brokers": [
            {
                **_broker(each, is_controller=each.node_id == snapshot.controller_id),
                "leaders": leaders[each.node_id],
                "replicas": replicas[each.node_id],
                **_counted(each, counters.get(each.node_id)),
            }
            for each in snapshot.brokers.values()
        ],
        "topics": len(snapshot.topics),
        "partitions": len(partitions),
        "offline_partitions": sum(each.offline for each in snapshot.topics.values()),
        "under_replicated_partitions": sum(each.under_replicated for each in snapshot.topics.values()),
        "under_min_isr_partitions": sum(each.under_min_isr for each in snapshot.topics.values()),
        "preferred_leader_partitions": sum(each.leader == each.replicas[0] for each in partitions),
    }


def _broker(broker: KnownBroker, *, is_controller: bool) -> dict[str, Any]:
    return {
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "is_controller": is_controller,
    }


def _counted(broker: KnownBroker, found: dict[str, Any] | str | None) -> dict[str, Any]:
    why = found if isinstance(found, str) else None
    if not broker.is_alive:
        why = "it is not registered"
    values = found if isinstance(found, dict) else {}
    return {"is_alive": broker.is_alive, "why_not": why, **{name: values.get(name) for name in _COUNTED}}


async def _counters(view: ClusterView, snapshot: Snapshot, node_id: int) -> dict[str, Any]:
    """Raises BrokerUnavailable: it does not answer."""
    try:
        found = await view.admin.diagnostics("counters", node_id=node_id)
        return {name: found.get(name) for name in _COUNTED}
    except KafkaError:  # it is Apache Kafka, an older minikafka, or we may not ask
        return dict.fromkeys(_COUNTED) | {"log_bytes": await _log_bytes(view, snapshot, node_id)}


async def _log_bytes(view: ClusterView, snapshot: Snapshot, node_id: int) -> int | None:
    if sum(len(each.partitions) for each in snapshot.topics.values()) > LOG_DIRS_PARTITIONS_MAX:
        return None
    try:
        dirs = await view.admin.log_dirs(node_id, None)
    except KafkaError:
        return None
    return sum(replica.size_bytes for each in dirs for replica in each.replicas.values())
