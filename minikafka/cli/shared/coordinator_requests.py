"""What is asked of coordinators, of groups or of transactional ids, wherever they are by then.

Kafka: ``CoordinatorStrategy`` of ``KafkaAdminClient``. A coordinator that has just moved, or reads its log
yet, is asked again until ``timeout_ms`` are over; everything that is asked of it may be carried out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from minikafka.cli.shared.admin_client import RETRY_BACKOFF_S, LiveBroker, raise_error
from minikafka.cli.shared.cluster_requests import ClusterAdmin
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey

COORDINATOR_MOVES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class CoordinatorAdmin(ClusterAdmin):
    """Methods raise KafkaError for what a broker refuses, and BrokerUnavailable when there is no answer."""

    key_type: ClassVar[int]
    """Of FindCoordinator: 0 groups, 1 transactional ids."""

    async def coordinator(self, key: str) -> LiveBroker:
        """FindCoordinator. Raises KafkaError: COORDINATOR_NOT_AVAILABLE as long as there is none."""
        body = {"key": key, "key_type": self.key_type, "coordinator_keys": [key]}
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, body)
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        raise_error(found)
        return LiveBroker(found.node_id, found.host, found.port, None)

    async def ask_coordinator(
        self,
        key: str,
        api_key: ApiKey,
        body: Mapping[str, Any],
        part: Callable[[Any], Any],
        *,
        expected: Sequence[ErrorCode] = (),
    ) -> tuple[LiveBroker, Any]:
        """Ask the coordinator of ``key``; ``part`` is what carries the error in its answer.

        The answer is None for one of the ``expected`` errors. Raises KafkaError: any other.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 1000
        while True:
            coordinator = None
            try:
                coordinator = await self.coordinator(key)
                answer = await self.ask_broker(coordinator.node_id, api_key, body)
                raise_error(part(answer))
                return coordinator, answer
            except KafkaError as error:
                if coordinator is not None and error.code in expected:
                    return coordinator, None
                if error.code not in COORDINATOR_MOVES or loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def ask_loaded(self, broker: int, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        """Ask one broker until it has read what it coordinates. Raises KafkaError: any other error."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_ms / 1000
        while True:
            answer = await self.ask_broker(broker, api_key, body)
            try:
                raise_error(answer)
                return answer
            except KafkaError as error:
                if error.code not in COORDINATOR_MOVES or loop.time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_BACKOFF_S)
