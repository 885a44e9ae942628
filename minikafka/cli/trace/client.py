"""What ``minikafka trace`` asks of brokers: sessions and their traces, and one record written and read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

import msgspec

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import CommandError, error_of
from minikafka.cli.trace.timeline import Answer
from minikafka.config.resource import DIAGNOSTICS, ConfigResource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import AuthenticationFailed, BrokerClient, BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.types import TopicPartition

RESOURCE: Final = ConfigResource(DIAGNOSTICS, "traces")

LAST_WITH_TOPIC_NAMES: Final = 12
"""Of Produce and of Fetch."""
FETCH_WAIT_MS: Final = 500
LATEST: Final = -1


class TraceClient(AdminClient):
    """Methods raise as those of ``AdminClient`` do."""

    async def start(self, session: str, options: Mapping[str, Any]) -> tuple[list[int], list[str]]:
        """Start a session on all live brokers. Returns those on which it runs, and why not on the others.

        Raises:
            KafkaError: a broker refuses. CommandError: none is one of minikafka.
        """
        value = msgspec.json.encode(options).decode()
        started: list[int] = []
        problems: list[str] = []
        for node_id in (await self.nodes()).brokers:
            try:
                await self.alter_configs({RESOURCE: {session: value}}, node_id=node_id)
            except AuthenticationFailed:
                raise
            except BrokerUnavailable as error:
                problems.append(f"broker {node_id} does not take part: {error}")
            except KafkaError as error:
                if not _is_unknown_type(error):
                    raise
                problems.append(f"broker {node_id} does not take part: it is no broker of minikafka")
            else:
                started.append(node_id)
        if not started:
            raise CommandError(
                "no broker can follow records: they are not minikafka's, or of an older version"
            )
        return started, problems

    async def end(self, session: str, brokers: Iterable[int]) -> None:
        """End it; where that fails, it ends by itself."""
        for node_id in brokers:
            try:
                await self.alter_configs({RESOURCE: {session: None}}, node_id=node_id)
            except (KafkaError, BrokerUnavailable):
                pass

    async def traces(self, session: str, brokers: Iterable[int]) -> list[Answer]:
        """What each broker has noted; nothing from one that does not answer."""
        answers = []
        for node_id in brokers:
            first: int | None = 0
            while first is not None:
                asked_ns = time.time_ns()
                arguments = {"session": session, "from": first}
                try:
                    document = await self.diagnostics("traces", node_id=node_id, **arguments)
                except (KafkaError, BrokerUnavailable):
                    break
                answers.append(Answer(document, asked_ns, time.time_ns()))
                first = document["next"]
        return answers

    async def connection_to(self, node_id: int) -> BrokerClient:
        """Of its own; the caller closes it."""
        broker = (await self.nodes(refresh=False)).brokers.get(node_id)
        if broker is None:
            raise BrokerUnavailable(f"broker {node_id} is not registered")
        return await self._connect((broker.host, broker.port))

    async def log_end(self, at: TopicPartition, node_id: int) -> int:
        """Where consumers of a partition would begin now. Raises KafkaError."""
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": self.timeout_ms,
            "topics": [
                {
                    "name": at.topic,
                    "partitions": [
                        {
                            "partition_index": at.partition,
                            "current_leader_epoch": -1,
                            "timestamp": LATEST,
                        }
                    ],
                }
            ],
        }
        (topic,) = (await self.ask_broker(node_id, ApiKey.LIST_OFFSETS, body)).topics
        (partition,) = topic.partitions
        error = error_of(partition.error_code)
        if error is not None:
            raise error
        return int(partition.offset)


def _is_unknown_type(error: KafkaError) -> bool:
    """How a broker refuses a resource type that it does not know, in Kafka's words or in ours."""
    return error.code is ErrorCode.INVALID_REQUEST and "resource type" in (error.message or "").lower()


class ProduceOfOne(NamedTuple):
    """A Produce request with one record, made before its time is taken: the first one loads what it needs."""

    body: Mapping[str, Any]
    version: int
    acks: int
    timeout_ms: int

    @classmethod
    def of(
        cls, connection: BrokerClient, at: TopicPartition, record: Record, *, acks: int, timeout_ms: int
    ) -> Self:
        partition = {"index": at.partition, "records": build_batch([record])}
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout": timeout_ms,
            "topic_data": [{"name": at.topic, "partition_data": [partition]}],
        }
        key, version = ApiKey.PRODUCE, min(LAST_WITH_TOPIC_NAMES, connection.version_of(ApiKey.PRODUCE))
        encode_request(api_key=key, api_version=version, correlation_id=0, client_id=None, body=body)
        return cls(body, version, acks, timeout_ms)

    async def send(self, connection: BrokerClient) -> Any:
        """Returns what the partition is answered; None with acks=0."""
        key, version, deadline_ms = ApiKey.PRODUCE, self.version, self.timeout_ms + FETCH_WAIT_MS
        if self.acks == 0:
            await connection.send(key, self.body, deadline_ms=deadline_ms, version=version)
            return None
        answer = await connection.request(key, self.body, deadline_ms=deadline_ms, version=version)
        return answer.responses[0].partition_responses[0]


async def read_until(
    connection: BrokerClient, at: TopicPartition, offset: int, *, wanted: Record, timeout_ms: int
) -> None:
    """Fetch from ``offset`` on until there is a record with the headers of ``wanted``.

    Raises:
        KafkaError: what the broker says. TimeoutError.
    """
    version = min(LAST_WITH_TOPIC_NAMES, connection.version_of(ApiKey.FETCH))
    async with asyncio.timeout(timeout_ms / 1000):
        while True:
            answer = await connection.request(
                ApiKey.FETCH, _fetch(at, offset), deadline_ms=timeout_ms, version=version
            )
            (topic,) = answer.responses
            (partition,) = topic.partitions
            error = error_of(partition.error_code)
            if error is not None:
                raise error
            records = memoryview(partition.records or b"")
            for position, header in iterate_headers(records):
                offset = header.next_offset
                batch = records[position : position + header.size]
                if any(each.headers == wanted.headers for each in iterate_records(batch)):
                    return


def _fetch(at: TopicPartition, offset: int) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": FETCH_WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": at.topic,
                "partitions": [
                    {
                        "partition": at.partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
