"""UpdateMetadata (key 6): the controller tells who lives and who leads.

Behaviour (``KafkaApis.handleUpdateMetadataRequest``, ``ReplicaManager.maybeUpdateMetadataCache``): as
LeaderAndIsr for epochs. A leader whose replica was moved away resigns
(``ReplicaManager.resign_moved_leaders``). What was set for topics that are gone is forgotten with them, and
so are the offsets that groups have committed for them.
"""

from __future__ import annotations

from minikafka.protocol.control.messages import UpdateMetadataRequest, UpdateMetadataResponse
from minikafka.server.apis.control import check_broker_epoch, check_peer, refused
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(
    services: Services, context: RequestContext | None, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
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
            for topic in gone:
                if services.metadata.topic(topic) is None:  # else another of the same name is there already
                    services.configs.topic_gone(topic)
            if gone:
                services.groups.topics_deleted(gone)
        return UpdateMetadataResponse(refusal.error_code)
