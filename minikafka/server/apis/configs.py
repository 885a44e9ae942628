"""DescribeConfigs (key 32): the properties of whatever can be configured, and where their values come from.

Behaviour (``ConfigHelper.describeConfigs``, KIP-133, KIP-226): one result per resource, each with its own
error: TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED without DESCRIBE_CONFIGS on the topic, the group, or for
all else the cluster. The broker with an empty name stands for what is set for all brokers; groups and client
metrics subscriptions need not exist. With a list of keys (not an empty one) only those properties; unknown
keys are passed over. Values of sensitive properties are null. A resource that is named again is answered
once, unlike Kafka's: 12 KB of a broker's properties, for each six bytes.

Versions: 1 sources and synonyms; 3 types and documentation; 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.config.resolution import ConfigEntry
from minikafka.config.resource import ConfigResource
from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_config
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    resources = {(wanted.resource_type, wanted.resource_name): wanted for wanted in request.resources}
    results = yield from each(partial(_result, services, context, request), resources.values())
    return {"throttle_time": 0, "results": results}


def _result(services: Services, context: RequestContext, request: Any, wanted: Any) -> dict[str, Any]:
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
