"""What operators' commands ask a cluster: one method per request, answers as plain values by partition.

Kafka: the part of ``KafkaAdminClient`` about replicas: where they are, where they go, who leads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.cli.shared.commands import error_of
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import ElectionType, ReplicaAssignment, TopicPartition

_SET, _DELETE = 0, 1
METADATA_TOPIC = TopicPartition("__cluster_metadata", 0)
"""DescribeQuorum of it speaks of the controller."""

Errors = dict[TopicPartition, KafkaError]
"""What went wrong with some of the partitions of a request."""


class PartitionNow(NamedTuple):
    """A partition as Metadata has it; ``leader`` is -1 when there is none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    """Replicas on brokers that are not registered, or in log directories that failed."""


class LogReplica(NamedTuple):
    """A replica's log on one broker. A future one is filled, to replace the one in another directory."""

    size_bytes: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of one broker."""

    path: str
    is_offline: bool
    replicas: dict[TopicPartition, LogReplica]


class ConfigValue(NamedTuple):
    """One property of one resource, and where the value comes from (a number of ``ConfigSource``)."""

    value: str | None
    source: int

    @property
    def is_set(self) -> bool:
        """Set at run time, for a topic, a broker or all brokers; not in a file, not the default."""
        return self.source in (
            ConfigSource.DYNAMIC_TOPIC_CONFIG,
            ConfigSource.DYNAMIC_BROKER_CONFIG,
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        )


def topic_resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic)


def broker_resource(node_id: int | None) -> ConfigResource:
    """None stands for all brokers."""
    return ConfigResource(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))


class ClusterAdmin(AdminClient):
    """Methods raise KafkaError for an error of the whole response, and BrokerUnavailable when there is none;
    what is wrong with one partition is a value."""

    async def partitions(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, PartitionNow]:
        """The partitions of ``topics`` (None: of all), sorted; topics that there are not are left out."""
        body = {
            "topics": None if topics is None else [{"name": name, "topic_id": None} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self.ask_any(ApiKey.METADATA, body)
        found = {}
        for topic in answer.topics:
            error = error_of(topic.error_code)
            if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(error.code, f"topic {topic.name}")
            for each in topic.partitions:
                found[TopicPartition(topic.name, each.partition_index)] = PartitionNow(
                    each.leader_id,
                    tuple(each.replica_nodes),
                    tuple(each.isr_nodes),
                    tuple(getattr(each, "offline_replicas", ())),
                )
        return dict(sorted(found.items()))

    async def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """ListPartitionReassignments: every partition that is being reassigned, sorted."""
        body = {"timeout": self.timeout_ms, "topics": None}
        answer = await self.ask_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, body)
        return {
            TopicPartition(topic.name, each.partition_index): ReplicaAssignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in sorted(answer.topics, key=lambda topic: str(topic.name))
            for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
        }

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Errors:
        """AlterPartitionReassignments; None cancels. Returns what was refused."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "replicas": None if targets[each] is None else list(targets[each] or ()),
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in by_topic(targets).items()
        ]
        body = {"timeout": self.timeout_ms, "allow_replication_factor_change": True, "topics": topics}
        answer = await self.ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
        return {
            TopicPartition(topic.name, each.partition_index): error
            for topic in answer.responses
            for each in topic.partitions
            if (error := error_of(each.error_code, each.error_message)) is not None
        }

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """ElectLeaders for ``partitions`` (None: all there are): what became of each, None is success."""
        topics = None
        if partitions is not None:
            topics = [
                {"topic": topic, "partitions": [each.partition for each in each_topic]}
                for topic, each_topic in by_topic(partitions).items()
            ]
        body = {"election_type": int(election_type), "topic_partitions": topics, "timeout": self.timeout_ms}
        answer = await self.ask_controller(ApiKey.ELECT_LEADERS, body)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each.error_code, each.error_message)
            for topic in sorted(answer.replica_election_results, key=lambda topic: str(topic.topic))
            for each in sorted(topic.partition_result, key=lambda each: int(each.partition_id))
        }

    async def log_dirs(self, node_id: int, partitions: Iterable[TopicPartition] | None) -> list[LogDir]:
        """DescribeLogDirs of a broker: its directories, with what there is of ``partitions`` (None: all)."""
        topics = None
        if partitions is not None:
            topics = [
                {"topic": topic, "partitions": [each.partition for each in each_topic]}
                for topic, each_topic in by_topic(partitions).items()
            ]
        answer = await self.ask_broker(node_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics})
        raise_error(answer)
        return [_log_dir(result) for result in answer.results]

    async def move_between_dirs(self, node_id: int, paths: Mapping[TopicPartition, str]) -> Errors:
        """AlterReplicaLogDirs on one broker. Returns what was refused."""
        moves: dict[str, list[TopicPartition]] = {}
        for partition, path in paths.items():
            moves.setdefault(path, []).append(partition)
        dirs = [
            {
                "path": path,
                "topics": [
                    {"name": topic, "partitions": [each.partition for each in of_topic]}
                    for topic, of_topic in by_topic(partitions).items()
                ],
            }
            for path, partitions in moves.items()
        ]
        answer = await self.ask_broker(node_id, ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})
        return {
            TopicPartition(topic.topic_name, each.partition_index): error
            for topic in answer.results
            for each in topic.partitions
            if (error := error_of(each.error_code)) is not None
        }

    async def configs(
        self, resources: Sequence[ConfigResource], names: Sequence[str], *, node_id: int | None = None
    ) -> dict[ConfigResource, dict[str, ConfigValue]]:
        """DescribeConfigs, asked of any broker or of ``node_id``; what was refused is left out."""
        if not resources:
            return {}
        body = {
            "resources": [
                {"resource_type": each.type, "resource_name": each.name, "configuration_keys": list(names)}
                for each in resources
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = await self._ask_for(node_id, ApiKey.DESCRIBE_CONFIGS, body)
        return {
            ConfigResource(result.resource_type, result.resource_name): {
                each.name: ConfigValue(each.value, each.config_source) for each in result.configs
            }
            for result in answer.results
            if result.error_code == ErrorCode.NONE
        }

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        node_id: int | None = None,
    ) -> None:
        """IncrementalAlterConfigs, asked of any broker or of ``node_id``; None deletes. Raises the first
        refusal."""
        if not changes:
            return
        resources = [
            {
                "resource_type": resource.type,
                "resource_name": resource.name,
                "configs": [
                    {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
                    for name, value in values.items()
                ],
            }
            for resource, values in changes.items()
        ]
        body = {"resources": resources, "validate_only": False}
        answer = await self._ask_for(node_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
        for response in answer.responses:
            raise_error(response)

    async def quorum(
        self, partitions: Iterable[TopicPartition], *, node_id: int | None = None
    ) -> dict[TopicPartition, Any]:
        """DescribeQuorum, asked of any broker or of ``node_id``: the answer for each partition that it
        leads."""
        topics = [
            {"topic_name": topic, "partitions": [{"partition_index": each.partition} for each in of_topic]}
            for topic, of_topic in by_topic(partitions).items()
        ]
        answer = await self._ask_for(node_id, ApiKey.DESCRIBE_QUORUM, {"topics": topics})
        raise_error(answer)
        return {
            TopicPartition(topic.topic_name, each.partition_index): each
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE
        }

    async def _ask_for(self, node_id: int | None, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        if node_id is None:
            return await self.ask_any(api_key, body)
        return await self.ask_broker(node_id, api_key, body)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Sorted."""
    topics: dict[str, list[TopicPartition]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each)
    return topics


def _log_dir(result: Any) -> LogDir:
    return LogDir(
        result.log_dir,
        result.error_code != ErrorCode.NONE,
        {
            TopicPartition(topic.name, each.partition_index): LogReplica(
                each.partition_size, each.offset_lag, bool(each.is_future_key)
            )
            for topic in result.topics
            for each in topic.partitions
        },
    )
