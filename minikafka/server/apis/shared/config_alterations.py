"""What AlterConfigs and IncrementalAlterConfigs have in common, and what the properties of a resource must be
before anything else, for every principal.

Kafka: ``ConfigAdminManager.preprocess``, which has no bound. All properties of a resource are read, checked
and stored in one go, while no other request has a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any

from minikafka.config.resource import AlterOperation, ConfigResource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_config
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services

CONFIGS_MAX = 5_000
"""A topic has 33 properties, a broker 300; loggers are hundreds, and of unknown names there may be
some more."""


async def alter_each(
    services: Services,
    context: RequestContext,
    wanted: Sequence[Any],
    alter: Callable[[ConfigResource, Any], Awaitable[None]],
) -> Body:
    """The answer to a request that ``wanted`` resources be altered: each for itself, by ``alter``, if it is
    named once and the client may."""
    counts = Counter((each.resource_type, each.resource_name) for each in wanted)
    responses = []
    time_slice = TimeSlice()
    for each in wanted:
        await time_slice.give_way()
        resource = ConfigResource(each.resource_type, each.resource_name)
        outcome = NO_ERROR
        try:
            if counts[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_configs(each.configs)
            refusal = denied_config(services, context, AclOperation.ALTER_CONFIGS, resource)
            if refusal is not None:
                raise refusal
            await alter(resource, each.configs)
        except KafkaError as error:
            outcome = error_fields(error)
        responses.append(outcome | {"resource_type": each.resource_type, "resource_name": each.resource_name})
    return {"throttle_time": 0, "responses": responses}


def check_configs(configs: Sequence[Any]) -> None:
    """Of AlterConfigs or IncrementalAlterConfigs.

    Raises:
        KafkaError: INVALID_REQUEST for a property that is named twice or has no value, and for too many.
    """
    check_config_count(configs)
    if len({config.name for config in configs}) < len(configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [
        config.name
        for config in configs
        if config.value is None
        and field(config, "config_operation", AlterOperation.SET) != AlterOperation.DELETE
    ]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}"
        )


def check_config_count(configs: Sized) -> None:
    """Raises KafkaError: INVALID_REQUEST."""
    if len(configs) > CONFIGS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{len(configs)} configurations of one resource; {CONFIGS_MAX} are allowed.",
        )
