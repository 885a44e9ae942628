"""UpdateFeatures (key 57): change the cluster's feature levels (KIP-584). None changes: see
``server.runtime.features``.

Behaviour (``FeatureControlManager.updateFeatures``): an empty update succeeds, and so does one that sets
features to the level where they are, which is 0 for a feature that this cluster does not have. Any other
level is INVALID_UPDATE_VERSION, for all features of the request: they change together or not at all.
ApiVersions says the same. It needs ALTER on the cluster.

Versions: 0 allow_downgrade; 1 upgrade_type and validate_only; 2 no results by feature.
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import error_fields
from minikafka.server.runtime.features import LEVELS
from minikafka.server.services import Services

UPGRADE_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade."""


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    error = denied_on_cluster(services, context, AclOperation.ALTER)
    if error is not None:
        return {"throttle_time": 0, **error_fields(error), "results": []}
    reasons = [
        reason for update in request.feature_updates if (reason := _refusal(services, update)) is not None
    ]
    if reasons:
        return {
            "throttle_time": 0,
            "error_code": ErrorCode.INVALID_UPDATE_VERSION,
            "error_message": "The update failed for all features since the following feature had an error: "
            + reasons[0],
            "results": [],
        }
    results = [
        {"feature": update.feature, "error_code": ErrorCode.NONE, "error_message": None}
        for update in request.feature_updates
    ]
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "error_message": None, "results": results}


def _refusal(services: Services, update: Any) -> str | None:
    level = update.max_version_level
    if field(update, "upgrade_type", UPGRADE_TYPES[0]) not in UPGRADE_TYPES:
        why = "The controller does not support the given upgrade type."
    elif level < 0:
        why = "A feature version cannot be less than 0."
    elif level != LEVELS.get(update.feature, 0):
        why = f"Local controller {services.node_id} does not support this feature at that level."
    else:
        return None
    return f"Invalid update version {level} for feature {update.feature}. {why}"
