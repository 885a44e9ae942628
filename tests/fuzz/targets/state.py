"""What coordinators and the store keep: internal records, what consumers tell each other, nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from minikafka.coordination import paths
from minikafka.protocol.internal import group_record_codec, group_records, transaction_record_codec
from minikafka.protocol.internal.consumer_protocol import (
    MalformedSubscription,
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)
from minikafka.protocol.internal.group_record_codec import SCHEMAS, UnreadableRecord
from minikafka.protocol.internal.transaction_record_codec import UnreadableTransactionRecord
from tests.fuzz.target import Target

_I16: Final = struct.Struct(">h")


def _split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value: the first byte is the key's length, 255 none at all; no byte behind it is no value."""
    if not data or data[0] == 255:
        return None, data[1:]
    end = 1 + data[0]
    return data[1:end], data[end:] or None


def _joined(key: bytes, value: bytes | None) -> bytes:
    return bytes([len(key)]) + key + (value or b"")


def _group_record(data: bytes) -> object:
    """The fast reader of offset commits says what the schemas say."""
    key, value = _split(data)
    record = group_record_codec.decode_record(key, value)
    assert record == group_record_codec.decode_by_schema(key, value)
    return record


def _group_record_seeds() -> Iterator[bytes]:
    key = group_records.OffsetCommitKey("group", "topic", 3)
    for metadata in ("", "said by the client"):
        value = group_records.OffsetCommitValue(
            offset=7, leader_epoch=2, metadata=metadata, commit_timestamp_ms=1, topic_id=None
        )
        yield _joined(*group_record_codec.encode_record(group_records.GroupRecord(key, value)))
    for record_type in SCHEMAS:
        for version in range(5):
            yield _joined(_I16.pack(record_type) + b"\0\1g\0\1m" + bytes(8), _I16.pack(version) + bytes(60))


def _transaction_record(data: bytes) -> object:
    key, value = _split(data)
    return transaction_record_codec.decode_record(key, value)


def _transaction_record_seeds() -> Iterator[bytes]:
    for version in (0, 1):
        yield _joined(_I16.pack(0) + b"\0\1t", _I16.pack(version) + bytes(80))


def _subscription(data: bytes) -> object:
    """What is read for its topics alone, and what is read whole, agree."""
    subscription = read_subscription(data)
    assert list(subscription.topics) == read_subscribed_topics(data)
    return subscription


def _assignment(data: bytes) -> object:
    assignment = read_assignment(data)
    if assignment.partitions:
        again = read_assignment(write_assignment(assignment.partitions, version=0))
        assert again.partitions == assignment.partitions
    return assignment


def _subscription_seeds() -> Iterable[bytes]:
    topics = b"\0\0\0\1\0\5topic"
    owned = b"\0\0\0\1\0\5topic\0\0\0\2\0\0\0\0\0\0\0\1"
    return [
        b"\0\0" + topics + b"\xff\xff\xff\xff",
        b"\0\1" + topics + b"\0\0\0\1x" + owned,
        b"\0\3" + topics + b"\0\0\0\1x" + owned + b"\0\0\0\7\0\4rack",
    ]


# Nodes

_LITERAL_ACL_CHANGES = next(iter(paths.ACL_CHANGES.values()))
_NODES: Final[tuple[tuple[Callable[[bytes], object], dict[str, Any] | bytes], ...]] = (
    (paths.decode_cluster_id, {"version": "1", "id": "abc"}),
    (paths.decode_controller, {"version": 2, "brokerid": 1, "timestamp": "1", "kraftControllerEpoch": -1}),
    (paths.decode_controller_epoch, b"17"),
    (
        partial(paths.decode_broker, 1),
        {
            "version": 5,
            "endpoints": ["PLAINTEXT://host:9092", "SSL://[::1]:9093"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"},
            "host": "host",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "1",
            "rack": "a",
            "features": {},
        },
    ),
    (
        partial(paths.decode_topic, "t"),
        {
            "version": 3,
            "topic_id": "AAAAAAAAAAAAAAAAAAAABw",
            "partitions": {"0": [1, 2], "1": [2, 1]},
            "adding_replicas": {"0": [2]},
            "removing_replicas": {},
        },
    ),
    (
        partial(paths.decode_partition_state, "t", 0),
        {"version": 1, "controller_epoch": 1, "leader": 1, "leader_epoch": 3, "isr": [1, 2]},
    ),
    (paths.decode_config, {"version": 1, "config": {"retention.ms": "1"}}),
    (
        partial(paths.decode_acls, path="/kafka-acl/Topic/t"),
        {
            "version": 1,
            "acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}],
        },
    ),
    (partial(paths.decode_acl_change, path=f"{_LITERAL_ACL_CHANGES}/acl_changes_1"), b"Topic:t"),
    (
        partial(paths.decode_acl_change, path="/kafka-acl-extended-changes/acl_changes_1"),
        {"version": 1, "resourceType": "Topic", "name": "t", "patternType": "PREFIXED"},
    ),
    (
        paths.decode_producer_id_block,
        {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
    ),
    (
        partial(paths.decode_delegation_token, "id"),
        {
            "version": 3,
            "owner": "User:a",
            "renewers": ["User:b"],
            "issueTimestamp": "1",
            "maxTimestamp": "2",
            "expiryTimestamp": "2",
            "tokenId": "id",
        },
    ),
    (paths.decode_delegation_token_change, b"id"),
    (paths.decode_config_change, {"version": 2, "entity_path": "users/a/clients/b"}),
    (
        partial(paths.decode_partitions, path="/isr_change_notification/x"),
        {"version": 1, "partitions": [{"topic": "t", "partition": 0}]},
    ),
    (paths.decode_log_dir_event, {"version": 1, "broker": 1, "event": 1}),
    (
        paths.decode_reassignment,
        {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]},
    ),
    (lambda data: paths.quota_entity_at(data.decode(errors="replace")), b"users/%3A/clients/<default>"),
)


def _node(data: bytes) -> object:
    """The first byte says of which kind."""
    return _NODES[data[0] % len(_NODES)][0](data[1:]) if data else None


def _node_seeds() -> Iterator[bytes]:
    for place, (_, content) in enumerate(_NODES):
        yield bytes([place]) + (content if isinstance(content, bytes) else msgspec.json.encode(content))


TARGETS: Final = (
    Target("group-record", _group_record, (UnreadableRecord,), _group_record_seeds, 512),
    Target(
        "transaction-record",
        _transaction_record,
        (UnreadableTransactionRecord,),
        _transaction_record_seeds,
        512,
    ),
    Target("subscription", _subscription, (MalformedSubscription,), _subscription_seeds, 512),
    Target(
        "assignment",
        _assignment,
        (MalformedSubscription,),
        lambda: [b"\0\0" + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1" + b"\0\0\0\0"],
        512,
    ),
    Target("node", _node, (paths.DamagedNodeError,), _node_seeds, 1024),
)
