"""What one broker, or an operator's tool, leaves in the tree for another broker to act upon. JSON, both ways.

Kafka: the notification and admin nodes of ``kafka.zk.ZkData``, ``DynamicConfigManager``, ``ZkAdminManager``.
A notification is a sequential node under one of ``paths``' prefixes; the controller or the brokers read and
delete it. Field names and types are Kafka's. Decoding raises ``DamagedNodeError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.coordination.node_json import (
    ConfigChangeJson,
    DamagedNodeError,
    LogDirEventJson,
    PartitionsJson,
    ReassignmentJson,
    from_json,
    to_json,
)
from minikafka.coordination.paths import CONFIG_CHANGES, LOG_DIR_EVENT_NOTIFICATION, REASSIGN_PARTITIONS
from minikafka.types import BrokerId, TopicPartition


def encode_config_change(entity_path: str) -> bytes:
    """A node of ``CONFIG_CHANGE_PREFIX``; ``entity_path`` is what follows ``/config/``."""
    return to_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes, path: str = CONFIG_CHANGES) -> str:
    """The path below ``/config``. Versions 1 and 2."""
    raw = from_json(path, data, ConfigChangeJson)
    if raw.version == 1 and raw.entity_type is not None and raw.entity_name is not None:
        return f"{raw.entity_type}/{raw.entity_name}"
    if raw.version != 2 or raw.entity_path is None:
        raise DamagedNodeError(path, f"no entity in a notification of version {raw.version}", data)
    return raw.entity_path


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """For ``ISR_CHANGE_PREFIX`` and ``PREFERRED_REPLICA_ELECTION``."""
    return to_json(
        {"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in sorted(set(partitions))]}
    )


def decode_partitions(data: bytes, path: str) -> list[TopicPartition]:
    raw = from_json(path, data, PartitionsJson)
    return sorted({TopicPartition(item.topic, item.partition) for item in raw.partitions})


def encode_log_dir_event(broker_id: int) -> bytes:
    """A node of ``LOG_DIR_EVENT_PREFIX``: a log directory of the broker has failed."""
    return to_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes, path: str = LOG_DIR_EVENT_NOTIFICATION) -> BrokerId:
    return BrokerId(from_json(path, data, LogDirEventJson).broker)


def encode_reassignment(replicas: Mapping[TopicPartition, Iterable[BrokerId]]) -> bytes:
    """``REASSIGN_PARTITIONS``, the way to ask for a reassignment before KIP-455."""
    return to_json(
        {
            "version": 1,
            "partitions": [
                {"topic": t, "partition": p, "replicas": list(brokers)}
                for (t, p), brokers in sorted(replicas.items())
            ],
        }
    )


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    raw = from_json(REASSIGN_PARTITIONS, data, ReassignmentJson)
    return {TopicPartition(item.topic, item.partition): item.replicas for item in raw.partitions}
