"""DescribeAcls (key 29): which access control lists there are (KIP-11, KIP-140).

Behaviour (``AclApis.handleDescribeAcls``): needs DESCRIBE on the cluster; the ACLs that the filter finds, by
resource, as this broker knows them. SECURITY_DISABLED without an authorizer, which MirrorMaker takes for
"nothing to copy".

Versions: 1 patterns (KIP-290); 2 flexible; 3 user resources (KIP-373).
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourcePattern
from minikafka.server.apis.shared.acls import configured_acls, entry_fields, filter_of, pattern_fields
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps, each


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    try:
        require_on_cluster(services, context, AclOperation.DESCRIBE)
        acls = configured_acls(services, "No Authorizer is configured on the broker")
        wanted = filter_of(request)
    except KafkaError as error:
        return {"throttle_time": 0, **error_fields(error), "resources": []}
    by_pattern: dict[ResourcePattern, list[dict[str, Any]]] = {}
    for count, (pattern, entry) in enumerate((yield from acls.matching(wanted)), start=1):
        by_pattern.setdefault(pattern, []).append(entry_fields(entry))
        if count % ELEMENTS_A_STEP == 0:
            yield
    resources = yield from each(
        lambda found: pattern_fields(found[0]) | {"acls": found[1]},
        by_pattern.items(),
        a_step=ELEMENTS_A_STEP,
    )
    return {"throttle_time": 0, **NO_ERROR, "resources": resources}
