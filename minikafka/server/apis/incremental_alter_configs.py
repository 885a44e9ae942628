"""IncrementalAlterConfigs (key 44): change single properties of resources (KIP-339).

Behaviour (``ConfigAdminManager``): SET, DELETE (back to the default), and for lists APPEND and SUBTRACT; one
result per resource, each with its own error, and nothing of a resource is written when one of its changes is
bad. A resource that appears twice is INVALID_REQUEST each time. It needs ALTER_CONFIGS on the topic, the
group, or for all else the cluster (TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED). ``validate_only`` checks
and writes nothing.

Versions: 1 flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikafka.config.resource import Alteration, ConfigResource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_config
from minikafka.server.apis.shared.config_checks import check_configs
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    counts = Counter((wanted.resource_type, wanted.resource_name) for wanted in request.resources)
    responses = []
    time_slice = TimeSlice()
    for wanted in request.resources:
        await time_slice.give_way()
        resource = ConfigResource(wanted.resource_type, wanted.resource_name)
        outcome = NO_ERROR
        try:
            if counts[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_configs(wanted.configs)
            refusal = denied_config(services, context, AclOperation.ALTER_CONFIGS, resource)
            if refusal is not None:
                raise refusal
            alterations = [
                Alteration(config.name, config.config_operation, config.value) for config in wanted.configs
            ]
            await services.configs.alter_incrementally(
                resource, alterations, validate_only=request.validate_only
            )
        except KafkaError as error:
            outcome = error_fields(error)
        responses.append(
            outcome | {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
        )
    return {"throttle_time": 0, "responses": responses}
