"""DescribeUserScramCredentials (key 50): which users can log in with SCRAM, and how (KIP-554).

Behaviour (``ZkAdminManager.describeUserScramCredentials``): mechanisms and iterations, never a key. No user
named: all that have a credential, sorted. A user that is named twice is DUPLICATE_RESOURCE, one without
credentials RESOURCE_NOT_FOUND. It needs DESCRIBE on the cluster, or the whole is
CLUSTER_AUTHORIZATION_FAILED.

Versions: 0 flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.apis.shared.scram_mechanisms import TYPES
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.security.scram_credentials import ScramCredentials
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps, each


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    try:
        require_on_cluster(services, context, AclOperation.DESCRIBE)
    except KafkaError as error:
        return {"throttle_time": 0, **error_fields(error), "results": []}
    credentials = services.configs.scram.credentials
    if request.users:
        counts = Counter(user.name for user in request.users)
    else:
        counts = Counter(credentials.users())
    results = yield from each(
        lambda user: _result(credentials, user, counts[user]), counts, a_step=ELEMENTS_A_STEP
    )
    return {"throttle_time": 0, **NO_ERROR, "results": results}


def _result(credentials: ScramCredentials, user: str, count: int) -> Body:
    outcome, infos = NO_ERROR, []
    try:
        infos = _credential_infos(credentials, user, count)
    except KafkaError as error:
        outcome = error_fields(error)
    return {"user": user, **outcome, "credential_infos": infos}


def _credential_infos(credentials: ScramCredentials, user: str, count: int) -> list[Body]:
    if count > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    found = credentials.of(user)
    if not found:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    return [
        {"mechanism": number, "iterations": found[mechanism].iterations}
        for number, mechanism in TYPES.items()
        if mechanism in found
    ]
