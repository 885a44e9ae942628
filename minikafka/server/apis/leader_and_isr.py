"""LeaderAndIsr (key 4): the controller says which partitions this broker leads, and whom it follows in
others.

Behaviour (``KafkaApis.handleLeaderAndIsrRequest``, ``ReplicaManager.becomeLeaderOrFollower``): a controller
with an old epoch is STALE_CONTROLLER_EPOCH, a request to an earlier incarnation of this broker
STALE_BROKER_EPOCH; otherwise each partition answers for itself. Requests are carried out one after the other.
The configurations of topics that are new here are read first, because their logs are made from them.
"""

from __future__ import annotations

from minikafka.protocol.control.messages import LeaderAndIsrRequest, LeaderAndIsrResponse
from minikafka.server.apis.control import check_broker_epoch, check_peer, refused
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(
    services: Services, context: RequestContext | None, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
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
