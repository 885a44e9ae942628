"""What a handler knows about a request besides its content."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.network.connection import Connection
from minikafka.protocol.codec import RequestHeader


class RequestContext(NamedTuple):
    """The connection that a request came on, and its header (Kafka's ``RequestContext``)."""

    connection: Connection
    header: RequestHeader

    @property
    def api_version(self) -> int:
        return self.header.api_version
