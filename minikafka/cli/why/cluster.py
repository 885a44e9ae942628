"""How ``minikafka why`` asks a cluster: Kafka's own APIs first, diagnostics for what only the broker knows.

A broker that is not minikafka has no diagnostics, and one that is away or does not let us ask has none for
us: then a question goes without, and what is not known therefore is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from minikafka.cli.cluster.describe import ReplicaState, why_out_of_sync
from minikafka.cli.groups import GroupAdmin, ListedOffset
from minikafka.cli.shared.admin_client import LogDir, PartitionNow, topic_resource
from minikafka.cli.shared.commands import explain, typed_connection
from minikafka.cli.transactions import TransactionAdmin
from minikafka.clock import Clock
from minikafka.config.resource import ConfigResource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import CorruptBatch, iterate_headers
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import NO_LEADER, TopicPartition

LATEST, EARLIEST = -1, -2
"""In place of a timestamp (ListOffsets)."""
DEBUGGING_REPLICA_ID = -2
"""Who sees the log end of any replica (ListOffsets)."""


class Cluster:
    """The cluster that is asked, and what it would not or could not tell."""

    def __init__(self, arguments: argparse.Namespace, clock: Clock) -> None:
        self.clock = clock
        self.admin = GroupAdmin.of(arguments, "minikafka-why")
        self.transactions = TransactionAdmin.of(arguments, "minikafka-why")
        self.connection = typed_connection(arguments)
        """Options for the commands that are proposed."""
        self.unknown: list[str] = []
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self.admin)
        await self._open.enter_async_context(self.transactions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def diagnostics(self, kind: str, node_id: int, about: str, /, **arguments: object) -> Any:
        """A document of one broker; None: there is none, and ``about`` is what is not known therefore (empty:
        that need not be said)."""
        try:
            return await self.admin.diagnostics(kind, node_id=node_id, **arguments)
        except BrokerUnavailable as error:
            why = f"broker {node_id} does not answer: {error}"
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_REQUEST:
                why = f"broker {node_id} has no such diagnostics; it is Apache Kafka, or an older minikafka"
            else:
                why = f"broker {node_id} says {explain(error)}"
        if about:
            self.unknown.append(f"{about}: {why}")
        return None

    async def partition(self, at: TopicPartition) -> PartitionNow:
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
        found = await self.admin.partitions([at.topic])
        if at not in found:
            there = f"{at.topic} has partitions 0 to {len(found) - 1}" if found else "there is no such topic"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{at}: {there}")
        return found[at]

    async def values(
        self, resource: ConfigResource, names: Iterable[str], *, node_id: int | None = None
    ) -> dict[str, str]:
        """Of configurations; those that we may not know or that there are not are left out."""
        found = await self.admin.configs([resource], list(names), node_id=node_id)
        values = found.get(resource, {})
        return {name: each.value for name, each in values.items() if each.value is not None}

    async def topic_values(self, topic: str, names: Iterable[str]) -> dict[str, str]:
        return await self.values(topic_resource(topic), names)

    async def quorum(self, at: TopicPartition, leader: int, about: str) -> Any:
        """What the leader knows of its followers; None: it is not minikafka, or does not answer."""
        try:
            found = (await self.admin.quorum([at], node_id=leader)).get(at)
        except (BrokerUnavailable, KafkaError):
            found = None
        if found is None:
            self.unknown.append(f"{about}: broker {leader} does not say; Apache Kafka has no request for it")
        return found

    async def log_dirs(self, brokers: Iterable[int], at: TopicPartition) -> dict[int, list[LogDir] | None]:
        """Those of each broker, with the partition's replicas in them; None: it does not answer."""
        found: dict[int, list[LogDir] | None] = {}
        for broker in brokers:
            try:
                found[broker] = await self.admin.log_dirs(broker, [at])
            except (BrokerUnavailable, KafkaError):
                found[broker] = None
        return found

    async def out_of_sync(
        self, at: TopicPartition, now: PartitionNow, log_dirs: Mapping[int, list[LogDir] | None]
    ) -> list[ReplicaState]:
        """Every replica that is not in the ISR, and why."""
        late = [broker for broker in now.replicas if broker not in now.isr]
        nodes = await self.admin.nodes()
        quorum = None
        if late and now.leader in nodes.brokers:
            quorum = await self.quorum(at, now.leader, "how far each replica is")
        return [
            why_out_of_sync(broker, at, now, nodes=nodes, dirs=log_dirs.get(broker), quorum=quorum)
            for broker in late
        ]

    async def end_offset(self, at: TopicPartition, *, is_read_committed: bool) -> int:
        """Raises KafkaError: it cannot be known."""
        (found,) = (await self.admin.list_offsets([at], LATEST, is_read_committed=is_read_committed)).values()
        return _offset(found)

    async def start_offset(self, at: TopicPartition) -> int:
        """Raises KafkaError: it cannot be known."""
        (found,) = (await self.admin.list_offsets([at], EARLIEST)).values()
        return _offset(found)

    async def record_age_ms(self, at: TopicPartition, offset: int) -> int | None:
        """How old the records of the batch are that has ``offset``, or that follows it; None: that cannot be
        known, or there is none."""
        leader, topic_id = await self._leader(at)
        wanted = {
            "partition": at.partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1,  # the first batch comes whole, however large it is (KIP-74)
        }
        body = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": at.topic, "topic_id": topic_id, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        try:
            answer = await self.admin.ask_broker(leader, ApiKey.FETCH, body)
            (topic,) = answer.responses
            (found,) = topic.partitions
            headers = iterate_headers(found.records or b"")
            newest_ms = next((header.max_timestamp for _, header in headers), -1)
        except (BrokerUnavailable, KafkaError, CorruptBatch, ValueError):
            return None
        return None if newest_ms < 0 else max(self.clock.now_ms() - newest_ms, 0)

    async def _leader(self, at: TopicPartition) -> tuple[int, UUID | None]:
        """The leader and the topic's id."""
        topic = await self._topic(at.topic)
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        return int(leaders.get(at.partition, NO_LEADER)), getattr(topic, "topic_id", None)

    async def topic_id(self, topic: str) -> UUID | None:
        """None: there is no such topic, or the brokers know no ids (KIP-516)."""
        found: UUID | None = getattr(await self._topic(topic), "topic_id", None)
        return found if found is not None and found.int else None

    async def _topic(self, name: str) -> Any:
        """As Metadata has it."""
        body = {
            "topics": [{"name": name, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        (topic,) = (await self.admin.ask_any(ApiKey.METADATA, body)).topics
        return topic

    async def log_end_offset(self, at: TopicPartition, leader: int) -> int:
        """Of the leader's log, what is not committed included: what a debugging tool sees.
        Raises KafkaError: it cannot be known. BrokerUnavailable: the leader does not answer."""
        wanted = {"partition_index": at.partition, "current_leader_epoch": -1, "timestamp": LATEST}
        body = {
            "replica_id": DEBUGGING_REPLICA_ID,
            "isolation_level": 0,
            "topics": [{"name": at.topic, "partitions": [wanted]}],
            "timeout": self.admin.timeout_ms,
        }
        answer = await self.admin.ask_broker(leader, ApiKey.LIST_OFFSETS, body)
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(found.error_code), str(at))
        return int(found.offset)


def _offset(found: ListedOffset | KafkaError) -> int:
    if isinstance(found, KafkaError):
        raise found
    return found.offset
