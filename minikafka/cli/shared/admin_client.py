"""A client for operators: asks any broker, a certain one, or the controller, and finds each of them.

Kafka: the routing of ``KafkaAdminClient`` (``LeastLoadedNodeProvider``, ``ConstantNodeIdProvider``,
``ControllerNodeProvider``). Requests go where Kafka's own client sends them, so this works with any broker.

Invariants:
- One connection a broker, made when it is first needed, kept until ``close`` or until it breaks.
- What any broker can answer is asked of one after the other until one does. What the controller is asked is
  asked again, wherever it is by then, until ``timeout_ms`` are over; such requests may be carried out twice,
  so each says what is to be, not what is to change. What goes to a certain broker is asked once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from minikafka.cli.shared.commands import Address, error_of
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey

RETRY_BACKOFF_S = 0.1
"""Kafka's retry.backoff.ms."""

NOBODY = -1

Body = Mapping[str, Any]


class LiveBroker(NamedTuple):
    """A broker that is registered."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterNodes(NamedTuple):
    """Who is there, as DescribeCluster says it."""

    cluster_id: str
    controller: int
    """-1: nobody."""
    brokers: dict[int, LiveBroker]
    """By id, in the order of ids."""


async def connect_to_any(addresses: Sequence[Address], *, client_id: str, timeout_ms: int) -> BrokerClient:
    """A connection to the first of ``addresses`` that answers.

    Raises:
        BrokerUnavailable: none does; what the last one said.
    """
    for host, port in addresses[:-1]:
        try:
            return await BrokerClient.connect(host, port, client_id=client_id, deadline_ms=timeout_ms)
        except BrokerUnavailable:
            pass  # the next one may answer
    host, port = addresses[-1]
    return await BrokerClient.connect(host, port, client_id=client_id, deadline_ms=timeout_ms)


class AdminClient:
    """Connections to the brokers of one cluster. Use it as a context manager, on one event loop."""

    def __init__(self, bootstrap: Sequence[Address], *, client_id: str, timeout_ms: int) -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self.timeout_ms = timeout_ms
        self._clients: dict[Address, BrokerClient] = {}
        self._nodes: ClusterNodes | None = None

    def __repr__(self) -> str:
        return f"AdminClient({self._bootstrap}, {len(self._clients)} connections)"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def nodes(self, *, refresh: bool = True) -> ClusterNodes:
        """Who is there now, or (without ``refresh``) was when last asked.

        Raises:
            BrokerUnavailable: nobody answers. KafkaError: what the broker says.
        """
        if refresh or self._nodes is None:
            body = {
                "include_cluster_authorized_operations": False,
                "endpoint_type": 1,
                "include_fenced_brokers": False,
            }
            answer = await self.ask_any(ApiKey.DESCRIBE_CLUSTER, body)
            raise_error(answer)
            brokers = [
                LiveBroker(each.broker_id, each.host, each.port, each.rack)
                for each in sorted(answer.brokers, key=lambda each: int(each.broker_id))
            ]
            by_id = {broker.node_id: broker for broker in brokers}
            self._nodes = ClusterNodes(answer.cluster_id, answer.controller_id, by_id)
        return self._nodes

    async def ask_any(self, api_key: ApiKey, body: Body) -> Any:
        """Ask the first broker that answers.

        Raises:
            BrokerUnavailable: nobody does, within ``timeout_ms``. KafkaError: UNSUPPORTED_VERSION.
        """
        known = [(each.host, each.port) for each in self._nodes.brokers.values()] if self._nodes else []
        failure: BrokerUnavailable | None = None
        for address in dict.fromkeys([*self._clients, *self._bootstrap, *known]):
            try:
                return await self._ask(address, api_key, body)
            except BrokerUnavailable as error:
                failure = failure or error
        assert failure is not None, "there is no bootstrap server"
        raise failure

    async def ask_broker(self, node_id: int, api_key: ApiKey, body: Body) -> Any:
        """Ask one broker.

        Raises:
            BrokerUnavailable: it is not registered, or does not answer. KafkaError: UNSUPPORTED_VERSION.
        """
        nodes = await self.nodes(refresh=False)
        broker = nodes.brokers.get(node_id) or (await self.nodes()).brokers.get(node_id)
        if broker is None:
            raise BrokerUnavailable(f"broker {node_id} is not registered")
        return await self._ask((broker.host, broker.port), api_key, body)

    async def ask_controller(self, api_key: ApiKey, body: Body) -> Any:
        """Ask the controller; when it has moved, or nobody is it yet, again until ``timeout_ms`` are over.

        Raises:
            KafkaError: the response's own error. BrokerUnavailable: no controller answers.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 1000
        while True:
            try:
                controller = (await self.nodes()).controller
                if controller == NOBODY:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "no broker is the controller")
                answer = await self.ask_broker(controller, api_key, body)
                raise_error(answer)
                return answer
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER or loop.time() >= deadline:
                    raise
            except BrokerUnavailable:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def _ask(self, address: Address, api_key: ApiKey, body: Body) -> Any:
        client = self._clients.get(address)
        if client is None or not client.is_connected:
            client = self._clients[address] = await self._connect(address)
        try:
            return await client.request(api_key, body, deadline_ms=self.timeout_ms)
        except BrokerUnavailable:
            self._clients.pop(address, None)
            raise

    async def _connect(self, address: Address) -> BrokerClient:
        host, port = address
        return await BrokerClient.connect(host, port, client_id=self._client_id, deadline_ms=self.timeout_ms)


def raise_error(answer: Any) -> None:
    """Raise KafkaError for the error of a response as a whole, if it has one."""
    error = error_of(getattr(answer, "error_code", 0), getattr(answer, "error_message", None))
    if error is not None:
        raise error
