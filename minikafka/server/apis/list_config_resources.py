"""ListConfigResources (key 74): the resources that DescribeConfigs can be asked about (KIP-1142).

Behaviour (``KafkaApis.handleListConfigResources``): those of the types that were asked for, of all types
when none was; an unknown type is UNSUPPORTED_VERSION. Groups and client metrics subscriptions are those for
which something is set. It needs DESCRIBE_CONFIGS on the cluster.

Versions: 0 lists client metrics subscriptions only; 1 takes resource types.
"""

from __future__ import annotations

from typing import Any

from minikafka.config.resource import ConfigResourceType
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

LISTED_TYPES = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


def handle(services: Services, context: RequestContext, request: Any) -> Body:
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
