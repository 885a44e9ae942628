"""CreateDelegationToken (key 38): a token for the requester or another owner (KIP-48, KIP-373).

Behaviour (``KafkaApis.handleCreateTokenRequest``): errors as in ``shared.token_requests``;
INVALID_PRINCIPAL_TYPE for renewers that are no users; DELEGATION_TOKEN_AUTHORIZATION_FAILED for another owner
without CREATE_TOKENS on that user. Any broker does it.

Versions: 2 flexible; 3 an owner other than who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.security.principal import USER, KafkaPrincipal
from minikafka.server.apis.shared.authorization import is_authorized
from minikafka.server.apis.shared.token_requests import NO_TIME, check_may_ask, tokens_of
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

if TYPE_CHECKING:
    from minikafka.server.security.delegation_tokens import DelegationToken


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
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
