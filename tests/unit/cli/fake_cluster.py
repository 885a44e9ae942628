"""A cluster that answers operators' commands: its state is fields, its answers go through the real codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.cli.shared.commands import Address
from minikafka.config.definition import ConfigSource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import TOPICS_NAMED_UNTIL, BrokerUnavailable
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import (
    decode_response,
    encode_request,
    read_request_header,
)
from minikafka.types import ReplicaAssignment, TopicPartition
from tests.support.codec import decode_request, encode_response

NONE = int(ErrorCode.NONE)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
TOPIC, BROKER = 2, 4
CREATED_MS = 1_700_000_000_000


class FakePartition:
    """Replicas, who leads, who is in sync."""

    def __init__(self, *replicas: int) -> None:
        self.assignment = ReplicaAssignment(replicas)  # type: ignore[arg-type]
        self.leader = replicas[0]
        self.isr = list(replicas)
        self.offline: list[int] = []


class FakeCluster:
    """Brokers 1 to n on ports 9001 to 9000+n; broker 1 is the controller.

    A reassignment that was asked for copies 100 bytes of each new replica whenever it is listed, and is done
    when all have what the leader has.
    """

    def __init__(self, brokers: int = 3) -> None:
        self.racks: dict[int, str | None] = dict.fromkeys(range(1, brokers + 1))
        self.live = list(self.racks)
        self.silent: set[int] = set()
        """Registered, and no answer comes from them."""
        self.controller = 1
        self.moves_controller_to: int | None = None
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.log_dirs: dict[int, list[str]] = {each: ["/a", "/b"] for each in self.racks}
        self.offline_dirs: list[tuple[int, str]] = []
        self.sizes: dict[tuple[TopicPartition, int], int] = {}
        self.paths: dict[tuple[TopicPartition, int], str] = {}
        self.futures: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quorum: dict[TopicPartition, list[dict[str, Any]]] = {}
        self.refuses: dict[TopicPartition, KafkaError] = {}
        self.is_stuck = False
        self.asked: list[tuple[int, ApiKey, Any]] = []

    def topic(self, name: str, *replicas: tuple[int, ...], size_bytes: int = 300) -> None:
        for number, each in enumerate(replicas):
            partition = TopicPartition(name, number)
            self.partitions[partition] = FakePartition(*each)
            for broker in each:
                self.sizes[partition, broker] = size_bytes

    def replicas(self, name: str) -> list[tuple[int, ...]]:
        return [tuple(each.assignment.replicas) for key, each in self.partitions.items() if key.topic == name]

    def requests(self, api_key: ApiKey) -> list[Any]:
        return [request for _, key, request in self.asked if key == api_key]

    def changes(self) -> list[ApiKey]:
        """Which requests asked for a change."""
        changing = (
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
        )
        return [key for _, key, _ in self.asked if key in changing]

    async def connect(self, address: Address) -> Any:
        node_id = address[1] - 9000
        if node_id not in self.live:
            raise BrokerUnavailable(f"broker {address[0]}:{address[1]}: cannot connect")
        if node_id in self.silent:
            raise BrokerUnavailable(f"broker {address[0]}:{address[1]}: API_VERSIONS was not answered")
        return FakeConnection(self, node_id)

    # The APIs

    def answer(self, node_id: int, api_key: ApiKey, request: Any) -> Mapping[str, Any]:
        self.asked.append((node_id, api_key, request))
        return getattr(self, f"_{api_key.name.lower()}")(node_id, request)  # type: ignore[no-any-return]

    def _describe_cluster(self, node_id: int, request: Any) -> Mapping[str, Any]:
        brokers = [
            {
                "broker_id": each,
                "host": "b",
                "port": 9000 + each,
                "rack": self.racks[each],
                "is_fenced": False,
            }
            for each in reversed(self.live)
        ]
        return {
            "throttle_time": 0,
            "error_code": NONE,
            "cluster_id": "the-cluster",
            "controller_id": self.controller,
            "brokers": brokers,
        }

    def _metadata(self, node_id: int, request: Any) -> Mapping[str, Any]:
        known = dict.fromkeys(each.topic for each in self.partitions)
        wanted = known if request.topics is None else [each.name for each in request.topics]
        return {
            "throttle_time": 0,
            "brokers": [],
            "cluster_id": "the-cluster",
            "controller_id": self.controller,
            "topics": [
                {
                    "error_code": NONE if name in known else UNKNOWN,
                    "name": name,
                    "topic_id": None,
                    "is_internal": False,
                    "partitions": [
                        {
                            "error_code": NONE,
                            "partition_index": key.partition,
                            "leader_id": each.leader,
                            "leader_epoch": 1,
                            "replica_nodes": list(each.assignment.replicas),
                            "isr_nodes": each.isr,
                            "offline_replicas": each.offline,
                        }
                        for key, each in self.partitions.items()
                        if key.topic == name
                    ],
                }
                for name in wanted
            ],
            "error_code": NONE,
        }

    def _not_controller(self, node_id: int) -> bool:
        if self.moves_controller_to is not None:
            self.controller, self.moves_controller_to = self.moves_controller_to, None
        return node_id != self.controller

    def _list_partition_reassignments(self, node_id: int, request: Any) -> Mapping[str, Any]:
        head = {"throttle_time": 0, "error_message": None}
        if self._not_controller(node_id):
            return {**head, "error_code": ErrorCode.NOT_CONTROLLER, "topics": []}
        if not self.is_stuck:
            self._copy()
        return {
            **head,
            "error_code": NONE,
            "topics": [
                {
                    "name": key.topic,
                    "partitions": [
                        {
                            "partition_index": key.partition,
                            "replicas": list(each.assignment.replicas),
                            "adding_replicas": list(each.assignment.adding),
                            "removing_replicas": list(each.assignment.removing),
                        }
                    ],
                }
                for key, each in self.partitions.items()
                if each.assignment.is_being_reassigned
            ],
        }

    def _copy(self) -> None:
        for key, each in self.partitions.items():
            if not each.assignment.is_being_reassigned:
                continue
            full = self.sizes[key, each.leader]
            for broker in each.assignment.adding:
                self.sizes[key, broker] = min(full, self.sizes.get((key, broker), 0) + 100)
            if all(self.sizes[key, broker] == full for broker in each.assignment.adding):
                each.assignment = ReplicaAssignment(each.assignment.target)
                each.isr = list(each.assignment.replicas)
                each.leader = each.leader if each.leader in each.isr else each.isr[0]
        for (key, broker), (path, size) in list(self.futures.items()):
            self.futures[key, broker] = path, size + 100
            if size + 100 >= self.sizes[key, broker]:
                self.paths[key, broker] = path
                del self.futures[key, broker]

    def _alter_partition_reassignments(self, node_id: int, request: Any) -> Mapping[str, Any]:
        responses = []
        for topic in request.topics:
            results = []
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                error = self.refuses.get(key)
                if error is None:
                    partition = self.partitions[key]
                    target = partition.assignment.origin if each.replicas is None else tuple(each.replicas)
                    partition.assignment = partition.assignment.reassign_to(target)
                    if each.replicas is None:
                        partition.assignment = ReplicaAssignment(target)
                results.append(
                    {
                        "partition_index": each.partition_index,
                        "error_code": NONE if error is None else error.code,
                        "error_message": None if error is None else error.message,
                    }
                )
            responses.append({"name": topic.name, "partitions": results})
        return {"throttle_time": 0, "error_code": NONE, "error_message": None, "responses": responses}

    def _describe_log_dirs(self, node_id: int, request: Any) -> Mapping[str, Any]:
        wanted = None
        if request.topics is not None:
            wanted = [
                TopicPartition(each.topic, number) for each in request.topics for number in each.partitions
            ]
        logs: dict[str, list[tuple[TopicPartition, int, bool]]] = {
            each: [] for each in self.log_dirs[node_id]
        }
        for (key, broker), size in self.sizes.items():
            is_mine = broker == node_id and node_id in self.partitions[key].assignment.replicas
            if is_mine and (wanted is None or key in wanted):
                logs[self.paths.get((key, broker), "/a")].append((key, size, False))
                if (key, broker) in self.futures:
                    path, future_size = self.futures[key, broker]
                    logs[path].append((key, future_size, True))
        results = []
        for path, found in logs.items():
            is_offline = (node_id, path) in self.offline_dirs
            topics = [
                {
                    "name": key.topic,
                    "partitions": [
                        {
                            "partition_index": key.partition,
                            "partition_size": size,
                            "offset_lag": 0,
                            "is_future_key": is_future,
                        }
                    ],
                }
                for key, size, is_future in found
            ]
            error = ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.NONE
            results.append({"error_code": error, "log_dir": path, "topics": [] if is_offline else topics})
        return {"throttle_time": 0, "error_code": NONE, "results": results}

    def _alter_replica_log_dirs(self, node_id: int, request: Any) -> Mapping[str, Any]:
        results = []
        for log_dir in request.dirs:
            for topic in log_dir.topics:
                for number in topic.partitions:
                    key = TopicPartition(topic.name, number)
                    error = ErrorCode.NONE
                    if (key, node_id) not in self.sizes:
                        self._copy()  # time goes by
                        error = ErrorCode.REPLICA_NOT_AVAILABLE
                    elif self.paths.get((key, node_id), "/a") == log_dir.path:
                        self.futures.pop((key, node_id), None)
                    else:
                        self.futures[key, node_id] = log_dir.path, 0
                    result = {"partition_index": number, "error_code": error}
                    results.append({"topic_name": topic.name, "partitions": [result]})
        return {"throttle_time": 0, "results": results}

    def _describe_configs(self, node_id: int, request: Any) -> Mapping[str, Any]:
        results = []
        for resource in request.resources:
            where = resource.resource_type, resource.resource_name
            assert resource.resource_type == TOPIC or resource.resource_name == str(node_id), where
            own = (
                ConfigSource.DYNAMIC_TOPIC_CONFIG if where[0] == TOPIC else ConfigSource.DYNAMIC_BROKER_CONFIG
            )
            values = {
                name: (value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
                for name, value in self.configs.get((BROKER, ""), {}).items()
                if where[0] == BROKER
            }
            if where[0] == TOPIC:
                values["min.insync.replicas"] = ("2", ConfigSource.DEFAULT_CONFIG)
            values |= {name: (value, own) for name, value in self.configs.get(where, {}).items()}
            results.append(
                {
                    "error_code": NONE,
                    "error_message": None,
                    "resource_type": where[0],
                    "resource_name": where[1],
                    "configs": [
                        {
                            "name": name,
                            "value": value,
                            "read_only": False,
                            "config_source": source,
                            "is_sensitive": False,
                            "synonyms": [],
                            "config_type": 0,
                            "documentation": None,
                        }
                        for name, (value, source) in values.items()
                        if name in resource.configuration_keys
                    ],
                }
            )
        return {"throttle_time": 0, "results": results}

    def _incremental_alter_configs(self, node_id: int, request: Any) -> Mapping[str, Any]:
        responses = []
        for resource in request.resources:
            where = resource.resource_type, resource.resource_name
            assert where[0] == TOPIC or where[1] in ("", str(node_id)), where
            values = self.configs.setdefault(where, {})
            for each in resource.configs:
                if each.config_operation == 0:
                    values[each.name] = each.value
                else:
                    values.pop(each.name, None)
            responses.append(
                {
                    "error_code": NONE,
                    "error_message": None,
                    "resource_type": where[0],
                    "resource_name": where[1],
                }
            )
        return {"throttle_time": 0, "responses": responses}

    def _describe_quorum(self, node_id: int, request: Any) -> Mapping[str, Any]:
        topics = []
        for topic in request.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.topic_name, each.partition_index)
                is_metadata = key.topic == "__cluster_metadata"
                leader = self.controller if is_metadata else self.partitions[key].leader
                known = is_metadata or (leader == node_id and key in self.quorum)
                partition = {
                    "partition_index": each.partition_index,
                    "error_code": NONE if known else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    "error_message": None,
                    "leader_id": leader,
                    "leader_epoch": 7,
                    "high_watermark": 0,
                    "current_voters": self.quorum.get(key, []),
                    "observers": [],
                }
                topics.append({"topic_name": key.topic, "partitions": [partition]})
        return {"error_code": NONE, "error_message": None, "topics": topics, "nodes": []}

    def _elect_leaders(self, node_id: int, request: Any) -> Mapping[str, Any]:
        if self._not_controller(node_id):
            return {
                "throttle_time": 0,
                "error_code": ErrorCode.NOT_CONTROLLER,
                "replica_election_results": [],
            }
        wanted = list(self.partitions)
        if request.topic_partitions is not None:
            wanted = [
                TopicPartition(each.topic, number)
                for each in request.topic_partitions
                for number in each.partitions
            ]
        results = []
        for key in wanted:
            error = self.refuses.get(key, KafkaError(ErrorCode.NONE))
            if key not in self.partitions:
                error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            elif self.partitions[key].leader == self.partitions[key].assignment.replicas[0]:
                error = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed.")
                if request.topic_partitions is None:
                    continue
            elif error.code is ErrorCode.NONE:
                self.partitions[key].leader = self.partitions[key].assignment.replicas[0]
            result = {"partition_id": key.partition, "error_code": error.code, "error_message": error.message}
            results.append({"topic": key.topic, "partition_result": [result]})
        return {"throttle_time": 0, "error_code": NONE, "replica_election_results": results}


class FakeConnection:
    """A connection to one broker; every request and answer is encoded and decoded, in the newest
    version in which our client asks."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id

    @property
    def is_connected(self) -> bool:
        return self._node_id in self._cluster.live

    async def request(self, api_key: ApiKey, body: Mapping[str, Any], *, deadline_ms: int) -> Any:
        version = TOPICS_NAMED_UNTIL.get(api_key, SUPPORTED[api_key].max)
        sent = encode_request(
            api_key=api_key, api_version=version, correlation_id=1, client_id="test", body=body
        )[4:]
        request = decode_request(read_request_header(sent), sent)
        answer = self._cluster.answer(self._node_id, api_key, request)
        frame = encode_response(api_key=api_key, api_version=version, correlation_id=1, body=answer)[4:]
        return decode_response(api_key=api_key, api_version=version, frame=frame)[1]

    async def close(self) -> None:
        pass
