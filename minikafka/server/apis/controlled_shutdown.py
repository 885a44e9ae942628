"""ControlledShutdown (key 7): a broker that is about to stop asks the controller to move its leaders.

Behaviour (``KafkaApis.handleControlledShutdownRequest``): NOT_CONTROLLER from any other broker,
STALE_BROKER_EPOCH for an earlier incarnation of the broker; else the partitions that it still leads.
"""

from __future__ import annotations

from minikafka.protocol.control.messages import ControlledShutdownRequest, ControlledShutdownResponse
from minikafka.server.apis.control import check_peer
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(
    services: Services, context: RequestContext | None, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    error_code = check_peer(services, context)
    if error_code:
        return ControlledShutdownResponse(error_code)
    return await services.controller.controlled_shutdown(request)
