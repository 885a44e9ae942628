"""What brokers ask the share coordinator: InitializeShareGroupState, ReadShareGroupState,
WriteShareGroupState, DeleteShareGroupState, ReadShareGroupStateSummary (keys 83 to 87).

Behaviour (``KafkaApis.handleInitializeShareGroupStateRequest`` and its siblings, KIP-932): each partition is
answered for itself, when what it changes is safe: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST. They are between
brokers: without CLUSTER_ACTION all partitions are CLUSTER_AUTHORIZATION_FAILED. A request without a group id,
or without partitions, is answered with no results, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from minikafka.coordinator.share.messages import (
    InitializeShareState,
    ReadShareState,
    SharePartitionState,
    SharePartitionSummary,
    StateBatch,
    TopicIdPartition,
    WriteShareState,
)
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.coordinator.share_service import Operation
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps

Answer = Body | Coroutine[Any, Any, Body]


def handle_initialize_share_group_state(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """InitializeShareGroupState (key 83): the group coordinator begins the state of partitions."""
    return _handle(
        services,
        context,
        request,
        Operation.INITIALIZE,
        lambda topic_id, each: InitializeShareState(
            topic_id, each.partition, each.state_epoch, each.start_offset
        ),
    )


def handle_read_share_group_state(services: Services, context: RequestContext, request: Any) -> Steps[Answer]:
    """ReadShareGroupState (key 84): the leader of a partition reads what it begins with."""
    return _handle(services, context, request, Operation.READ, _read)


def handle_write_share_group_state(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """WriteShareGroupState (key 85): the leader of a partition keeps what was acknowledged.

    Versions: 1 delivery complete count (KIP-1226).
    """

    def write(topic_id: UUID, each: Any) -> WriteShareState:
        return WriteShareState(
            topic_id,
            each.partition,
            each.state_epoch,
            each.leader_epoch,
            each.start_offset,
            field(each, "delivery_complete_count", -1),
            tuple(StateBatch(*batch) for batch in each.state_batches),
        )

    return _handle(services, context, request, Operation.WRITE, write)


def handle_delete_share_group_state(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """DeleteShareGroupState (key 86): a group is deleted, or the offsets of a topic in it."""
    return _handle(
        services,
        context,
        request,
        Operation.DELETE,
        lambda topic_id, each: TopicIdPartition(topic_id, each.partition),
    )


def handle_read_share_group_state_summary(
    services: Services, context: RequestContext, request: Any
) -> Steps[Answer]:
    """ReadShareGroupStateSummary (key 87): the group coordinator reads where partitions are.

    Versions: 1 delivery complete count (KIP-1226).
    """
    return _handle(services, context, request, Operation.READ_SUMMARY, _read)


def _read(topic_id: UUID, each: Any) -> ReadShareState:
    return ReadShareState(topic_id, each.partition, each.leader_epoch)


def _handle(
    services: Services,
    context: RequestContext,
    request: Any,
    operation: Operation,
    read: Callable[[UUID, Any], Any],
) -> Steps[Answer]:
    asked = []
    for topic in request.topics:
        for partition in topic.partitions:
            asked.append(read(topic.topic_id, partition))
            yield
    if not request.group_id or not asked:
        return {"results": []}
    error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
    if error is not None:
        return (yield from _body(context, [operation.failed(each, error) for each in asked]))
    return _answer(services, context, operation, request.group_id, asked)


async def _answer(
    services: Services, context: RequestContext, operation: Operation, group_id: str, asked: list[Any]
) -> Body:
    answers = await services.shares.answer(operation, group_id, asked)
    return await services.scheduler.finished(_body(context, answers))


def _body(context: RequestContext, answers: list[Any]) -> Steps[Body]:
    by_topic: dict[UUID, list[dict[str, Any]]] = {}
    for each in answers:
        fields = {"partition": each.partition, **(error_fields(each.error) if each.error else NO_ERROR)}
        if isinstance(each, SharePartitionState):
            fields |= {
                "state_epoch": each.state_epoch,
                "start_offset": each.start_offset,
                "state_batches": [batch._asdict() for batch in each.batches],
            }
        elif isinstance(each, SharePartitionSummary):
            fields |= {
                "state_epoch": each.state_epoch,
                "leader_epoch": each.leader_epoch,
                "start_offset": each.start_offset,
            }
            if context.api_version >= 1:
                fields["delivery_complete_count"] = each.delivery_complete_count
        by_topic.setdefault(each.topic_id, []).append(fields)
        yield
    return {
        "results": [
            {"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()
        ]
    }
