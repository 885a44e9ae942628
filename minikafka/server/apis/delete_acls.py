"""DeleteAcls (key 31): access control lists to remove, by filters (KIP-140).

Behaviour (``AclControlManager``, ``ControllerApis.handleDeleteAcls``): no authorizer can be configured, so
each filter is refused with SECURITY_DISABLED.

Versions: 2 flexible; 3 user resources (KIP-373).
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    refused = {
        "error_code": ErrorCode.SECURITY_DISABLED,
        "error_message": "No Authorizer is configured.",
        "matching_acls": [],
    }
    return {"throttle_time": 0, "filter_results": [refused for _ in request.filters]}
