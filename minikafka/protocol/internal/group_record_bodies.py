"""Typed records as the bodies that ``group_record_schemas`` reads and writes, and back.

Kafka: ``GroupCoordinatorRecordHelpers`` of 4.1, which decides on the version that is written:
OffsetCommitValue 4, or 1 where the client has set an expire timestamp (version 1 alone has one, so the topic
id is lost, as in Kafka); GroupMetadataValue 3; and 0 of the others. A topic's partitions are written in
ascending order, so that equal records are equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from minikafka.protocol.internal import group_records as records
from minikafka.protocol.internal.group_records import (
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
    Value,
)
from minikafka.protocol.wire.writing import Body

NO_TIMESTAMP: Final = -1
"""Where there is none (``OffsetCommitRequest.DEFAULT_TIMESTAMP``)."""

OFFSET_COMMIT: Final = 1
"""The type of a committed offset's record."""

_ZERO_UUID = UUID(int=0)


class Kind(NamedTuple):
    """How a type's structs become bodies and back. Keys have the fields of their schema, in its order."""

    record_type: int
    key: type[Key]
    version: Callable[[Any], int]
    """Of the value, when it is written."""
    body: Callable[[Any], Body]
    value: Callable[[Any], Value]
    """From the named tuple that a reader gives, of any version."""


def _offset_commit_version(value: OffsetCommitValue) -> int:
    return 4 if value.expire_timestamp_ms is None else 1


def _offset_commit_body(value: OffsetCommitValue) -> Body:
    body: dict[str, Any] = {
        "offset": value.offset,
        "metadata": value.metadata,
        "commit_timestamp": value.commit_timestamp_ms,
    }
    if value.expire_timestamp_ms is not None:
        return body | {"expire_timestamp": value.expire_timestamp_ms}
    return body | {"leader_epoch": value.leader_epoch, "topic_id": value.topic_id}


def _offset_commit(body: Any) -> OffsetCommitValue:
    expire_timestamp_ms = getattr(body, "expire_timestamp", NO_TIMESTAMP)
    return OffsetCommitValue(
        offset=body.offset,
        leader_epoch=getattr(body, "leader_epoch", -1),
        metadata=body.metadata,
        commit_timestamp_ms=body.commit_timestamp,
        expire_timestamp_ms=None if expire_timestamp_ms == NO_TIMESTAMP else expire_timestamp_ms,
        topic_id=getattr(body, "topic_id", None),
    )


def _group_metadata_body(value: records.GroupMetadataValue) -> Body:
    return {
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "current_state_timestamp": value.current_state_timestamp_ms,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in value.members
        ],
    }


def _group_metadata(body: Any) -> records.GroupMetadataValue:
    return records.GroupMetadataValue(
        protocol_type=body.protocol_type,
        generation=body.generation,
        protocol=body.protocol,
        leader=body.leader,
        current_state_timestamp_ms=getattr(body, "current_state_timestamp", NO_TIMESTAMP),
        members=tuple(map(_member_metadata, body.members)),
    )


def _member_metadata(body: Any) -> records.MemberMetadata:
    rebalance_timeout_ms = getattr(body, "rebalance_timeout", -1)
    return records.MemberMetadata(
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        client_id=body.client_id,
        client_host=body.client_host,
        # Version 0 had none: Kafka takes the session's, as it did when that version was written.
        rebalance_timeout_ms=body.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=body.session_timeout,
        subscription=body.subscription,
        assignment=body.assignment,
    )


def _member_body(value: records.ConsumerGroupMemberMetadataValue) -> Body:
    body = msgspec.structs.asdict(value)
    classic = value.classic_member_metadata
    if classic is not None:
        body["classic_member_metadata"] = {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [
                {"name": protocol.name, "metadata": protocol.metadata}
                for protocol in classic.supported_protocols
            ],
        }
    return body


def _member(body: Any) -> records.ConsumerGroupMemberMetadataValue:
    fields = body._asdict()
    classic = body.classic_member_metadata
    if classic is not None:
        fields["classic_member_metadata"] = records.ClassicMemberMetadata(
            classic.session_timeout_ms,
            tuple(records.ClassicProtocol(*protocol) for protocol in classic.supported_protocols),
        )
    return records.ConsumerGroupMemberMetadataValue(**fields)


def _topics_body(topic_partitions: TopicPartitions) -> list[Body]:
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions)}
        for topic_id, partitions in topic_partitions.items()
    ]


def _topics(body: Iterable[Any]) -> TopicPartitions:
    return {each.topic_id or _ZERO_UUID: frozenset(each.partitions) for each in body if each.partitions}


def _current_assignment_body(value: records.ConsumerGroupCurrentMemberAssignmentValue) -> Body:
    return {
        "member_epoch": value.member_epoch,
        "previous_member_epoch": value.previous_member_epoch,
        "state": value.state,
        "assigned_partitions": _topics_body(value.assigned_partitions),
        "partitions_pending_revocation": _topics_body(value.partitions_pending_revocation),
    }


def _current_assignment(body: Any) -> records.ConsumerGroupCurrentMemberAssignmentValue:
    return records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=body.member_epoch,
        previous_member_epoch=body.previous_member_epoch,
        state=body.state,
        assigned_partitions=_topics(body.assigned_partitions),
        partitions_pending_revocation=_topics(body.partitions_pending_revocation),
    )


def _zero(value: Value) -> int:
    return 0


KINDS: Final = (
    Kind(OFFSET_COMMIT, OffsetCommitKey, _offset_commit_version, _offset_commit_body, _offset_commit),
    Kind(2, records.GroupMetadataKey, lambda value: 3, _group_metadata_body, _group_metadata),
    Kind(
        3,
        records.ConsumerGroupMetadataKey,
        _zero,
        msgspec.structs.asdict,
        lambda body: records.ConsumerGroupMetadataValue(**body._asdict()),
    ),
    Kind(
        4,
        records.ConsumerGroupPartitionMetadataKey,
        _zero,
        lambda value: {"topics": ()},
        lambda body: records.ConsumerGroupPartitionMetadataValue(),
    ),
    Kind(5, records.ConsumerGroupMemberMetadataKey, _zero, _member_body, _member),
    Kind(
        6,
        records.ConsumerGroupTargetAssignmentMetadataKey,
        _zero,
        msgspec.structs.asdict,
        lambda body: records.ConsumerGroupTargetAssignmentMetadataValue(body.assignment_epoch),
    ),
    Kind(
        7,
        records.ConsumerGroupTargetAssignmentMemberKey,
        _zero,
        lambda value: {"topic_partitions": _topics_body(value.topic_partitions)},
        lambda body: records.ConsumerGroupTargetAssignmentMemberValue(_topics(body.topic_partitions)),
    ),
    Kind(
        8,
        records.ConsumerGroupCurrentMemberAssignmentKey,
        _zero,
        _current_assignment_body,
        _current_assignment,
    ),
    Kind(
        16,
        records.ConsumerGroupRegularExpressionKey,
        _zero,
        lambda value: {"topics": value.topics, "version": value.version, "timestamp": value.timestamp_ms},
        lambda body: records.ConsumerGroupRegularExpressionValue(
            topics=body.topics, version=body.version, timestamp_ms=body.timestamp
        ),
    ),
)
KIND_OF_KEY: Final = {kind.key: kind for kind in KINDS}
KIND_OF_TYPE: Final = {kind.record_type: kind for kind in KINDS} | {0: KINDS[0]}
