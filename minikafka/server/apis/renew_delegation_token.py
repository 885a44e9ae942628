"""RenewDelegationToken (key 39): let a token hold for longer (KIP-48).

Behaviour (``DelegationTokenManagerZk.renewToken``): its owner and its renewers may, until its maximum; errors
as in ``shared.token_requests`` and ``DelegationTokens.renew``.

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
        lambda tokens: tokens.renew(
            bytes(request.hmac), context.connection.principal, period_ms=request.renew_period
        ),
    )
