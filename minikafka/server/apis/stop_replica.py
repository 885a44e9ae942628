"""StopReplica (key 5): the controller takes partitions from this broker, or deletes them.

Behaviour (``KafkaApis.handleStopReplicaRequest``, ``ReplicaManager.stopReplicas``): as LeaderAndIsr for
epochs; each partition answers for itself.
"""

from __future__ import annotations

from minikafka.protocol.control.messages import StopReplicaRequest, StopReplicaResponse
from minikafka.server.apis.control import check_broker_epoch, check_peer, refused
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(
    services: Services, context: RequestContext | None, request: StopReplicaRequest
) -> StopReplicaResponse:
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
