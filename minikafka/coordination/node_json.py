"""The JSON of Kafka's nodes as it is, and what is wrong with it when it is not. For ``paths.py`` only.

The structs' names and types are those of the JSON, of all versions together; defaults stand for fields that
older versions lack, and fields that are not here are skipped.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from minikafka.coordination.store import StoreError
from minikafka.errors import UNDECODABLE
from minikafka.types import BrokerId

T = TypeVar("T")


class DamagedNodeError(StoreError):
    """A node's data is not what Kafka writes there."""

    def __init__(self, path: str, reason: str, data: bytes) -> None:
        excerpt = data if len(data) <= 200 else data[:200] + b"..."
        super().__init__(f"{path}: {reason}; the node holds {excerpt!r}")
        self.path = path
        self.reason = reason


class ClusterIdJson(msgspec.Struct):
    id: str


class ControllerJson(msgspec.Struct):
    brokerid: int
    timestamp: str
    kraftControllerEpoch: int = -1  # noqa: N815 Kafka's


class BrokerJson(msgspec.Struct):
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


class TopicJson(msgspec.Struct):
    partitions: dict[str, tuple[BrokerId, ...]]
    adding_replicas: dict[str, tuple[BrokerId, ...]] = {}
    removing_replicas: dict[str, tuple[BrokerId, ...]] = {}
    topic_id: str | None = None


class PartitionStateJson(msgspec.Struct):
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[BrokerId, ...]
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[BrokerId, ...] = ()


class ConfigJson(msgspec.Struct):
    config: dict[str, str]


class ConfigChangeJson(msgspec.Struct):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


class PartitionJson(msgspec.Struct):
    topic: str
    partition: int


class PartitionsJson(msgspec.Struct):
    partitions: list[PartitionJson]


class ReassignedPartitionJson(msgspec.Struct):
    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]


class ReassignmentJson(msgspec.Struct):
    partitions: list[ReassignedPartitionJson]


class LogDirEventJson(msgspec.Struct):
    broker: int


class ProducerIdBlockJson(msgspec.Struct):
    broker: int
    block_start: str
    block_end: str


def to_json(tree: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(tree)


def from_json(path: str, data: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type)
    except UNDECODABLE as error:
        raise DamagedNodeError(path, str(error), data) from error


def to_int(path: str, data: bytes, what: str, text: str) -> int:
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
