"""DeleteAcls (key 31): access control lists to remove, by filters (KIP-11, KIP-140).

Behaviour (``AclApis.handleDeleteAcls``, ``AclAuthorizer.deleteAcls``): needs ALTER on the cluster; each
filter has its own result, with the ACLs that are removed. One that several filters find is the first one's,
so the answer has each ACL once, whatever the filters are. SECURITY_DISABLED without an authorizer.

Versions: 1 patterns (KIP-290); 2 flexible; 3 user resources (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.acls import configured_acls, entry_fields, filter_of, pattern_fields
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services

if TYPE_CHECKING:
    from minikafka.server.security.acl_store import Deletion


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
        acls = configured_acls(services, "No Authorizer is configured.")
    except KafkaError as error:
        return {"throttle_time": 0, "filter_results": [_refused(error)] * len(request.filters)}
    filters, results = [], []
    time_slice = TimeSlice()
    for each in request.filters:
        await time_slice.give_way()
        try:
            filters.append(filter_of(each))
            results.append({**NO_ERROR})
        except KafkaError as error:
            results.append(_refused(error))
    deletions = iter(await acls.delete(filters))
    for result in results:
        if "matching_acls" not in result:
            result["matching_acls"] = matching = []
            for deletion in next(deletions):
                await time_slice.give_way()
                matching.append(_deleted(deletion))
    return {"throttle_time": 0, "filter_results": results}


def _refused(error: KafkaError) -> dict[str, Any]:
    return {**error_fields(error), "matching_acls": []}


def _deleted(deletion: Deletion) -> dict[str, Any]:
    (pattern, entry), error = deletion
    outcome = NO_ERROR if error is None else error_fields(error)
    return {**outcome, **pattern_fields(pattern), **entry_fields(entry)}
