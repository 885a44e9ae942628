"""Which heartbeats of KIP-848 make sense by themselves.

Kafka: ``GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid``.
"""

from __future__ import annotations

from minikafka.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeat
from minikafka.errors import ErrorCode, KafkaError

MEMBER_ID_VERSION = 1
"""ConsumerGroupHeartbeat since this version: the client makes its member id."""


def check_request(request: ConsumerGroupHeartbeat, assignors: tuple[str, ...]) -> None:
    """Raises KafkaError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if request.version >= MEMBER_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_not_blank(request.member_id, "MemberId")
    _check_not_blank(request.group_id, "GroupId")
    _check_not_blank(request.instance_id, "InstanceId")
    _check_not_blank(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        reason = "RebalanceTimeoutMs must be provided in first request."
    elif request.topic_partitions is None or request.topic_partitions:
        reason = "TopicPartitions must be empty when (re-)joining."
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        reason = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _check_not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
