"""What ``minikafka topics`` asks a broker: one method per request, errors as exceptions.

Kafka: the part of ``KafkaAdminClient`` that is about topics. Works with any broker, for the versions that
both sides speak.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from minikafka.cli.shared.admin_client import connect_to_any
from minikafka.cli.shared.commands import Address
from minikafka.config.definition import ConfigSource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey

_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1


class PartitionDescription(msgspec.Struct, frozen=True):
    """One partition; ``leader`` is -1 when there is none."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic, its partitions in order, and the properties that are set for it."""

    topic: str
    topic_id: str
    """As Kafka writes ids: URL-safe base64 without padding."""
    is_internal: bool
    partitions: list[PartitionDescription]
    configs: dict[str, str | None]


class TopicError(KafkaError):
    """What is wrong with one topic of a request about several."""

    def __init__(self, topic: str, code: ErrorCode, message: str | None) -> None:
        super().__init__(code, message)
        self.topic = topic


class TopicAdmin:
    """A connection to a broker that answers questions about topics. Methods raise KafkaError as the broker
    says it, and BrokerUnavailable when there is no answer.
    """

    def __init__(self, client: BrokerClient, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    @classmethod
    async def connect(cls, addresses: Sequence[Address], *, timeout_ms: int) -> Self:
        """Connect to one of ``addresses``, or raise BrokerUnavailable."""
        client = await connect_to_any(addresses, client_id="minikafka-topics", timeout_ms=timeout_ms)
        return cls(client, timeout_ms=timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    async def topic_names(self, *, internal: bool) -> list[str]:
        """All topics, sorted; Kafka's own only when ``internal``."""
        answer = await self._metadata(None)
        return sorted(topic.name for topic in answer.topics if internal or not topic.is_internal)

    async def create(
        self,
        topic: str,
        *,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Sequence[Sequence[int]] | None,
        configs: Mapping[str, str],
    ) -> None:
        """CreateTopics; None is the broker's default."""
        body = {
            "name": topic,
            "num_partitions": -1 if partitions is None else partitions,
            "replication_factor": -1 if replication_factor is None else replication_factor,
            "assignments": [
                {"partition_index": index, "broker_ids": list(replicas)}
                for index, replicas in enumerate(assignment or ())
            ],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        answer = await self._request(ApiKey.CREATE_TOPICS, {"topics": [body], "timeout": self._timeout_ms})
        _check(answer.topics)

    async def delete(self, topic: str) -> None:
        """DeleteTopics."""
        body = {
            "topics": [{"name": topic, "topic_id": None}],
            "topic_names": [topic],  # until v5
            "timeout": self._timeout_ms,
        }
        answer = await self._request(ApiKey.DELETE_TOPICS, body)
        _check(answer.responses)

    async def create_partitions(
        self, topic: str, count: int, *, assignment: Sequence[Sequence[int]] | None
    ) -> None:
        """CreatePartitions: ``count`` is how many there are to be in the end."""
        replicas = None if assignment is None else [{"broker_ids": list(brokers)} for brokers in assignment]
        body = {
            "topics": [{"name": topic, "count": count, "assignments": replicas}],
            "timeout": self._timeout_ms,
            "validate_only": False,
        }
        _check((await self._request(ApiKey.CREATE_PARTITIONS, body)).results)

    async def alter_configs(self, topic: str, *, set: Mapping[str, str], delete: Iterable[str]) -> None:
        """IncrementalAlterConfigs."""
        configs = [{"name": name, "config_operation": _SET, "value": value} for name, value in set.items()]
        configs += [{"name": name, "config_operation": _DELETE, "value": None} for name in delete]
        resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configs": configs}
        body = {"resources": [resource], "validate_only": False}
        _check((await self._request(ApiKey.INCREMENTAL_ALTER_CONFIGS, body)).responses)

    async def describe(self, topics: Sequence[str] | None) -> list[TopicDescription | TopicError]:
        """``topics`` (None: all) sorted, each described or with what is wrong with it."""
        answer = await self._metadata(topics)
        found = sorted(answer.topics, key=lambda topic: topic.name)
        good = [topic.name for topic in found if topic.error_code == ErrorCode.NONE]
        configs = await self._topic_configs(good)
        return [
            _described(topic, configs.get(topic.name, {}))
            if topic.error_code == ErrorCode.NONE
            else TopicError(topic.name, ErrorCode(topic.error_code), None)
            for topic in found
        ]

    async def _topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """The properties that are set for each topic itself."""
        if not topics:
            return {}
        resources = [
            {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": None}
            for topic in topics
        ]
        answer = await self._request(ApiKey.DESCRIBE_CONFIGS, {"resources": resources})
        return {
            result.resource_name: {
                config.name: config.value
                for config in result.configs
                if config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            }
            for result in answer.results
            if result.error_code == ErrorCode.NONE
        }

    async def _metadata(self, topics: Sequence[str] | None) -> Any:
        body = {
            "topics": None if topics is None else [{"name": topic, "topic_id": None} for topic in topics],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return await self._request(ApiKey.METADATA, body)

    async def _request(self, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        return await self._client.request(api_key, body, deadline_ms=self._timeout_ms)


def _described(topic: Any, configs: dict[str, str | None]) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition.partition_index,
            partition.leader_id,
            list(partition.replica_nodes),
            list(partition.isr_nodes),
        )
        for partition in sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    ]
    topic_id = urlsafe_b64encode(topic.topic_id.bytes if topic.topic_id else bytes(16)).decode().rstrip("=")
    return TopicDescription(topic.name, topic_id, bool(topic.is_internal), partitions, configs)


def _check(results: Sequence[Any]) -> None:
    for result in results:
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(result.error_code), getattr(result, "error_message", None))
