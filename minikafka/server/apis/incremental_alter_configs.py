"""IncrementalAlterConfigs (key 44): change single properties of resources (KIP-339).

Behaviour (``ConfigAdminManager``): SET, DELETE (back to the default), and for lists APPEND and SUBTRACT; one
result per resource, each with its own error, and nothing of a resource is written when one of its changes is
bad. A resource that appears twice is INVALID_REQUEST each time. It needs ALTER_CONFIGS on the topic, the
group, or for all else the cluster (TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED). ``validate_only`` checks
and writes nothing.

Versions: 1 flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.config.resource import Alteration, ConfigResource
from minikafka.protocol.wire.codec import Body
from minikafka.server.apis.shared.config_alterations import alter_each
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    async def alter(resource: ConfigResource, configs: Sequence[Any]) -> None:
        alterations = [Alteration(config.name, config.config_operation, config.value) for config in configs]
        await services.configs.alter_incrementally(resource, alterations, validate_only=request.validate_only)

    return await alter_each(services, context, request.resources, alter)
