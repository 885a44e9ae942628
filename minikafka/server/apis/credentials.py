"""What clients log in with: SASL where none is under way (keys 17, 36), SCRAM credentials, delegation tokens.

SaslHandshake and SaslAuthenticate come here on a connection that has no login to do, or begins one again.
Describe- and AlterUserScramCredentials (keys 50, 51; KIP-554) say what users log in with by SCRAM; requests
name mechanisms by numbers (Kafka: ``org.apache.kafka.clients.admin.ScramMechanism``). The four APIs of
delegation tokens (keys 38 to 41; KIP-48) have in common who may ask (Kafka:
``KafkaApis.allowTokenRequests``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import ANONYMOUS, USER, AclOperation, KafkaPrincipal, ResourceType
from minikafka.security.scram import HASHES, ITERATIONS_MIN, ScramCredential, credential_of
from minikafka.server.apis.shared.authorization import is_authorized, require_on_cluster
from minikafka.server.config_store import missing_credential
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.security.scram_credentials import ScramCredentials
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps, each

if TYPE_CHECKING:
    from minikafka.server.security.delegation_tokens import DelegationToken, DelegationTokens

SCRAM_TYPES: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

ITERATIONS_MAX = 16_384
"""``ScramControlManager.MAX_ITERATIONS``: what clients have to compute."""

_Changes = dict[str, ScramCredential | None]
"""Mechanism → credential; None: to be removed."""

NO_TIME = -1
"""A time in an answer that has an error."""

TOKENS_A_STEP = 16
"""Two decisions and an HMAC each."""


def handle_sasl_handshake(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
    """SaslHandshake (key 17) on a connection that needs none, or has authenticated: to do so again.

    Behaviour (``KafkaApis.handleSaslHandshakeRequest``, ``KafkaChannel.maybeBeginServerReauthentication``,
    KIP-368): a connection whose session ends at some time may authenticate again, once a second at most.
    Otherwise the request is out of place: ILLEGAL_SASL_STATE. That of a new connection never comes here
    (``server.security.sasl_authenticator``).

    Versions: 1 puts a SaslAuthenticate around each message of the mechanism.
    """
    authentication = services.authentication
    login = None if authentication is None else authentication.login_of(context.connection)
    if login is not None:
        answer = yield from login.reauthenticate(context.header, request.mechanism)
        if answer is not None:
            return answer
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


def handle_sasl_authenticate(services: Services, context: RequestContext, request: Any) -> Body:
    """SaslAuthenticate (key 36) on a connection that needs none, or is authenticated: out of place.

    Behaviour (``KafkaApis.handleSaslAuthenticateRequest``): ILLEGAL_SASL_STATE. That of a connection that
    authenticates never comes here (``server.security.sasl_authenticator``).

    Versions: 1 has the session's lifetime (KIP-368); 2 flexible.
    """
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
    }


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
        for number, mechanism in SCRAM_TYPES.items()
        if mechanism in found
    ]


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
    mechanism = SCRAM_TYPES.get(change.mechanism)
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


def allowed_tokens(services: Services, context: RequestContext) -> DelegationTokens:
    """The tokens, for who may ask about them.

    Raises:
        KafkaError: as the two below.
    """
    check_may_ask(context)
    return tokens_of(services)


async def answer_with_expiry(
    services: Services, context: RequestContext, change: Callable[[DelegationTokens], Awaitable[int]]
) -> Body:
    """The answer of RenewDelegationToken and ExpireDelegationToken: when the token ends after ``change``, or
    the error of that."""
    code, expires_ms = ErrorCode.NONE, NO_TIME
    try:
        expires_ms = await change(allowed_tokens(services, context))
    except KafkaError as error:
        code = error.code
    return {"error_code": code, "expiry_timestamp": expires_ms, "throttle_time": 0}


def check_may_ask(context: RequestContext) -> None:
    """It has proved who it is, and not with a token.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    principal = context.connection.principal
    if principal.token_id or principal == ANONYMOUS:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation "
            "token authenticated channels.",
        )


def tokens_of(services: Services) -> DelegationTokens:
    """Raises KafkaError: DELEGATION_TOKEN_AUTH_DISABLED: there are none."""
    if services.delegation_tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return services.delegation_tokens


async def handle_create_delegation_token(services: Services, context: RequestContext, request: Any) -> Body:
    """CreateDelegationToken (key 38): a token for the requester or another owner (KIP-48, KIP-373).

    Behaviour (``KafkaApis.handleCreateTokenRequest``): errors as in ``delegation_tokens``;
    INVALID_PRINCIPAL_TYPE for renewers that are no users; DELEGATION_TOKEN_AUTHORIZATION_FAILED for another
    owner without CREATE_TOKENS on that user. Any broker does it.

    Versions: 2 flexible; 3 an owner other than who asks.
    """
    requester = owner = context.connection.principal._replace(token_id="")
    if owner_name := field(request, "owner_principal_name", None):
        owner = KafkaPrincipal(request.owner_principal_type or USER, owner_name)
    names = {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "throttle_time": 0,
    }
    try:
        token = await _create(services, context, request, owner, requester)
    except KafkaError as error:
        times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), NO_TIME)
        return {**names, **times, "error_code": error.code, "token_id": "", "hmac": b""}
    assert services.delegation_tokens is not None, "it has made the token"
    return {
        **names,
        "error_code": ErrorCode.NONE,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": services.delegation_tokens.hmac(token.token_id),
    }


async def _create(
    services: Services,
    context: RequestContext,
    request: Any,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
) -> DelegationToken:
    """Raises KafkaError."""
    check_may_ask(context)
    if owner != requester and not is_authorized(
        services, context, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers)
    if any(each.type != USER for each in renewers) or owner.type != USER:
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return await tokens_of(services).create(owner, requester, renewers, max_lifetime_ms=request.max_lifetime)


async def handle_renew_delegation_token(services: Services, context: RequestContext, request: Any) -> Body:
    """RenewDelegationToken (key 39): let a token hold for longer (KIP-48).

    Behaviour (``DelegationTokenManagerZk.renewToken``): its owner and its renewers may, until its maximum;
    errors as in ``delegation_tokens`` and ``DelegationTokens.renew``.

    Versions: 2 flexible.
    """
    return await answer_with_expiry(
        services,
        context,
        lambda tokens: tokens.renew(
            bytes(request.hmac), context.connection.principal, period_ms=request.renew_period
        ),
    )


async def handle_expire_delegation_token(services: Services, context: RequestContext, request: Any) -> Body:
    """ExpireDelegationToken (key 40): have a token expire earlier, or remove it (KIP-48).

    Behaviour (``DelegationTokenManagerZk.expireToken``): its owner and its renewers may; a period below 0
    removes it, expired or not. Who has logged in with it stays until the end of its session. Errors as in
    ``delegation_tokens`` and ``DelegationTokens.expire``.

    Versions: 2 flexible.
    """
    return await answer_with_expiry(
        services,
        context,
        lambda tokens: tokens.expire(
            bytes(request.hmac), context.connection.principal, period_ms=request.expiry_time_period
        ),
    )


def handle_describe_delegation_token(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body]:
    """DescribeDelegationToken (key 41): which tokens there are, and what to log in with (KIP-48, KIP-373).

    Behaviour (``KafkaApis.handleDescribeTokensRequest``, ``DelegationTokenManager.filterToken``): tokens of
    the owners that are asked for, or (null) of all; an empty list asks for none. One sees the tokens that one
    owns or may renew, those that one has DESCRIBE on, and those of users that one has DESCRIBE_TOKENS on.
    Errors as in ``delegation_tokens``.

    Versions: 2 flexible; 3 who has asked for each token.
    """
    try:
        tokens = allowed_tokens(services, context)
    except KafkaError as error:
        return {"error_code": error.code, "tokens": [], "throttle_time": 0}
    owners = None
    if request.owners is not None:
        owners = [KafkaPrincipal(owner.principal_type, owner.principal_name) for owner in request.owners]
    described = yield from each(
        lambda token: _described(tokens, token) if _may_see(services, context, token, owners) else None,
        tokens.all(),
        a_step=TOKENS_A_STEP,
    )
    found = [token for token in described if token is not None]
    return {"error_code": ErrorCode.NONE, "tokens": found, "throttle_time": 0}


def _may_see(
    services: Services, context: RequestContext, token: DelegationToken, owners: list[KafkaPrincipal] | None
) -> bool:
    if owners is not None and not any(map(token.is_owner_or_renewer, owners)):
        return False
    return (
        token.is_owner_or_renewer(context.connection.principal)
        or is_authorized(
            services, context, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
        )
        or is_authorized(services, context, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(tokens: DelegationTokens, token: DelegationToken) -> Body:
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": tokens.hmac(token.token_id),
        "renewers": [
            {"principal_type": renewer.type, "principal_name": renewer.name} for renewer in token.renewers
        ],
    }
