"""SaslAuthenticate (key 36) on a connection that needs none, or is authenticated: out of place.

Behaviour (``KafkaApis.handleSaslAuthenticateRequest``): ILLEGAL_SASL_STATE. That of a connection that
authenticates never comes here (``server.security.sasl_authenticator``).

Versions: 1 has the session's lifetime (KIP-368); 2 flexible.
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
    }
