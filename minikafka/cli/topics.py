"""``minikafka topics``: create, list, describe, alter and delete topics, on any Kafka broker.

Kafka: ``kafka-topics.sh`` (``TopicCommand``), whose options work here too, and the part of
``KafkaAdminClient`` that is about topics: ``minikafka topics --create --topic orders --partitions 3`` is
``minikafka topics create orders --partitions 3``. Different from Kafka: ``alter`` also sets and removes
configurations, and ``--json`` prints what programs can read. Requests have the versions that both sides
speak.

Exit status: 0 when all went well, 1 when the broker refused something or cannot be reached, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from minikafka.cli.shared.admin_client import connect_to_any
from minikafka.cli.shared.commands import (
    FAILURE,
    Address,
    ProfileParser,
    add_connection_options,
    as_json,
    explain,
    run,
    take_connection,
    with_action_first,
)
from minikafka.config.definition import ConfigSource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1
_PARTITIONS_PER_PAGE = 2000
"""As kafka-topics.sh asks for."""

_Eligible = dict[tuple[str, int], tuple[Sequence[int] | None, Sequence[int] | None]]
"""Eligible leader replicas and last known ones of each topic's partitions."""

ACTIONS = ("create", "list", "describe", "alter", "delete")


# What a broker is asked


class PartitionDescription(msgspec.Struct, frozen=True):
    """One partition; ``leader`` is -1 when there is none."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None
    """Eligible leader replicas (KIP-966); None: the broker does not know of such."""
    last_known_elr: list[int] | None
    """The last known leader, while there is none; None as with ``elr``."""


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
    async def connect(
        cls, addresses: Sequence[Address], *, timeout_ms: int, security: ClientSecurity | None = None
    ) -> Self:
        """Connect to one of ``addresses``, or raise BrokerUnavailable."""
        client = await connect_to_any(
            addresses, client_id="minikafka-topics", timeout_ms=timeout_ms, security=security
        )
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
        eligible = await self._eligible(good)
        return [
            _described(topic, configs.get(topic.name, {}), eligible)
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

    async def _eligible(self, topics: Sequence[str]) -> _Eligible:
        """What DescribeTopicPartitions knows beyond Metadata, page by page; nothing before Kafka 3.7."""
        found: _Eligible = {}
        body: dict[str, Any] = {
            "topics": [{"name": topic} for topic in topics],
            "response_partition_limit": _PARTITIONS_PER_PAGE,
            "cursor": None,
        }
        while topics:
            try:
                answer = await self._request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, body)
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    break
                raise
            for topic in answer.topics:
                for each in topic.partitions:
                    lists = each.eligible_leader_replicas, each.last_known_elr
                    found[topic.name, each.partition_index] = lists
            cursor = answer.next_cursor
            if cursor is None:
                break
            body["cursor"] = {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index}
        return found

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


def _described(topic: Any, configs: dict[str, str | None], eligible: _Eligible) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition.partition_index,
            partition.leader_id,
            list(partition.replica_nodes),
            list(partition.isr_nodes),
            *(
                None if known is None else list(known)
                for known in eligible.get((topic.name, partition.partition_index), (None, None))
            ),
        )
        for partition in sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
    ]
    topic_id = urlsafe_b64encode(topic.topic_id.bytes if topic.topic_id else bytes(16)).decode().rstrip("=")
    return TopicDescription(topic.name, topic_id, bool(topic.is_internal), partitions, configs)


def _check(results: Sequence[Any]) -> None:
    for result in results:
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(result.error_code), getattr(result, "error_message", None))


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka topics``."""
    options = ProfileParser(
        prog="minikafka topics",
        description="Create, list, describe, alter and delete topics.",
        allow_abbrev=False,
    )
    options.add_argument("action", choices=ACTIONS, help="also as an option: --create, --list, …")
    options.add_argument("topics", nargs="*", metavar="TOPIC", help="topics; describe without any: all")
    add_connection_options(options)
    options.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="the same as TOPIC")
    options.add_argument("--partitions", type=int, metavar="N", help="create, alter: how many partitions")
    options.add_argument(
        "--replication-factor", type=int, metavar="N", help="create: replicas of each partition"
    )
    options.add_argument(
        "--replica-assignment",
        metavar="1:2,2:1",
        help="create, alter: the replicas of each (new) partition: broker ids, the preferred leader first",
    )
    options.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="create, alter: set a property"
    )
    options.add_argument(
        "--delete-config", action="append", default=[], metavar="NAME", help="alter: back to the default"
    )
    options.add_argument("--if-not-exists", action="store_true", help="create: no error when it is there")
    options.add_argument(
        "--if-exists", action="store_true", help="describe, alter, delete: no error when it is not"
    )
    options.add_argument(
        "--exclude-internal", action="store_true", help="list, describe: leave out Kafka's own"
    )
    options.add_argument("--json", action="store_true", help="list, describe: print JSON")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action. Returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    options = parser()
    arguments = options.parse_intermixed_args(with_action_first(given, ACTIONS))
    arguments.topics = [*arguments.topics, *(name for text in arguments.topic for name in text.split(","))]
    _check_usage(options, arguments)
    try:
        take_connection(arguments)
        arguments.settings = parse_configs(arguments.config)
        arguments.assignment = parse_assignment(arguments.replica_assignment)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka topics", _run(arguments))


def _check_usage(options: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Options that make no sense with the action are bad usage, not silently ignored."""
    belongs = {
        "partitions": ("create", "alter"),
        "replication_factor": ("create",),
        "replica_assignment": ("create", "alter"),
        "config": ("create", "alter"),
        "delete_config": ("alter",),
        "if_not_exists": ("create",),
        "if_exists": ("describe", "alter", "delete"),
        "exclude_internal": ("list", "describe"),
        "json": ("list", "describe"),
    }
    for name, actions in belongs.items():
        if getattr(arguments, name) not in (None, False, []) and arguments.action not in actions:
            options.error(f"--{name.replace('_', '-')} does not go with {arguments.action}")
    if arguments.action in ("create", "alter", "delete") and not arguments.topics:
        options.error(f"{arguments.action} needs a topic")
    counts_given = arguments.partitions is not None or arguments.replication_factor is not None
    if arguments.action == "create" and arguments.replica_assignment and counts_given:
        options.error("--replica-assignment says how many partitions and replicas there are")
    if arguments.action == "alter":
        if arguments.partitions is None and not arguments.config and not arguments.delete_config:
            options.error("alter needs --partitions, --config or --delete-config")
        if arguments.replica_assignment and arguments.partitions is None:
            options.error("--replica-assignment needs --partitions")


async def _run(arguments: argparse.Namespace) -> int:
    async with await TopicAdmin.connect(
        arguments.addresses, timeout_ms=arguments.timeout_ms, security=arguments.security
    ) as admin:
        match arguments.action:
            case "create":
                return await _create(admin, arguments)
            case "list":
                names = await admin.topic_names(internal=not arguments.exclude_internal)
                print(as_json(names) if arguments.json else "\n".join(names), end="\n" if names else "")
                return 0
            case "describe":
                return await _describe(admin, arguments)
            case "alter":
                return await _alter(admin, arguments)
            case _:
                return await _delete(admin, arguments)


async def _create(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    for topic in arguments.topics:
        try:
            await admin.create(
                topic,
                partitions=arguments.partitions,
                replication_factor=arguments.replication_factor,
                assignment=arguments.assignment,
                configs=arguments.settings,
            )
        except KafkaError as error:
            if arguments.if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                continue
            status = _complain(topic, error)
        else:
            print(f"Created topic {topic}.")
    return status


async def _describe(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    found = []
    for description in await admin.describe(arguments.topics or None):
        if isinstance(description, TopicDescription):
            if not (description.is_internal and arguments.exclude_internal):
                found.append(description)
        elif not (arguments.if_exists and description.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            status = _complain(description.topic, description)
    if arguments.json:
        print(as_json(found))
    else:
        for description in found:
            print("\n".join(description_lines(description)))
    return status


async def _alter(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    for topic in arguments.topics:
        try:
            if arguments.settings or arguments.delete_config:
                await admin.alter_configs(topic, set=arguments.settings, delete=arguments.delete_config)
            if arguments.partitions is not None:
                await admin.create_partitions(topic, arguments.partitions, assignment=arguments.assignment)
        except KafkaError as error:
            if arguments.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            status = _complain(topic, error)
        else:
            print(f"Altered topic {topic}.")
    return status


async def _delete(admin: TopicAdmin, arguments: argparse.Namespace) -> int:
    status = 0
    for topic in arguments.topics:
        try:
            await admin.delete(topic)
        except KafkaError as error:
            if arguments.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            status = _complain(topic, error)
        else:
            print(f"Deleted topic {topic}.")
    return status


def _complain(topic: str, error: KafkaError) -> int:
    print(f"minikafka topics: {topic}: {explain(error)}", file=sys.stderr)
    return FAILURE


def description_lines(description: TopicDescription) -> list[str]:
    """A topic as kafka-topics.sh shows it."""
    partitions = description.partitions
    configs = ",".join(f"{name}={value}" for name, value in description.configs.items())
    lines = [
        f"Topic: {description.topic}\tTopicId: {description.topic_id}\tPartitionCount: {len(partitions)}\t"
        f"ReplicationFactor: {len(partitions[0].replicas) if partitions else 0}\tConfigs: {configs}"
    ]
    for partition in partitions:
        leader = "none" if partition.leader < 0 else partition.leader
        lines.append(
            f"\tTopic: {description.topic}\tPartition: {partition.partition}\tLeader: {leader}\t"
            f"Replicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}\t"
            f"Elr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}"
        )
    return lines


def parse_configs(texts: Sequence[str]) -> dict[str, str]:
    """``name=value`` texts as a dict. Raises ValueError."""
    configs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"--config {text}: must be NAME=VALUE")
        configs[name.strip()] = value
    return configs


def parse_assignment(text: str | None) -> list[list[int]] | None:
    """``1:2,2:1`` as the replicas of each partition. Raises ValueError."""
    if text is None:
        return None
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise ValueError(f"--replica-assignment {text}: must be broker ids like 1:2,2:1") from None


if __name__ == "__main__":
    sys.exit(main())


def _ids(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))
