"""A connection to another broker, which is made when it is needed, and again when the broker has moved.

Kafka: what ``InterBrokerSendThread`` and ``RequestSendThread`` ask of their ``NetworkClient``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.wire.codec import AnyBody

Connect = Callable[..., Awaitable[BrokerClient]]
"""``BrokerClient.connect``, or what stands for it."""


class BrokerConnection:
    """See the module header."""

    def __init__(self, *, name: str, client_id: str, timeout_ms: int, connect: Connect) -> None:
        """``name`` is the broker's, for complaints."""
        self._name = name
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._client: BrokerClient | None = None
        self._address: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"BrokerConnection({self._name} at {self._address}, {self._client})"

    async def request(
        self, address: tuple[str, int] | None, api_key: int, body: AnyBody, *, version: int | None = None
    ) -> Any:
        """Ask the broker at ``address``, which is None for one without the listener that brokers use. Returns
        the response's entity.

        Raises:
            KafkaError: UNSUPPORTED_VERSION.
            BrokerUnavailable: there is no connection, or no answer in time.
        """
        if address is None:
            raise BrokerUnavailable(f"{self._name} does not have the inter-broker listener")
        if address != self._address:
            await self.close()
        if self._client is None or not self._client.is_connected:
            self._client = await self._connect(
                *address, client_id=self._client_id, deadline_ms=self._timeout_ms
            )
            self._address = address
        return await self._client.request(api_key, body, deadline_ms=self._timeout_ms, version=version)

    async def close(self) -> None:
        """Drop the connection. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
