"""AlterConfigs (key 33): replace all that is set for a resource. The incremental API is the better one.

Behaviour (``ConfigAdminManager``): what the request does not name returns to its default; one result per
resource, each with its own error; a resource that appears twice is INVALID_REQUEST each time. It needs
ALTER_CONFIGS on the topic, the group, or for all else the cluster (TOPIC_, GROUP_,
CLUSTER_AUTHORIZATION_FAILED). ``validate_only`` checks and writes nothing. Loggers can only be altered
incrementally, as in Kafka.

Versions: 2 flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.config.resource import ConfigResource
from minikafka.protocol.wire.codec import Body
from minikafka.server.apis.shared.config_alterations import alter_each
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    async def alter(resource: ConfigResource, configs: Sequence[Any]) -> None:
        properties = {config.name: config.value for config in configs}
        await services.configs.alter(resource, properties, validate_only=request.validate_only)

    return await alter_each(services, context, request.resources, alter)
