"""What a handler knows about a request besides its content."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.network.connection import Connection
from minikafka.protocol.wire.codec import RequestHeader
from minikafka.server.quota.client_quotas import ClientQuotas, QuotaClient
from minikafka.server.quota.handler_time import HandlerTime


class RequestContext(NamedTuple):
    """The connection that a request came on, and its header (Kafka's ``RequestContext``)."""

    connection: Connection
    header: RequestHeader
    size_bytes: int = 0
    """Of the frame, header included."""
    handler_time: HandlerTime | None = None
    """Of a client's request, while a request quota is set anywhere."""

    @property
    def api_version(self) -> int:
        return self.header.api_version


def client_of(quotas: ClientQuotas, context: RequestContext) -> QuotaClient:
    """Who asks, as quotas know it: the user is the name of the principal, whatever its type."""
    return quotas.client(context.connection.principal.name, context.header.client_id)
