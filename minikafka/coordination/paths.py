"""Kafka's places in the tree and what is written there, both ways.

Kafka: ``kafka.zk.ZkData`` (as of 3.9, the last with ZooKeeper), ``ProducerIdBlockZNode``, ``ConfigType``.
Field names and types are Kafka's: timestamps, producer ids and the cluster id's version are JSON strings,
everything else is what it looks like. So Kafka's and ZooKeeper's tools can read such a tree, and this module
reads theirs, older versions included; fields it does not know are skipped.

``encode_…`` returns the node's data. ``decode_…`` takes the data, and the path where it does not follow from
the kind of node, and raises ``DamagedNodeError``, which names the path and what is wrong with it. What
brokers leave in the tree to be acted upon is in ``notifications.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from minikafka.coordination.node_json import (
    BrokerJson,
    ClusterIdJson,
    ConfigJson,
    ControllerJson,
    PartitionStateJson,
    ProducerIdBlockJson,
    TopicJson,
    from_json,
    to_int,
    to_json,
)
from minikafka.coordination.node_json import (
    DamagedNodeError as DamagedNodeError,
)
from minikafka.coordination.node_json import (
    uuid_from_text as uuid_from_text,
)
from minikafka.coordination.node_json import (
    uuid_to_text as uuid_to_text,
)
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment, is_topic_name

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIGS = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"

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

# Paths


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


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


def sanitize(name: str) -> str:
    """Any name as that of a node, as Kafka's ``Sanitizer`` escapes it; "." and ".." would be no nodes."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")


def named_config(node: str) -> str:
    """The name that ``named_config_path`` has escaped."""
    return unquote(node)


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


# Cluster and controller


def encode_cluster_id(cluster_id: str) -> bytes:
    return to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return from_json(CLUSTER_ID, data, ClusterIdJson).id


class ControllerRegistration(msgspec.Struct, frozen=True):
    """``/controller``, ephemeral: who the controller is."""

    broker_id: BrokerId
    timestamp_ms: int
    kraft_controller_epoch: int = -1


def encode_controller(registration: ControllerRegistration) -> bytes:
    return to_json(
        {
            "version": 2,
            "brokerid": registration.broker_id,
            "timestamp": str(registration.timestamp_ms),
            "kraftControllerEpoch": registration.kraft_controller_epoch,
        }
    )


def decode_controller(data: bytes) -> ControllerRegistration:
    raw = from_json(CONTROLLER, data, ControllerJson)
    timestamp_ms = to_int(CONTROLLER, data, "timestamp", raw.timestamp)
    return ControllerRegistration(BrokerId(raw.brokerid), timestamp_ms, raw.kraftControllerEpoch)


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return to_int(CONTROLLER_EPOCH, data, "the controller epoch", data.decode(errors="replace"))


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
        "features": {},
    }
    if registration.rack is not None:
        tree["rack"] = registration.rack
    if registration.directory_ids:
        tree["directory_ids"] = registration.directory_ids
    if not registration.clean_start:
        tree["clean_start"] = False
    if registration.http is not None:
        tree["http"] = registration.http
    return to_json(tree)


_CONNECTION_STRING = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
"""``listener://host:port``, with brackets around an IPv6 address; the host may be empty."""


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    """Versions 1 to 5."""
    path = broker_path(broker_id)
    raw = from_json(path, data, BrokerJson)
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
    timestamp_ms = to_int(path, data, "timestamp", raw.timestamp)
    return BrokerRegistration(
        tuple(endpoints), timestamp_ms, raw.rack, raw.jmx_port, raw.directory_ids, raw.clean_start, raw.http
    )


# Topics


class TopicAssignment(msgspec.Struct, frozen=True):
    """``/brokers/topics/T``: the topic exists."""

    topic_id: UUID | None
    partitions: dict[int, ReplicaAssignment]


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
    return to_json(tree)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Versions 1 to 3. A node whose name no topic can have is damaged too: it would become a directory."""
    path = topic_path(topic)
    if not is_topic_name(topic):
        raise DamagedNodeError(path, "no topic can have this name", data)
    raw = from_json(path, data, TopicJson)
    partitions = {}
    for key, replicas in raw.partitions.items():
        number = to_int(path, data, "a partition number", key)
        partitions[number] = ReplicaAssignment(
            replicas, raw.adding_replicas.get(key, ()), raw.removing_replicas.get(key, ())
        )
    try:
        topic_id = None if raw.topic_id is None else uuid_from_text(raw.topic_id)
    except ValueError as error:
        raise DamagedNodeError(path, f"topic_id: {error}", data) from error
    return TopicAssignment(topic_id, dict(sorted(partitions.items())))


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
    return to_json(tree)


def decode_partition_state(topic: str, partition: int, data: bytes) -> PartitionState:
    raw = from_json(partition_state_path(topic, partition), data, PartitionStateJson)
    return PartitionState(
        BrokerId(raw.leader),
        LeaderEpoch(raw.leader_epoch),
        raw.isr,
        raw.controller_epoch,
        raw.leader_recovery_state == 1,
        raw.eligible_leader_replicas,
    )


# Configuration


def encode_config(properties: Mapping[str, str]) -> bytes:
    return to_json({"version": 1, "config": dict(sorted(properties.items()))})


def decode_config(data: bytes, path: str = CONFIGS) -> dict[str, str]:
    """An empty node has no properties. ``path`` is for the error."""
    return from_json(path, data, ConfigJson).config if data else {}


# Producer ids


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """Ids ``first`` to ``last``, both included, belong to the broker."""

    broker_id: BrokerId
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return to_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """An empty node, as Kafka creates it, is a block of nobody's that ends before the first id."""
    if not data:
        return ProducerIdBlock(BrokerId(-1), 0, -1)
    raw = from_json(PRODUCER_ID_BLOCK, data, ProducerIdBlockJson)
    first = to_int(PRODUCER_ID_BLOCK, data, "block_start", raw.block_start)
    last = to_int(PRODUCER_ID_BLOCK, data, "block_end", raw.block_end)
    if not 0 <= first <= last:
        raise DamagedNodeError(PRODUCER_ID_BLOCK, f"a block from {first} to {last}", data)
    return ProducerIdBlock(BrokerId(raw.broker), first, last)
