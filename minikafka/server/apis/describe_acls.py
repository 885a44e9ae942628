"""DescribeAcls (key 29): which access control lists there are (KIP-11, KIP-140).

Behaviour (``AclApis.handleDescribeAcls``): no authorizer can be configured, so each request is answered with
SECURITY_DISABLED. MirrorMaker takes that for "nothing to copy".

Versions: 2 flexible; 3 user resources (KIP-373).
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.SECURITY_DISABLED,
        "error_message": "No Authorizer is configured on the broker",
        "resources": [],
    }
