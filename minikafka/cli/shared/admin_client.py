"""A client for operators: asks any broker, a certain one, the controller or a coordinator, and finds each.

Kafka: ``KafkaAdminClient`` and its routing (``LeastLoadedNodeProvider``, ``ConstantNodeIdProvider``,
``ControllerNodeProvider``, ``CoordinatorStrategy``). Requests go where Kafka's own client sends them, so this
works with any broker. Answers are plain values, by partition where there are several.

Invariants:
- One connection a broker, made when it is first needed, kept until ``close`` or until it breaks.
- What any broker can answer is asked of one after the other until one does. What the controller is asked is
  asked again, wherever it is by then, until ``timeout_ms`` are over; so is what a coordinator is asked that
  has just moved, or still reads its log. Such requests may be carried out twice, so each says what is to be,
  not what is to change. What goes to a certain broker is asked once.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from minikafka.cli.shared.commands import Address, error_of
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import DIAGNOSTICS, ConfigResource, ConfigResourceType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import AuthenticationFailed, BrokerClient, BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import ElectionType, ReplicaAssignment, TopicPartition

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity

RETRY_BACKOFF_S = 0.1
"""Kafka's retry.backoff.ms."""

NO_NODE = -1
"""The id of no broker (``Node.noNode``)."""

Body = Mapping[str, Any]

Connect = Callable[..., Awaitable[BrokerClient]]
"""``BrokerClient.connect``, or what stands for it: a broker's own way to the others."""

COORDINATOR_MOVES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_SET, _DELETE = 0, 1
METADATA_TOPIC = TopicPartition("__cluster_metadata", 0)
"""DescribeQuorum of it speaks of the controller."""

Errors = dict[TopicPartition, KafkaError]
"""What went wrong with some of the partitions of a request."""


class CoordinatorType(IntEnum):
    """What FindCoordinator looks for (``FindCoordinatorRequest.CoordinatorType``)."""

    GROUP = 0
    TRANSACTION = 1


class LiveBroker(NamedTuple):
    """A broker that is registered."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterNodes(NamedTuple):
    """The live brokers, as DescribeCluster has them."""

    cluster_id: str
    controller: int
    """``NO_NODE``: none."""
    brokers: dict[int, LiveBroker]
    """By id, in the order of ids."""


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


async def connect_to_any(
    addresses: Sequence[Address], *, client_id: str, timeout_ms: int, security: ClientSecurity | None = None
) -> BrokerClient:
    """A connection to the first of ``addresses`` that answers.

    Raises:
        AuthenticationFailed: one answers, and does not let us in.
        BrokerUnavailable: none does; what the last one said.
    """

    async def connect(address: Address) -> BrokerClient:
        return await BrokerClient.connect(
            *address, client_id=client_id, deadline_ms=timeout_ms, security=security
        )

    for address in addresses[:-1]:
        try:
            return await connect(address)
        except AuthenticationFailed:
            raise
        except BrokerUnavailable:
            pass  # the next one may answer
    return await connect(addresses[-1])


class AdminClient:
    """Connections to the brokers of one cluster. Use it as a context manager, on one event loop.

    Methods raise KafkaError for an error of the whole response, and BrokerUnavailable when there is none (at
    once where the broker does not let us in: AuthenticationFailed); what is wrong with one partition is a
    value.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str,
        timeout_ms: int,
        security: ClientSecurity | None = None,
        connect: Connect | None = None,
    ) -> None:
        """``security``: how all brokers are reached; None: in plain text. ``connect`` is called with host,
        port, ``client_id`` and ``deadline_ms`` in place of this, if it is given."""
        self._bootstrap = list(bootstrap)
        self._connect_by = connect
        self._client_id = client_id
        self._security = security
        self.timeout_ms = timeout_ms
        self._clients: dict[Address, BrokerClient] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._nodes: ClusterNodes | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace, client_id: str) -> Self:
        """Of a command's connection options, after ``commands.take_connection``."""
        return cls(
            arguments.addresses,
            client_id=client_id,
            timeout_ms=arguments.timeout_ms,
            security=arguments.security,
            connect=getattr(arguments, "connect", None),
        )

    def __repr__(self) -> str:
        return f"AdminClient({self._bootstrap}, {len(self._clients)} connections)"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections. Idempotent; what is asked later makes new ones."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def nodes(self, *, refresh: bool = True) -> ClusterNodes:
        """The live brokers now, or (without ``refresh``) when last asked.

        Raises:
            BrokerUnavailable: no broker answers. KafkaError: what the broker says.
        """
        if refresh or self._nodes is None:
            body = {
                "include_cluster_authorized_operations": False,
                "endpoint_type": 1,
                "include_fenced_brokers": False,
            }
            answer = await self.ask_any(ApiKey.DESCRIBE_CLUSTER, body)
            raise_error(answer)
            brokers = [
                LiveBroker(each.broker_id, each.host, each.port, each.rack)
                for each in sorted(answer.brokers, key=lambda each: int(each.broker_id))
            ]
            by_id = {broker.node_id: broker for broker in brokers}
            self._nodes = ClusterNodes(answer.cluster_id, answer.controller_id, by_id)
        return self._nodes

    async def ask_any(self, api_key: ApiKey, body: Body) -> Any:
        """Ask the first broker that answers.

        Raises:
            BrokerUnavailable: no broker does, within ``timeout_ms``. KafkaError: UNSUPPORTED_VERSION.
        """
        known = [(each.host, each.port) for each in self._nodes.brokers.values()] if self._nodes else []
        failure: BrokerUnavailable | None = None
        for address in dict.fromkeys([*self._clients, *self._bootstrap, *known]):
            try:
                return await self._ask(address, api_key, body)
            except AuthenticationFailed:
                raise
            except BrokerUnavailable as error:
                failure = failure or error
        assert failure is not None, "there is no bootstrap server"
        raise failure

    async def ask_broker(self, node_id: int, api_key: ApiKey, body: Body) -> Any:
        """Ask one broker.

        Raises:
            BrokerUnavailable: it is not registered, or does not answer. KafkaError: UNSUPPORTED_VERSION.
        """
        nodes = await self.nodes(refresh=False)
        broker = nodes.brokers.get(node_id) or (await self.nodes()).brokers.get(node_id)
        if broker is None:
            raise BrokerUnavailable(f"broker {node_id} is not registered")
        return await self._ask((broker.host, broker.port), api_key, body)

    async def ask_controller(self, api_key: ApiKey, body: Body) -> Any:
        """Ask the controller; when it has moved, or there is none yet, again until ``timeout_ms`` are over.

        Raises:
            KafkaError: the response's own error. BrokerUnavailable: no controller answers.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 1000
        while True:
            try:
                controller = (await self.nodes()).controller
                if controller == NO_NODE:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "no broker is the controller")
                answer = await self.ask_broker(controller, api_key, body)
                raise_error(answer)
                return answer
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER or loop.time() >= deadline:
                    raise
            except AuthenticationFailed:
                raise
            except BrokerUnavailable:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def _ask_for(self, node_id: int | None, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        if node_id is None:
            return await self.ask_any(api_key, body)
        return await self.ask_broker(node_id, api_key, body)

    async def _ask(self, address: Address, api_key: ApiKey, body: Body) -> Any:
        async with self._connecting.setdefault(address, asyncio.Lock()):
            client = self._clients.get(address)
            if client is None or not client.is_connected:
                client = self._clients[address] = await self._connect(address)
        try:
            return await client.request(api_key, body, deadline_ms=self.timeout_ms)
        except BrokerUnavailable:
            if self._clients.get(address) is client:
                del self._clients[address]
            raise

    async def _connect(self, address: Address) -> BrokerClient:
        if self._connect_by is not None:
            return await self._connect_by(*address, client_id=self._client_id, deadline_ms=self.timeout_ms)
        return await BrokerClient.connect(
            *address, client_id=self._client_id, deadline_ms=self.timeout_ms, security=self._security
        )

    # Replicas: where they are, where they go, which leads

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

    async def diagnostics(self, kind: str, /, *, node_id: int | None = None, **arguments: object) -> Any:
        """A document that one broker has about itself (``server.apis.diagnostics``), as JSON's values.

        Raises:
            KafkaError: there is no such kind, also on a broker of Apache Kafka; CLUSTER_AUTHORIZATION_FAILED.
            BrokerUnavailable: it does not answer.
        """
        keys = [f"{name}={value}" for name, value in arguments.items() if value is not None]
        body = {
            "resources": [{"resource_type": DIAGNOSTICS, "resource_name": kind, "configuration_keys": keys}],
            "include_synonyms": False,
            "include_documentation": False,
        }
        (result,) = (await self._ask_for(node_id, ApiKey.DESCRIBE_CONFIGS, body)).results
        raise_error(result)
        return msgspec.json.decode("".join(each.value for each in result.configs))

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

    # Coordinators, of groups or of transactional ids, wherever they are by then

    async def coordinator(self, key_type: CoordinatorType, key: str) -> LiveBroker:
        """FindCoordinator. Raises KafkaError: COORDINATOR_NOT_AVAILABLE as long as there is none."""
        body = {"key": key, "key_type": int(key_type), "coordinator_keys": [key]}
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, body)
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        raise_error(found)
        return LiveBroker(found.node_id, found.host, found.port, None)

    async def ask_coordinator(
        self,
        key_type: CoordinatorType,
        key: str,
        api_key: ApiKey,
        body: Mapping[str, Any],
        part: Callable[[Any], Any],
        *,
        expected: Sequence[ErrorCode] = (),
    ) -> tuple[LiveBroker, Any]:
        """Ask the coordinator of ``key``; ``part`` is what carries the error in its answer.

        The answer is None for one of the ``expected`` errors. Raises KafkaError: any other.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 1000
        while True:
            coordinator = None
            try:
                coordinator = await self.coordinator(key_type, key)
                answer = await self.ask_broker(coordinator.node_id, api_key, body)
                raise_error(part(answer))
                return coordinator, answer
            except KafkaError as error:
                if coordinator is not None and error.code in expected:
                    return coordinator, None
                if error.code not in COORDINATOR_MOVES or loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def ask_loaded(self, broker: int, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        """Ask one broker until it has read what it coordinates. Raises KafkaError: any other error."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 1000
        while True:
            answer = await self.ask_broker(broker, api_key, body)
            try:
                raise_error(answer)
                return answer
            except KafkaError as error:
                if error.code not in COORDINATOR_MOVES or loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)


def raise_error(answer: Any) -> None:
    """Raise KafkaError for the error of a response as a whole, if it has one."""
    error = error_of(getattr(answer, "error_code", 0), getattr(answer, "error_message", None))
    if error is not None:
        raise error


def topic_resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic)


def broker_resource(node_id: int | None) -> ConfigResource:
    """None stands for all brokers."""
    return ConfigResource(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))


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
