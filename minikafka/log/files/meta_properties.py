"""``meta.properties``: which cluster and which broker a log directory belongs to.

Kafka's classes: ``MetaProperties``, ``MetaPropertiesEnsemble`` (KIP-631, KIP-858). Version 0 is what brokers
with ZooKeeper wrote (``broker.id``; any field may be missing), version 1 what Kafka 4.x writes (``node.id``,
``cluster.id``, and a ``directory.id`` of each directory's own). Both are read; new files get version 1.

Different from Kafka: the keys are sorted and there is no comment with a date, so equal content is equal
bytes.
"""

from __future__ import annotations

import os
from typing import NamedTuple
from uuid import UUID

from minikafka.config.properties import parse_properties
from minikafka.errors import ConfigError
from minikafka.files import Files
from minikafka.log.files.checkpoint import CorruptCheckpoint, decode_uuid, encode_uuid

META_PROPERTIES = "meta.properties"

_MAX_INT32 = (1 << 31) - 1


class MetaProperties(NamedTuple):
    """One directory's identity; None where the file does not say."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing that a file of this version has."""
        named = self.cluster_id is not None and self.node_id is not None
        return named and (self.version == 0 or self.directory_id is not None)


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """The bytes of the file, as Kafka's tools read them."""
    properties = {"version": str(meta.version)}
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    if meta.node_id is not None:
        properties["broker.id" if meta.version == 0 else "node.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        properties["directory.id"] = encode_uuid(meta.directory_id)
    return "".join(f"{name}={_escape(value)}\n" for name, value in sorted(properties.items())).encode()


def decode_meta_properties(data: bytes, *, path: str) -> MetaProperties:
    """The identity in a file's bytes; ``path`` is for the error.

    Raises:
        CorruptCheckpoint: no properties file, an unknown version, a number or id that is none, or version 1
            without ``cluster.id`` or ``node.id``.
    """
    try:
        properties = {name: value for name, value, _ in parse_properties(data, source=path)}
    except ConfigError as error:
        raise CorruptCheckpoint(str(error)) from None
    version = _number(properties.get("version", "0"), path, "version")
    if version not in (0, 1):
        raise CorruptCheckpoint(f"{path}: unknown version {version}")
    node_name = "broker.id" if version == 0 else "node.id"
    node_id = _number(properties[node_name], path, node_name) if node_name in properties else None
    directory_id = None
    if "directory.id" in properties:
        try:
            directory_id = decode_uuid(properties["directory.id"].strip())
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: directory.id: {error}") from None
    meta = MetaProperties(version, properties.get("cluster.id"), node_id, directory_id)
    if version == 1 and (meta.cluster_id is None or meta.node_id is None):
        missing = "cluster.id" if meta.cluster_id is None else "node.id"
        raise CorruptCheckpoint(f"{path}: {missing} is missing")
    return meta


def read_meta_properties(files: Files, log_directory: str) -> MetaProperties | None:
    """The identity of a log directory; None when it has none yet. Raises CorruptCheckpoint, OSError."""
    path = os.path.join(log_directory, META_PROPERTIES)
    return decode_meta_properties(files.read_bytes(path), path=path) if files.exists(path) else None


def write_meta_properties(files: Files, log_directory: str, meta: MetaProperties) -> None:
    """Durable on return."""
    files.write_atomically(os.path.join(log_directory, META_PROPERTIES), encode_meta_properties(meta))


def _number(text: str, path: str, name: str) -> int:
    stripped = text.strip()
    if not (
        stripped.isascii() and stripped.isdigit() and len(stripped) <= 10 and int(stripped) <= _MAX_INT32
    ):
        raise CorruptCheckpoint(f"{path}: {name} is not a number from 0 to {_MAX_INT32}: {text[:80]!r}")
    return int(stripped)


def _escape(value: str) -> str:
    # The only characters of a value that a properties file takes amiss.
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{escaped}" if escaped.startswith((" ", "\f")) else escaped
