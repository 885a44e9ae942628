"""SaslHandshake and SaslAuthenticate (keys 17, 36) where no authentication is under way."""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps


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
