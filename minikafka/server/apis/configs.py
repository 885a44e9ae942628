"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources (keys 32, 33, 44, 74).

Kafka: ``ConfigHelper``, and ``ConfigAdminManager.preprocess``, which has no bound. What the properties of a
resource must be before anything else is the same for both Alter requests and for every principal: all of them
are read, checked and stored in one go, while no other request has a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any

from minikafka.config.resolution import ConfigEntry
from minikafka.config.resource import (
    DIAGNOSTICS,
    Alteration,
    AlterOperation,
    ConfigResource,
    ConfigResourceType,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis import diagnostics
from minikafka.server.apis.shared.authorization import denied_config, denied_on_cluster
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.steps import Steps

CONFIGS_MAX = 5_000
"""A topic has 33 properties, a broker 300; loggers are hundreds, and of unknown names there may be
some more."""

LISTED_TYPES = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


def handle_describe_configs(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """DescribeConfigs (key 32): the properties of whatever can be configured, and where their values come
    from.

    Behaviour (``ConfigHelper.describeConfigs``, KIP-133, KIP-226): one result per resource, each with its own
    error: TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED without DESCRIBE_CONFIGS on the topic, the group, or
    for all else the cluster. The broker with an empty name stands for what is set for all brokers; groups and
    client metrics subscriptions need not exist. With a list of keys (not an empty one) only those properties;
    unknown keys are passed over. Values of sensitive properties are null. A resource that is named again is
    answered once, unlike Kafka's: 12 KB of a broker's properties, for each six bytes.

    Minikafka's own: the resource type ``DIAGNOSTICS`` (``server.apis.diagnostics``), from version 4.

    Versions: 1 sources and synonyms; 3 types and documentation; 4 flexible.
    """
    resources = {(wanted.resource_type, wanted.resource_name): wanted for wanted in request.resources}
    results = []
    for wanted in resources.values():
        results.append((yield from _result(services, context, request, wanted)))
        yield
    return {"throttle_time": 0, "results": results}


def _result(services: Services, context: RequestContext, request: Any, wanted: Any) -> Steps[dict[str, Any]]:
    result = {
        **NO_ERROR,
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
        "configs": [],
    }
    resource = ConfigResource(wanted.resource_type, wanted.resource_name)
    denied = denied_config(services, context, AclOperation.DESCRIBE_CONFIGS, resource)
    if denied is not None:
        return result | error_fields(denied)
    try:
        if resource.type == DIAGNOSTICS and context.api_version >= diagnostics.FIRST_VERSION:
            keys = wanted.configuration_keys or ()
            return result | {"configs": (yield from diagnostics.describe(services, resource.name, keys))}
        entries = services.configs.describe(resource)
    except KafkaError as error:
        return result | error_fields(error)
    names = frozenset(wanted.configuration_keys or ())
    with_documentation = field(request, "include_documentation", False)
    configs = [
        _config(entry, with_synonyms=request.include_synonyms, with_documentation=with_documentation)
        for entry in entries
        if not names or entry.name in names
    ]
    return result | {"configs": configs}


def _config(entry: ConfigEntry, *, with_synonyms: bool, with_documentation: bool) -> dict[str, Any]:
    synonyms = entry.synonyms if with_synonyms else ()
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {
                "name": synonym.name,
                "value": None if entry.is_sensitive else synonym.value,
                "source": synonym.source,
            }
            for synonym in synonyms
        ],
        "config_type": entry.type,
        "documentation": entry.documentation if with_documentation else None,
    }


async def alter_each(
    services: Services,
    context: RequestContext,
    wanted: Sequence[Any],
    alter: Callable[[ConfigResource, Any], Awaitable[None]],
) -> Body:
    """The answer to a request that ``wanted`` resources be altered: each for itself, by ``alter``, if it is
    named once and the client may."""
    counts = Counter((one.resource_type, one.resource_name) for one in wanted)
    responses = []
    time_slice = TimeSlice()
    for one in wanted:
        await time_slice.give_way()
        resource = ConfigResource(one.resource_type, one.resource_name)
        outcome = NO_ERROR
        try:
            if counts[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_configs(one.configs)
            refusal = denied_config(services, context, AclOperation.ALTER_CONFIGS, resource)
            if refusal is not None:
                raise refusal
            await alter(resource, one.configs)
        except KafkaError as error:
            outcome = error_fields(error)
        responses.append(outcome | {"resource_type": one.resource_type, "resource_name": one.resource_name})
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


async def handle_alter_configs(services: Services, context: RequestContext, request: Any) -> Body:
    """AlterConfigs (key 33): replace all that is set for a resource. The incremental API is the better one.

    Behaviour (``ConfigAdminManager``): what the request does not name returns to its default; one result per
    resource, each with its own error; a resource that appears twice is INVALID_REQUEST each time. It needs
    ALTER_CONFIGS on the topic, the group, or for all else the cluster (TOPIC_, GROUP_,
    CLUSTER_AUTHORIZATION_FAILED). ``validate_only`` checks and writes nothing. Loggers can only be altered
    incrementally, as in Kafka.

    Versions: 2 flexible.
    """

    async def alter(resource: ConfigResource, configs: Sequence[Any]) -> None:
        properties = {config.name: config.value for config in configs}
        await services.configs.alter(resource, properties, validate_only=request.validate_only)

    return await alter_each(services, context, request.resources, alter)


async def handle_incremental_alter_configs(services: Services, context: RequestContext, request: Any) -> Body:
    """IncrementalAlterConfigs (key 44): change single properties of resources (KIP-339).

    Behaviour (``ConfigAdminManager``): SET, DELETE (back to the default), and for lists APPEND and SUBTRACT;
    one result per resource, each with its own error, and nothing of a resource is written when one of its
    changes is bad. A resource that appears twice is INVALID_REQUEST each time. It needs ALTER_CONFIGS on the
    topic, the group, or for all else the cluster (TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED).
    ``validate_only`` checks and writes nothing.

    Minikafka's own: trace sessions, as the resource ``traces`` of the type ``DIAGNOSTICS`` (``diagnostics``).

    Versions: 1 flexible.
    """

    async def alter(resource: ConfigResource, configs: Sequence[Any]) -> None:
        alterations = [Alteration(config.name, config.config_operation, config.value) for config in configs]
        if resource.type == DIAGNOSTICS:
            tracer, validate_only = services.replica_manager.tracer, request.validate_only
            diagnostics.alter(tracer, resource.name, alterations, validate_only=validate_only)
            return
        await services.configs.alter_incrementally(resource, alterations, validate_only=request.validate_only)

    return await alter_each(services, context, request.resources, alter)


def handle_list_config_resources(services: Services, context: RequestContext, request: Any) -> Body:
    """ListConfigResources (key 74): the resources that DescribeConfigs can be asked about (KIP-1142).

    Behaviour (``KafkaApis.handleListConfigResources``): those of the types that were asked for, of all types
    when none was; an unknown type is UNSUPPORTED_VERSION. Groups and client metrics subscriptions are those
    for which something is set. It needs DESCRIBE_CONFIGS on the cluster.

    Versions: 0 lists client metrics subscriptions only; 1 takes resource types.
    """
    error = denied_on_cluster(services, context, AclOperation.DESCRIBE_CONFIGS)
    if error is not None:
        return {"throttle_time": 0, "error_code": error.code, "config_resources": []}
    if context.api_version == 0:
        wanted = (int(ConfigResourceType.CLIENT_METRICS),)
    else:
        wanted = tuple(dict.fromkeys(field(request, "resource_types", ()))) or LISTED_TYPES
    if any(resource_type not in LISTED_TYPES for resource_type in wanted):
        return {"throttle_time": 0, "error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": int(resource_type)}
            for resource_type in wanted
            for name in _names(services, resource_type)
        ],
    }


def _names(services: Services, resource_type: int) -> list[str]:
    if resource_type == ConfigResourceType.TOPIC:
        return [topic.name for topic in services.metadata.topics()]
    if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker.node_id) for broker in services.metadata.brokers()]
    if resource_type == ConfigResourceType.GROUP:
        return services.configs.configured_groups()
    return services.configs.client_metrics_subscriptions()
