"""DescribeDelegationToken (key 41): which tokens there are, and what to log in with (KIP-48, KIP-373).

Behaviour (``KafkaApis.handleDescribeTokensRequest``, ``DelegationTokenManager.filterToken``): tokens of the
owners that are asked for, or (null) of all; an empty list asks for none. One sees the tokens that one owns or
may renew, those that one has DESCRIBE on, and those of users that one has DESCRIBE_TOKENS on. Errors as in
``shared.token_requests``.

Versions: 2 flexible; 3 who has asked for each token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.security.principal import KafkaPrincipal
from minikafka.server.apis.shared.authorization import is_authorized
from minikafka.server.apis.shared.token_requests import allowed_tokens
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each

if TYPE_CHECKING:
    from minikafka.server.security.delegation_tokens import DelegationToken, DelegationTokens


TOKENS_A_STEP = 16
"""Two decisions and an HMAC each."""


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
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
