"""Describe- and AlterUserScramCredentials (keys 50, 51; KIP-554): what users log in with by SCRAM.

How requests name SCRAM mechanisms. Kafka: ``org.apache.kafka.clients.admin.ScramMechanism``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.security.sasl.scram import HASHES, ITERATIONS_MIN, ScramCredential, credential_of
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.configs.scram import missing_credential
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.security.scram_credentials import ScramCredentials
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps, each

TYPES: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def handle_describe_user_scram_credentials(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body]:
    """DescribeUserScramCredentials (key 50): which users can log in with SCRAM, and how (KIP-554).

    Behaviour (``ZkAdminManager.describeUserScramCredentials``): mechanisms and iterations, never a key. No
    user named: all that have a credential, sorted. A user that is named twice is DUPLICATE_RESOURCE, one
    without credentials RESOURCE_NOT_FOUND. It needs DESCRIBE on the cluster, or the whole is
    CLUSTER_AUTHORIZATION_FAILED.

    Versions: 0 flexible.
    """
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


ITERATIONS_MAX = 16_384
"""``ScramControlManager.MAX_ITERATIONS``: what clients have to compute."""

_Changes = dict[str, ScramCredential | None]
"""Mechanism → credential; None: to be removed."""


async def handle_alter_user_scram_credentials(
    services: Services, context: RequestContext, request: Any
) -> Body:
    """AlterUserScramCredentials (key 51): set and remove what users log in with by SCRAM (KIP-554).

    Behaviour (``ScramControlManager.alterCredentials``): clients send the salted password, from which the
    keys that are stored are made; no password comes here. Each user has one result, and its credentials are
    changed all or not at all: UNACCEPTABLE_CREDENTIAL for an empty name or iterations outside of 4,096 to
    16,384, UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE for a mechanism of a user that is there twice,
    RESOURCE_NOT_FOUND for a credential to remove that is not there; of several reasons the first, deletions
    before upsertions. Any broker does it; it holds here at once, on the others as soon as they hear of it. It
    needs ALTER on the cluster, or each user gets CLUSTER_AUTHORIZATION_FAILED.

    Where it differs from Kafka: one request may change both mechanisms of a user, as with Kafka 3.9 on
    ZooKeeper (``ZkAdminManager``), and as ``kafka-configs.sh`` sends it. An empty salt, or a salted password
    that is not as long as the mechanism's hash, is UNACCEPTABLE_CREDENTIAL too, because no client could log
    in with it.

    Versions: 0 flexible.
    """
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
    except KafkaError as error:
        refused = error_fields(error)
        return {"throttle_time": 0, "results": [{"user": user, **refused} for user in sorted(users)]}
    changes, errors = _checked(request, services.configs.scram.credentials)
    results = []
    time_slice = TimeSlice()
    for user in users:
        await time_slice.give_way()
        outcome = NO_ERROR
        try:
            if user in errors:
                raise errors[user]
            await services.configs.scram.alter(user, changes[user])
        except KafkaError as error:
            outcome = error_fields(error)
        results.append({"user": user, **outcome})
    return {"throttle_time": 0, "results": results}


def _checked(
    request: Any, credentials: ScramCredentials
) -> tuple[dict[str, _Changes], dict[str, KafkaError]]:
    """By user: what is to be changed, or the first reason why nothing is."""
    changes: dict[str, _Changes] = {}
    errors: dict[str, KafkaError] = {}
    for change in (*request.deletions, *request.upsertions):
        user = change.name
        if user in errors:
            continue
        try:
            mechanism = _mechanism(change)
            if mechanism in changes.get(user, {}):
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            is_upsertion = hasattr(change, "salt")
            credential = _credential(mechanism, change) if is_upsertion else None
        except KafkaError as error:
            missing = (removed for removed, to in changes.get(user, {}).items() if to is None)
            is_missing = any(credentials.find(each, user) is None for each in missing)
            errors[user] = missing_credential() if is_missing else error
        else:
            changes.setdefault(user, {})[mechanism] = credential
    return changes, errors


def _mechanism(change: Any) -> str:
    if not change.name:
        raise _unacceptable("Username must not be empty")
    mechanism = TYPES.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _credential(mechanism: str, upsertion: Any) -> ScramCredential:
    if upsertion.iterations < ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    salt, salted_password = bytes(upsertion.salt), bytes(upsertion.salted_password)
    if not salt or len(salted_password) != hashlib.new(HASHES[mechanism]).digest_size:
        raise _unacceptable(f"The salt is empty, or the salted password is none of {mechanism}")
    return credential_of(mechanism, salted_password, salt, upsertion.iterations)


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
