"""ExpireDelegationToken (key 40): have a token expire earlier, or remove it (KIP-48).

Behaviour (``DelegationTokenManagerZk.expireToken``): its owner and its renewers may; a period below 0 removes
it, expired or not. Who has logged in with it stays until the end of its session. Errors as in
``shared.token_requests`` and ``DelegationTokens.expire``.

Versions: 2 flexible.
"""

from __future__ import annotations

from typing import Any

from minikafka.protocol.wire.codec import Body
from minikafka.server.apis.shared.token_requests import answer_with_expiry
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    return await answer_with_expiry(
        services,
        context,
        lambda tokens: tokens.expire(
            bytes(request.hmac), context.connection.principal, period_ms=request.expiry_time_period
        ),
    )
