"""What the four APIs of delegation tokens have in common. Kafka: ``KafkaApis.allowTokenRequests``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.principal import ANONYMOUS
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

if TYPE_CHECKING:
    from minikafka.server.security.delegation_tokens import DelegationTokens

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
