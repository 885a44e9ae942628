"""Connections to other brokers, and to the controller, whichever broker that is at the time.

A ``BrokerConnection`` is made when it is needed, and again when the broker has moved. Kafka: what
``InterBrokerSendThread`` and ``RequestSendThread`` ask of their ``NetworkClient``;
``NodeToControllerChannelManager`` (``BrokerToControllerChannelManager`` before 3.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from minikafka.config.broker import BrokerConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.control import LiveBroker
from minikafka.protocol.wire.api_versions import BETWEEN_BROKERS, ApiKey
from minikafka.protocol.wire.codec import AnyBody, Body
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.types import BrokerId

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


class OlderController(Exception):
    """The controller is a broker of minikafka 0.2.0, whose brokers do themselves what Kafka's ask for."""


class ControllerConnection:
    """One request at a time."""

    def __init__(
        self, metadata: MetadataCache, config: BrokerConfig, *, node_id: BrokerId, connect: Connect
    ) -> None:
        self._metadata = metadata
        self._listener_name = config.inter_broker_listener()
        self._timeout_ms = config.controller_socket_timeout_ms
        self._connection = BrokerConnection(
            name="the controller",
            client_id=f"broker-{node_id}-to-controller",
            timeout_ms=self._timeout_ms,
            connect=connect,
        )

    def __repr__(self) -> str:
        return f"ControllerConnection({self._metadata.controller_id}, {self._connection})"

    async def request(self, api_key: ApiKey, body: Body) -> Any:
        """Ask the controller that this broker has heard of last. Returns the response's entity.

        A controller that does not answer is given up when this broker hears of another one.

        Raises:
            KafkaError: NOT_CONTROLLER: this broker knows of none, or of another by now.
            OlderController: see there.
            BrokerUnavailable: there is no connection, or no answer in time.
        """
        controller = self._controller()
        address = controller.endpoint(self._listener_name)
        asked = asyncio.ensure_future(
            self._connection.request(
                None if address is None else (address.host, address.port),
                api_key,
                body,
                version=BETWEEN_BROKERS[api_key].max,
            )
        )
        moved = asyncio.ensure_future(
            self._metadata.wait_for(
                lambda: self._metadata.controller_id != controller.node_id, timeout_ms=self._timeout_ms
            )
        )
        try:
            await asyncio.wait((asked, moved), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            moved.cancel()
            if not asked.done():
                asked.cancel()
                await self._connection.close()
        raise KafkaError(
            ErrorCode.NOT_CONTROLLER, f"broker {controller.node_id} is not the controller any more"
        )

    def _controller(self) -> LiveBroker:
        controller = self._metadata.live_broker(self._metadata.controller_id)
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller is not known here")
        if controller.is_of_0_2:
            raise OlderController(f"broker {controller.node_id}")
        return controller

    async def close(self) -> None:
        """Drop the connection. Idempotent."""
        await self._connection.close()
