"""What a controller asks of brokers, and a broker of the controller (keys 4 to 7, 56 and 67).

Whom a controller's request is meant for, and what refuses it, is the same for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec

from minikafka.coordination import paths
from minikafka.coordination.store import StoreError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.controller.alter_partition import NO_MIN_ISR, CurrentState, Outcome, ProposedIsr
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, NO_LEADER, TopicPartition

logger = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH = -1
"""``AbstractControlRequest.UNKNOWN_BROKER_EPOCH``: of a controller that knows of no epochs."""


def check_peer(services: Services, context: RequestContext | None) -> int:
    """CLUSTER_AUTHORIZATION_FAILED for who is no broker, that is, has not CLUSTER_ACTION, else 0 (KafkaApis
    of 3.9: ``authorizeClusterOperation``). ``context`` None: this broker's own controller."""
    if context is None:
        return ErrorCode.NONE
    error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
    return ErrorCode.NONE if error is None else error.code


def check_broker_epoch(services: Services, broker_epoch: int, api: str, controller_id: int) -> int:
    """STALE_BROKER_EPOCH for a request to an earlier incarnation of this broker, else 0.

    A larger epoch is fine: the controller has seen a registration whose epoch this broker has not heard of
    yet (``KafkaApis.isBrokerEpochStale``).
    """
    if broker_epoch >= services.broker_epoch or broker_epoch == UNKNOWN_BROKER_EPOCH:
        return ErrorCode.NONE
    logger.info(
        "%s of controller %d is for broker epoch %d, this is %d",
        api,
        controller_id,
        broker_epoch,
        services.broker_epoch,
    )
    return ErrorCode.STALE_BROKER_EPOCH


class Refusal(msgspec.Struct):
    """Filled in by ``refused``."""

    error_code: int = 0


@contextmanager
def refused(api: str) -> Iterator[Refusal]:
    """An error of the whole request within becomes an error code, and is logged."""
    refusal = Refusal()
    try:
        yield refusal
    except KafkaError as error:
        logger.warning("%s refused: %s: %s", api, error.code.name, error.message)
        refusal.error_code = error.code
    except StoreError as error:
        logger.warning("%s failed: the coordination store: %s", api, error)
        refusal.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def handle_leader_and_isr(
    services: Services, context: RequestContext | None, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """LeaderAndIsr (key 4): the controller says which partitions this broker leads, and whom it follows in
    others.

    Behaviour (``KafkaApis.handleLeaderAndIsrRequest``, ``ReplicaManager.becomeLeaderOrFollower``): a
    controller with an old epoch is STALE_CONTROLLER_EPOCH, a request to an earlier incarnation of this broker
    STALE_BROKER_EPOCH; otherwise each partition answers for itself. Requests are carried out one after the
    other. The configurations of topics that are new here are read first, because their logs are made from
    them.
    """
    error_code = check_peer(services, context)
    if error_code:
        return LeaderAndIsrResponse(error_code)
    async with services.replica_manager.state_changes:
        error_code = check_broker_epoch(services, request.broker_epoch, "LeaderAndIsr", request.controller_id)
        if error_code:
            return LeaderAndIsrResponse(error_code)
        with refused("LeaderAndIsr") as refusal:
            await services.configs.load_topics({each.topic: each.topic_id for each in request.partitions})
            response = await services.replica_manager.become_leader_or_follower(request)
            if not response.error_code:
                services.metadata_received.set()
            return response
        return LeaderAndIsrResponse(refusal.error_code)


async def handle_stop_replica(
    services: Services, context: RequestContext | None, request: StopReplicaRequest
) -> StopReplicaResponse:
    """StopReplica (key 5): the controller takes partitions from this broker, or deletes them.

    Behaviour (``KafkaApis.handleStopReplicaRequest``, ``ReplicaManager.stopReplicas``): as LeaderAndIsr for
    epochs; each partition answers for itself.
    """
    error_code = check_peer(services, context)
    if error_code:
        return StopReplicaResponse(error_code)
    async with services.replica_manager.state_changes:
        error_code = check_broker_epoch(services, request.broker_epoch, "StopReplica", request.controller_id)
        if error_code:
            return StopReplicaResponse(error_code)
        with refused("StopReplica") as refusal:
            return await services.replica_manager.stop_replicas(request)
        return StopReplicaResponse(refusal.error_code)


async def handle_update_metadata(
    services: Services, context: RequestContext | None, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """UpdateMetadata (key 6): the controller tells who lives and who leads.

    Behaviour (``KafkaApis.handleUpdateMetadataRequest``, ``ReplicaManager.maybeUpdateMetadataCache``): as
    LeaderAndIsr for epochs. A leader whose replica was moved away resigns
    (``ReplicaManager.resign_moved_leaders``). What was set for topics that are gone is forgotten with them,
    and so are the offsets that groups have committed for them.
    """
    error_code = check_peer(services, context)
    if error_code:
        return UpdateMetadataResponse(error_code)
    async with services.replica_manager.state_changes:
        error_code = check_broker_epoch(
            services, request.broker_epoch, "UpdateMetadata", request.controller_id
        )
        if error_code:
            return UpdateMetadataResponse(error_code)
        with refused("UpdateMetadata") as refusal:
            services.replica_manager.accept_controller_epoch(request.controller_epoch)
            await services.configs.load_topics({each.topic: each.topic_id for each in request.partitions})
            gone = services.metadata.update(request)
            services.replica_manager.resign_moved_leaders(request.partitions)
            is_waiting = not services.metadata_received.is_set()
            if is_waiting and not services.metadata.has_replica_on(services.node_id):
                services.metadata_received.set()  # Apache Kafka's controller says no more to such a broker
            for topic in gone:
                if services.metadata.topic(topic) is None:  # else another of the same name is there already
                    services.configs.topic_gone(topic)
            if gone:
                services.groups.topics_deleted(gone)
                ids = dict.fromkeys(each.topic_id for each in request.partitions if each.topic in gone)
                services.shares.topics_deleted(
                    [each for each in ids if services.metadata.topic_by_id(each) is None]
                )
        return UpdateMetadataResponse(refusal.error_code)


async def handle_controlled_shutdown(
    services: Services, context: RequestContext | None, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """ControlledShutdown (key 7): a broker that is about to stop asks the controller to move its leaders.

    Behaviour (``KafkaApis.handleControlledShutdownRequest``): NOT_CONTROLLER from any other broker,
    STALE_BROKER_EPOCH for an earlier incarnation of the broker; else the partitions that it still leads.
    """
    error_code = check_peer(services, context)
    if error_code:
        return ControlledShutdownResponse(error_code)
    return await services.controller.controlled_shutdown(request)


async def handle_alter_partition(services: Services, context: RequestContext, request: Any) -> Body:
    """AlterPartition (key 56): a leader asks the controller for other ISRs.

    Behaviour (``KafkaController.alterPartitions``, KIP-497, KIP-841, KIP-903): NOT_CONTROLLER from any other
    broker, STALE_BROKER_EPOCH for an earlier incarnation of the leader; else each partition has the state
    that is in the store now, or its error. Versions 2 and 3: before, topics have no ids.
    """
    error_code = await _refuse_broker(services, context, request.broker_id, request.broker_epoch)
    if error_code:
        return {"throttle_time": 0, "error_code": error_code, "topics": []}
    places: list[tuple[UUID, int]] = []
    proposed: list[ProposedIsr] = []
    for topic in request.topics:
        known = services.metadata.topic_by_id(topic.topic_id)
        for each in topic.partitions:
            members = field(each, "new_isr_with_epochs", ())
            places.append((topic.topic_id, each.partition_index))
            if known is not None:
                proposed.append(
                    ProposedIsr(
                        TopicPartition(known.name, each.partition_index),
                        each.leader_epoch,
                        each.partition_epoch,
                        tuple(member.broker_id for member in members) or tuple(field(each, "new_isr", ())),
                        each.leader_recovery_state == 1,
                        tuple(member.broker_epoch for member in members),
                        field(each, "min_isr", NO_MIN_ISR),
                    )
                )
    with refused("AlterPartition") as refusal:
        outcomes = await services.controller.alter_partitions(request.broker_id, proposed)
        found = {each.topic_partition: outcome for each, outcome in zip(proposed, outcomes, strict=True)}
        return {"throttle_time": 0, "error_code": ErrorCode.NONE, "topics": _altered(services, places, found)}
    return {"throttle_time": 0, "error_code": refusal.error_code, "topics": []}


def _altered(
    services: Services, places: Sequence[tuple[UUID, int]], found: Mapping[TopicPartition, Outcome]
) -> list[dict[str, Any]]:
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for topic_id, partition in places:
        known = services.metadata.topic_by_id(topic_id)
        outcome = None if known is None else found.get(TopicPartition(known.name, partition))
        answer: dict[str, Any] = {
            "partition_index": partition,
            "error_code": ErrorCode.NONE,
            "leader_id": NO_LEADER,
            "leader_epoch": NO_EPOCH,
            "isr": (),
            "partition_epoch": -1,
        }
        match outcome:
            case CurrentState(state, partition_epoch):
                answer |= {
                    "leader_id": state.leader,
                    "leader_epoch": state.leader_epoch,
                    "isr": state.isr,
                    "leader_recovery_state": int(state.leader_recovering),
                    "partition_epoch": partition_epoch,
                    "eligible_leader_replicas": state.eligible,
                }
            case None:
                answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_ID
            case _:
                answer["error_code"] = outcome
        topics.setdefault(topic_id, []).append(answer)
    return [{"topic_id": topic_id, "partitions": answers} for topic_id, answers in topics.items()]


async def handle_allocate_producer_ids(services: Services, context: RequestContext, request: Any) -> Body:
    """AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids.

    Behaviour (``KafkaController.allocateProducerIds``, KIP-730): errors as of AlterPartition.
    """
    error_code = await _refuse_broker(
        services,
        context,
        request.broker_id,
        request.broker_epoch,
        unregistered=ErrorCode.BROKER_ID_NOT_REGISTERED,
    )
    first, end = 0, 0
    if not error_code:
        with refused("AllocateProducerIds") as refusal:
            first, end = await services.producer_ids.claim(request.broker_id)
        error_code = refusal.error_code
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "producer_id_start": first,
        "producer_id_len": end - first,
    }


async def _refuse_broker(
    services: Services,
    context: RequestContext,
    node_id: int,
    epoch: int,
    *,
    unregistered: ErrorCode = ErrorCode.STALE_BROKER_EPOCH,
) -> int:
    """Why a broker that asks the controller gets nothing; 0: it does."""
    error_code = check_peer(services, context)
    if error_code:
        return error_code
    if not services.controller.is_controller:
        return ErrorCode.NOT_CONTROLLER
    with refused("a request to the controller") as refusal:
        stat = await services.store.exists(paths.broker_path(node_id))
        if stat is None:
            return unregistered
        return ErrorCode.NONE if stat.czxid == epoch else ErrorCode.STALE_BROKER_EPOCH
    return refusal.error_code
