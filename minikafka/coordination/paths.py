"""Kafka's places in the tree and what is written there, both ways.

Kafka: ``kafka.zk.ZkData`` (as of 3.9, the last with ZooKeeper), ``ProducerIdBlockZNode``, ``ConfigType``,
``ConfigEntity``, ``Sanitizer``; the notifications of ``DynamicConfigManager`` and ``ZkAdminManager``. Field
names and types are Kafka's: timestamps, producer ids and the cluster id's version are JSON strings,
everything else is what it looks like. So Kafka's and ZooKeeper's tools can read such a tree, and this module
reads theirs, older versions included.

``encode_…`` returns the node's data. ``decode_…`` takes the data, and the path where it does not follow from
the kind of node, and raises ``DamagedNodeError``, which names the path and what is wrong with it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from minikafka.config.client_quotas import DEFAULT, Name, QuotaEntity
from minikafka.coordination.store import StoreError
from minikafka.errors import UNDECODABLE
from minikafka.security.acl import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    by_name,
    camel_case,
)
from minikafka.types import (
    NO_LEADER,
    BrokerId,
    LeaderEpoch,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    is_topic_name,
)

T = TypeVar("T")

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
KNOWN_BROKERS = "/brokers/known"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIGS = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
USERS = "users"
CLIENTS = "clients"
USER_CONFIGS = f"{CONFIGS}/{USERS}"
CLIENT_CONFIGS = f"{CONFIGS}/{CLIENTS}"
IPS = "ips"
IP_CONFIGS = f"{CONFIGS}/{IPS}"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
MIGRATION = "/migration"
CONSUMERS = "/consumers"
ACL_ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
ACL_CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES = "/delegation_token/token_changes"
DELEGATION_TOKEN_CHANGE_PREFIX = "/delegation_token/token_changes/token_change_"
LOGIN_SECRET = "/minikafka/login_secret"
"""Not Kafka's: random bytes that only brokers know, the same on all of them."""

_SECRET_PATHS = (f"{CONFIGS}/users", f"{CONFIGS}/brokers", "/delegation_token", LOGIN_SECRET)
"""Below which nodes hold what no log may have."""

DEFAULT_ENTITY = "<default>"
"""Kafka's ``ZooKeeperInternals.DEFAULT_STRING``: what holds for every broker that has nothing of its own."""

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups")
"""``ConfigType.ALL``."""

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    *(f"{CONFIGS}/{type}" for type in CONFIG_TYPES),
)
"""What Kafka's broker creates when it starts, empty; so ``/latest_producer_id_block`` is, until the first."""

SENSITIVE_ROOTS = (USER_CONFIGS, BROKER_CONFIGS, DELEGATION_TOKENS, LOGIN_SECRET)
"""What begins so is for brokers alone, with ``zookeeper.set.acl``: ``ZkData.SensitiveRootPaths``, and our own
secret."""


# Paths


def is_sensitive(path: str) -> bool:
    """Whether others must not even read the node (``ZkData.sensitivePath``)."""
    return path.startswith(SENSITIVE_ROOTS)


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def known_broker_path(broker_id: int) -> str:
    """Of the last registration of a broker, alive or not, until it is unregistered. Not in Kafka's tree."""
    return f"{KNOWN_BROKERS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker_id: int | None) -> str:
    """None: the defaults of all brokers."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def named_config_path(root: str, name: str) -> str:
    """The configuration of a group or of a client metrics subscription (``GROUP_CONFIGS``,
    ``CLIENT_METRICS_CONFIGS``). Those have any names, so they are escaped like Kafka's user names."""
    return f"{root}/{sanitize(name)}"


def user_config_path(user: str) -> str:
    """What is set for a user: quotas and SCRAM credentials."""
    return f"{USER_CONFIGS}/{sanitize(user)}"


def delegation_token_path(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def sanitize(name: str) -> str:
    """Any name as that of a node, as Kafka's ``Sanitizer`` escapes it; "." and ".." would be no nodes."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")


def named_config(node: str) -> str:
    """The name that ``named_config_path`` has escaped."""
    return unquote(node)


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


# Client quotas: ``/config/users/<user>``, ``/config/clients/<client id>`` and
# ``/config/users/<user>/clients/<client id>``, with names escaped and ``<default>`` for the default; an
# escaped name cannot be that. ``/config/ips/<address>``: not escaped.


def client_quota_path(entity: QuotaEntity) -> str:
    """The node that an entity's quotas are in."""
    if entity.ip is not None:
        return f"{IP_CONFIGS}/{entity.ip}"
    if entity.user is None:
        return f"{CLIENT_CONFIGS}/{_node_of(entity.client_id)}"
    if entity.client_id is None:
        return f"{USER_CONFIGS}/{_node_of(entity.user)}"
    return f"{user_clients_path(_node_of(entity.user))}/{_node_of(entity.client_id)}"


def user_clients_path(user_node: str) -> str:
    """Where the clients of a user lie."""
    return f"{USER_CONFIGS}/{user_node}/{CLIENTS}"


def quota_entity_at(entity_path: str) -> QuotaEntity | None:
    """Whose quotas are at ``/config/<entity_path>``; None: that is no such place."""
    match entity_path.split("/"):
        case ["users", user]:
            return QuotaEntity(_name_in(user))
        case ["ips", ip]:
            return QuotaEntity(ip=DEFAULT if ip == DEFAULT_ENTITY else ip)
        case ["clients", client_id]:
            return QuotaEntity(None, _name_in(client_id))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_name_in(user), _name_in(client_id))
    return None


def _node_of(name: Name | None) -> str:
    return sanitize(name) if isinstance(name, str) else DEFAULT_ENTITY


def _name_in(node: str) -> Name:
    return DEFAULT if node == DEFAULT_ENTITY else named_config(node)


# ACLs: a node for each pattern of resources, named as it is (so there can be no "/" in it).


def acl_type_path(resource_type: ResourceType, pattern_type: PatternType) -> str:
    return f"{ACL_ROOTS[pattern_type]}/{camel_case(resource_type)}"


def acl_path(pattern: ResourcePattern) -> str:
    """``/kafka-acl/Topic/orders``, ``/kafka-acl-extended/prefixed/Topic/orders-``."""
    return f"{acl_type_path(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"


def acl_change_prefix(pattern_type: PatternType) -> str:
    """Where a sequential node tells of a change."""
    return f"{ACL_CHANGES[pattern_type]}/acl_changes_"


# JSON: each kind of node has a struct, with the fields of all versions together; defaults stand for those
# that older versions lack, and fields that are not in it are skipped.


class DamagedNodeError(StoreError):
    """A node's data is not what Kafka writes there."""

    def __init__(self, path: str, reason: str, data: bytes) -> None:
        excerpt = repr(data if len(data) <= 200 else data[:200] + b"...")
        if path.startswith(_SECRET_PATHS):
            excerpt = f"{len(data)} bytes"
        super().__init__(f"{path}: {reason}; the node holds {excerpt}")
        self.path = path
        self.reason = reason


def _to_json(tree: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(tree)


def _from_json(path: str, data: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except UNDECODABLE as error:
        raise DamagedNodeError(path, str(error), data) from error


def _to_int(path: str, data: bytes, what: str, text: str) -> int:
    if not re.fullmatch("-?[0-9]{1,19}", text):
        raise DamagedNodeError(path, f"{what} is {text!r}, not a number", data)
    return int(text)


def uuid_to_text(uuid: UUID) -> str:
    """As Kafka's ``Uuid.toString``: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Raises ValueError."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a base64 UUID") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} has {len(raw)} bytes, a UUID has 16")
    return UUID(bytes=raw)


# Cluster and controller


class _ClusterIdJson(msgspec.Struct):
    id: str


def encode_cluster_id(cluster_id: str) -> bytes:
    return _to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return _from_json(CLUSTER_ID, data, _ClusterIdJson).id


class ControllerRegistration(msgspec.Struct, frozen=True):
    """``/controller``, ephemeral: which broker is the controller."""

    broker_id: BrokerId
    timestamp_ms: int
    kraft_controller_epoch: int = -1


class _ControllerJson(msgspec.Struct):
    brokerid: int
    timestamp: str
    kraftControllerEpoch: int = -1  # noqa: N815 Kafka's


def encode_controller(registration: ControllerRegistration) -> bytes:
    return _to_json(
        {
            "version": 2,
            "brokerid": registration.broker_id,
            "timestamp": str(registration.timestamp_ms),
            "kraftControllerEpoch": registration.kraft_controller_epoch,
        }
    )


def decode_controller(data: bytes) -> ControllerRegistration:
    raw = _from_json(CONTROLLER, data, _ControllerJson)
    timestamp_ms = _to_int(CONTROLLER, data, "timestamp", raw.timestamp)
    return ControllerRegistration(BrokerId(raw.brokerid), timestamp_ms, raw.kraftControllerEpoch)


class MigrationState(msgspec.Struct, frozen=True):
    """``/migration``: how far one to KRaft has come (``ZkMigrationLeadershipState``); -1: not begun."""

    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int


class _MigrationJson(MigrationState, frozen=True):
    version: int


def decode_migration(data: bytes) -> MigrationState:
    raw = _from_json(MIGRATION, data, _MigrationJson)
    if raw.version != 0:
        raise DamagedNodeError(MIGRATION, f"a migration of version {raw.version}", data)
    return MigrationState(
        raw.kraft_controller_id,
        raw.kraft_controller_epoch,
        raw.kraft_metadata_offset,
        raw.kraft_metadata_epoch,
    )


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return _to_int(CONTROLLER_EPOCH, data, "the controller epoch", data.decode(errors="replace"))


# Brokers


class Endpoint(msgspec.Struct, frozen=True):
    """Where and how a broker can be reached."""

    listener_name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


class BrokerRegistration(msgspec.Struct, frozen=True):
    """``/brokers/ids/N``, ephemeral: the broker is alive. Its czxid is the broker epoch."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    directory_ids: tuple[str, ...] = ()
    """Of the log directories that the broker has locked (KIP-858). Not in Kafka's node: a broker that finds
    its own directories in an earlier entry knows that the process which wrote that is gone."""
    clean_start: bool = True
    """Not in Kafka's node either: false when the broker's last stop was not clean, so that its logs may have
    lost their ends (KIP-966)."""
    http: tuple[str, int] | None = None
    """Nor this: host and port of the broker's pages, which those of the other brokers link to."""
    features: Mapping[str, tuple[int, int]] = {}
    """The lowest and the highest level that the broker supports of each feature (KIP-584)."""
    is_of_0_2: bool = False
    """It is a minikafka 0.2.0's, which has directory ids and does not say whose it is."""
    is_kafka: bool = False
    """It is an Apache Kafka's, which has neither."""


class _SupportedJson(msgspec.Struct):
    min_version: int
    max_version: int


class _BrokerJson(msgspec.Struct):
    version: int
    jmx_port: int
    timestamp: str = "-1"
    host: str | None = None
    port: int = -1
    endpoints: list[str] = []
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    directory_ids: tuple[str, ...] = ()
    clean_start: bool = True
    http: tuple[str, int] | None = None
    features: dict[str, _SupportedJson] = {}
    software: str = ""


_SOFTWARE = "minikafka"


def encode_broker(registration: BrokerRegistration) -> bytes:
    """Version 5. ``host`` and ``port`` are for clients that know only one plaintext listener."""
    plaintext = next((e for e in registration.endpoints if e.security_protocol == "PLAINTEXT"), None)
    tree: dict[str, object] = {
        "version": 5,
        "host": plaintext.host if plaintext else None,
        "port": plaintext.port if plaintext else -1,
        "endpoints": [str(endpoint) for endpoint in registration.endpoints],
        "jmx_port": registration.jmx_port,
        "timestamp": str(registration.timestamp_ms),
        "listener_security_protocol_map": {
            endpoint.listener_name: endpoint.security_protocol for endpoint in registration.endpoints
        },
        "features": {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in registration.features.items()
        },
    }
    if not registration.is_of_0_2 and not registration.is_kafka:
        tree["software"] = _SOFTWARE
    if registration.rack is not None:
        tree["rack"] = registration.rack
    if registration.directory_ids:
        tree["directory_ids"] = registration.directory_ids
    if not registration.clean_start:
        tree["clean_start"] = False
    if registration.http is not None:
        tree["http"] = registration.http
    return _to_json(tree)


_CONNECTION_STRING = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
"""``listener://host:port``, with brackets around an IPv6 address; the host may be empty."""


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    """Versions 1 to 5."""
    path = broker_path(broker_id)
    raw = _from_json(path, data, _BrokerJson)
    endpoints: list[Endpoint] = []
    if raw.version < 1:
        raise DamagedNodeError(path, f"registration version {raw.version} is unknown", data)
    if raw.version == 1:
        endpoints.append(Endpoint("PLAINTEXT", raw.host or "", raw.port))
    for text in raw.endpoints:
        match = _CONNECTION_STRING.fullmatch(text)
        if match is None:
            raise DamagedNodeError(path, f"endpoint {text!r} is not listener://host:port", data)
        name, host, port = match.groups()
        # Before version 4 a listener was named after its security protocol.
        protocol = (
            raw.listener_security_protocol_map.get(name) if raw.listener_security_protocol_map else name
        )
        if protocol is None:
            raise DamagedNodeError(path, f"listener {name!r} has no security protocol", data)
        endpoints.append(Endpoint(name, host, int(port), protocol))
    timestamp_ms = _to_int(path, data, "timestamp", raw.timestamp)
    return BrokerRegistration(
        tuple(endpoints),
        timestamp_ms,
        raw.rack,
        raw.jmx_port,
        raw.directory_ids,
        raw.clean_start,
        raw.http,
        {name: (each.min_version, each.max_version) for name, each in raw.features.items()},
        is_of_0_2=raw.software != _SOFTWARE and bool(raw.directory_ids),
        is_kafka=raw.software != _SOFTWARE and not raw.directory_ids,
    )


# Features


class _FeaturesJson(msgspec.Struct):
    version: int
    status: int = 1
    features: dict[str, Any] = {}


def encode_features(levels: Mapping[str, int]) -> bytes:
    """``/feature``, version 2, enabled: the finalized level of each feature."""
    return _to_json({"version": 2, "status": 1, "features": dict(levels)})


def decode_features(data: bytes) -> dict[str, int]:
    """Version 1, which has ranges of levels, and 2."""
    raw = _from_json(FEATURE, data, _FeaturesJson)
    levels = {}
    for name, level in raw.features.items():
        if isinstance(level, dict):
            level = level.get("max_version_level")
        if not isinstance(level, int) or isinstance(level, bool) or not 0 <= level < 2**15:
            raise DamagedNodeError(FEATURE, f"the level of {name} is {level!r}", data)
        levels[name] = level
    return levels


# Topics


class TopicAssignment(msgspec.Struct, frozen=True):
    """``/brokers/topics/T``: the topic exists."""

    topic_id: UUID | None
    partitions: dict[int, ReplicaAssignment]


class _TopicJson(msgspec.Struct):
    partitions: dict[str, tuple[BrokerId, ...]]
    adding_replicas: dict[str, tuple[BrokerId, ...]] = {}
    removing_replicas: dict[str, tuple[BrokerId, ...]] = {}
    topic_id: str | None = None


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3."""
    partitions = sorted(assignment.partitions.items())
    tree: dict[str, object] = {
        "version": 3,
        "partitions": {str(number): replicas.replicas for number, replicas in partitions},
        "adding_replicas": {
            str(number): replicas.adding for number, replicas in partitions if replicas.adding
        },
        "removing_replicas": {
            str(number): replicas.removing for number, replicas in partitions if replicas.removing
        },
    }
    if assignment.topic_id is not None:
        tree["topic_id"] = uuid_to_text(assignment.topic_id)
    return _to_json(tree)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Versions 1 to 3. A node whose name no topic can have is damaged too: it would become a directory."""
    path = topic_path(topic)
    if not is_topic_name(topic):
        raise DamagedNodeError(path, "no topic can have this name", data)
    raw = _from_json(path, data, _TopicJson)
    partitions = {}
    for key, replicas in raw.partitions.items():
        number = _to_int(path, data, "a partition number", key)
        partitions[number] = ReplicaAssignment(
            replicas, raw.adding_replicas.get(key, ()), raw.removing_replicas.get(key, ())
        )
    try:
        topic_id = None if raw.topic_id is None else uuid_from_text(raw.topic_id)
    except ValueError as error:
        raise DamagedNodeError(path, f"topic_id: {error}", data) from error
    return TopicAssignment(topic_id, dict(sorted(partitions.items())))


class _PartitionStateJson(msgspec.Struct):
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[BrokerId, ...]
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_leader: int = NO_LEADER


def encode_partition_state(state: PartitionState) -> bytes:
    tree: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": state.isr,
    }
    if state.leader_recovering:
        tree["leader_recovery_state"] = 1
    if state.eligible:
        tree["eligible_leader_replicas"] = state.eligible
    if state.last_known_leader != NO_LEADER:
        tree["last_known_leader"] = state.last_known_leader
    return _to_json(tree)


def decode_partition_state(topic: str, partition: int, data: bytes) -> PartitionState:
    raw = _from_json(partition_state_path(topic, partition), data, _PartitionStateJson)
    return PartitionState(
        BrokerId(raw.leader),
        LeaderEpoch(raw.leader_epoch),
        raw.isr,
        raw.controller_epoch,
        raw.leader_recovery_state == 1,
        raw.eligible_leader_replicas,
        BrokerId(raw.last_known_leader),
    )


# Configuration


class _ConfigJson(msgspec.Struct):
    config: dict[str, str]


def encode_config(properties: Mapping[str, str]) -> bytes:
    return _to_json({"version": 1, "config": dict(sorted(properties.items()))})


def decode_config(data: bytes, path: str = CONFIGS) -> dict[str, str]:
    """An empty node has no properties. ``path`` is for the error."""
    return _from_json(path, data, _ConfigJson).config if data else {}


# ACLs (``AclEntry``, ``ZkAclStore``, ``ZkAclChangeStore``)


class _AclJson(msgspec.Struct):
    principal: str
    permissionType: str  # noqa: N815 Kafka's
    operation: str
    host: str


class _AclsJson(msgspec.Struct):
    version: int
    acls: list[_AclJson]


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    """The node of ``acl_path``. Sorted, so that equal ACLs are equal bytes."""
    acls = [
        {
            "principal": each.principal,
            "permissionType": camel_case(each.permission_type),
            "operation": camel_case(each.operation),
            "host": each.host,
        }
        for each in sorted(entries)
    ]
    return _to_json({"version": 1, "acls": acls})


def decode_acls(data: bytes, path: str) -> frozenset[AccessControlEntry]:
    """An empty node has none. As in Kafka an operation or a permission that is not known is UNKNOWN, which
    allows and denies nothing."""
    if not data:
        return frozenset()
    raw = _from_json(path, data, _AclsJson)
    if raw.version != 1:
        raise DamagedNodeError(path, f"ACLs of version {raw.version}", data)
    return frozenset(
        AccessControlEntry(
            each.principal,
            each.host,
            by_name(AclOperation, each.operation) or AclOperation.UNKNOWN,
            by_name(AclPermissionType, each.permissionType) or AclPermissionType.UNKNOWN,
        )
        for each in raw.acls
    )


class _AclChangeJson(msgspec.Struct):
    version: int
    resourceType: str  # noqa: N815 Kafka's
    name: str
    patternType: str  # noqa: N815 Kafka's


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """A node of ``acl_change_prefix``: plain text for a literal pattern, as before there were others."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return _to_json(
        {
            "version": 1,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_acl_change(data: bytes, path: str) -> ResourcePattern:
    """The pattern whose ACLs have changed."""
    if path.startswith(f"{ACL_CHANGES[PatternType.LITERAL]}/"):
        kind, separator, name = data.decode(errors="replace").partition(":")
        pattern_type: PatternType | None = PatternType.LITERAL if separator else None
    else:
        raw = _from_json(path, data, _AclChangeJson)
        kind, name, pattern_type = raw.resourceType, raw.name, by_name(PatternType, raw.patternType)
    resource_type = by_name(ResourceType, kind)
    if resource_type is None or pattern_type not in ACL_ROOTS or not name:
        raise DamagedNodeError(path, "it names no resource", data)
    assert pattern_type is not None
    return ResourcePattern(resource_type, name, pattern_type)


# Producer ids


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """Ids ``first`` to ``last``, both included, belong to the broker."""

    broker_id: BrokerId
    first: int
    last: int


class _ProducerIdBlockJson(msgspec.Struct):
    broker: int
    block_start: str
    block_end: str


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _to_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """An empty node, as Kafka creates it, is a block of no broker that ends before the first id."""
    if not data:
        return ProducerIdBlock(BrokerId(-1), 0, -1)
    raw = _from_json(PRODUCER_ID_BLOCK, data, _ProducerIdBlockJson)
    first = _to_int(PRODUCER_ID_BLOCK, data, "block_start", raw.block_start)
    last = _to_int(PRODUCER_ID_BLOCK, data, "block_end", raw.block_end)
    if not 0 <= first <= last:
        raise DamagedNodeError(PRODUCER_ID_BLOCK, f"a block from {first} to {last}", data)
    return ProducerIdBlock(BrokerId(raw.broker), first, last)


# Delegation tokens


class StoredToken(msgspec.Struct, frozen=True):
    """``/delegation_token/tokens/<id>``: principals are ``Type:name``, times milliseconds since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int


class _DelegationTokenJson(msgspec.Struct):
    version: int
    owner: str
    renewers: tuple[str, ...]
    issueTimestamp: int  # noqa: N815 Kafka's, as the next ones
    expiryTimestamp: int  # noqa: N815
    maxTimestamp: int  # noqa: N815
    tokenId: str  # noqa: N815
    tokenRequester: str | None = None  # noqa: N815


def encode_delegation_token(token: StoredToken) -> bytes:
    """Version 3 (``DelegationTokenManagerZk``)."""
    return _to_json(
        {
            "version": 3,
            "owner": sanitize(token.owner),
            "tokenRequester": sanitize(token.requester),
            "renewers": [sanitize(each) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode_delegation_token(token_id: str, data: bytes) -> StoredToken:
    """Versions 1 to 3; before version 3 the owner had asked for it."""
    path = delegation_token_path(token_id)
    raw = _from_json(path, data, _DelegationTokenJson)
    if not 1 <= raw.version <= 3 or raw.tokenId != token_id:
        raise DamagedNodeError(path, "no delegation token of a known version and of this id", data)
    return StoredToken(
        token_id,
        unquote(raw.owner),
        unquote(raw.owner if raw.tokenRequester is None else raw.tokenRequester),
        tuple(map(unquote, raw.renewers)),
        raw.issueTimestamp,
        raw.maxTimestamp,
        raw.expiryTimestamp,
    )


def decode_delegation_token_change(data: bytes, path: str = DELEGATION_TOKEN_CHANGES) -> str:
    """The id of the token that has changed."""
    return _utf8(path, data)


def _utf8(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedNodeError(path, "it is no UTF-8", data) from error


# What one broker, or an operator's tool, leaves in the tree for another broker to act upon. A notification
# is a sequential node under one of the prefixes; the controller or the brokers read and delete it.


class _ConfigChangeJson(msgspec.Struct):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


def encode_config_change(entity_path: str) -> bytes:
    """A node of ``CONFIG_CHANGE_PREFIX``; ``entity_path`` is what follows ``/config/``."""
    return _to_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes, path: str = CONFIG_CHANGES) -> str:
    """The path below ``/config``. Versions 1 and 2."""
    raw = _from_json(path, data, _ConfigChangeJson)
    if raw.version == 1 and raw.entity_type is not None and raw.entity_name is not None:
        return f"{raw.entity_type}/{raw.entity_name}"
    if raw.version != 2 or raw.entity_path is None:
        raise DamagedNodeError(path, f"no entity in a notification of version {raw.version}", data)
    return raw.entity_path


class _PartitionJson(msgspec.Struct):
    topic: str
    partition: int


class _PartitionsJson(msgspec.Struct):
    partitions: list[_PartitionJson]


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """For ``ISR_CHANGE_PREFIX`` and ``PREFERRED_REPLICA_ELECTION``."""
    return _to_json(
        {"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in sorted(set(partitions))]}
    )


def decode_partitions(data: bytes, path: str) -> list[TopicPartition]:
    raw = _from_json(path, data, _PartitionsJson)
    return sorted({TopicPartition(item.topic, item.partition) for item in raw.partitions})


class _LogDirEventJson(msgspec.Struct):
    broker: int


def encode_log_dir_event(broker_id: int) -> bytes:
    """A node of ``LOG_DIR_EVENT_PREFIX``: a log directory of the broker has failed."""
    return _to_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes, path: str = LOG_DIR_EVENT_NOTIFICATION) -> BrokerId:
    return BrokerId(_from_json(path, data, _LogDirEventJson).broker)


class _ReassignedPartitionJson(msgspec.Struct):
    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]


class _ReassignmentJson(msgspec.Struct):
    partitions: list[_ReassignedPartitionJson]


def encode_reassignment(replicas: Mapping[TopicPartition, Iterable[BrokerId]]) -> bytes:
    """``REASSIGN_PARTITIONS``, the way to ask for a reassignment before KIP-455."""
    return _to_json(
        {
            "version": 1,
            "partitions": [
                {"topic": t, "partition": p, "replicas": list(brokers)}
                for (t, p), brokers in sorted(replicas.items())
            ],
        }
    )


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    raw = _from_json(REASSIGN_PARTITIONS, data, _ReassignmentJson)
    return {TopicPartition(item.topic, item.partition): item.replicas for item in raw.partitions}
