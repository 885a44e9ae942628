"""How many partitions a client may create and delete: the controller mutation quota of one request (KIP-599).

Kafka: ``ControllerMutationQuota`` and its variants. A request spends a token for each partition. From the
version on that knows THROTTLING_QUOTA_EXCEEDED it is strict: nothing more is done once the bucket is
overspent, but what overspends it is. Before, everything is done. In both cases the client is told how long to
wait, and waits.
"""

from __future__ import annotations

from minikafka.config.client_quotas import QuotaType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.quota.client_quotas import ClientQuotas, Violation
from minikafka.server.requests.context import RequestContext, client_of

NEVER = 32767
"""A version that there is none of: the request spends tokens, and is never refused."""


class MutationQuota:
    """One request's. ``spend`` before each change, ``throttle`` once, when the answer is made."""

    __slots__ = ("_client", "_context", "_is_strict", "_quotas", "_violated_ms", "_violation")

    def __init__(self, quotas: ClientQuotas, context: RequestContext, *, strict_since_version: int) -> None:
        self._quotas = quotas
        self._context = context
        self._client = client_of(quotas, context)
        self._is_strict = context.api_version >= strict_since_version
        self._violation: Violation | None = None
        self._violated_ms = 0

    def __repr__(self) -> str:
        return f"MutationQuota({self._client}, strict={self._is_strict}, {self._violation})"

    def spend(self, partitions: int) -> None:
        """So many partitions are about to be created or deleted.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED: they must not be.
        """
        sensor = self._client.sensors.get(QuotaType.CONTROLLER_MUTATION)
        if sensor is None:
            return
        clock = self._quotas.clock
        record = sensor.record_if_free if self._is_strict else sensor.record
        violation = record(partitions, clock)
        if violation is not None:
            self._violation, self._violated_ms = violation, clock.monotonic_ms()
            if self._is_strict:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )

    def throttle(self) -> int:
        """Mute the connection, if a quota was exceeded, for what is left to wait by now. Returns that, in
        ms."""
        if self._violation is None:
            return 0
        passed_ms = self._quotas.clock.monotonic_ms() - self._violated_ms
        left_ms = self._violation.throttle_time_ms - passed_ms
        if left_ms <= 0:
            return 0
        violation = self._violation._replace(throttle_time_ms=left_ms)
        return self._quotas.slow_down(self._context.connection, self._client, violation)
