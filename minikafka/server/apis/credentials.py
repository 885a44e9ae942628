"""The four APIs of delegation tokens (keys 38 to 41; KIP-48).

What the four APIs of delegation tokens have in common. Kafka: ``KafkaApis.allowTokenRequests``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import ANONYMOUS, USER, AclOperation, KafkaPrincipal, ResourceType
from minikafka.server.apis.shared.authorization import is_authorized
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each

if TYPE_CHECKING:
    from minikafka.server.security.delegation_tokens import DelegationToken, DelegationTokens


NO_TIME = -1
"""A time in an answer that has an error."""


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


TOKENS_A_STEP = 16
"""Two decisions and an HMAC each."""


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
