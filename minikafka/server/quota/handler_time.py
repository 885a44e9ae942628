"""How long a request keeps its handler busy, for request quotas (KIP-124). Made only while one is set.

Kafka: ``ClientRequestQuotaManager`` and the thread times in ``RequestChannel.Request``. There is one event
loop, so a client that has 100 percent of handler time has all of it. Time spent waiting (for replicas, bytes,
the store) does not count.

The time is counted when the answer is made, so that the answer tells the throttle that comes of it; what is
done after that (other partitions of a group's request, the writing) is not counted. Kafka counts the network
threads' part afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from minikafka.config.client_quotas import QuotaType
from minikafka.network.connection import Connection
from minikafka.protocol.wire.codec import AnyBody, Body
from minikafka.server.quota.client_quotas import ClientQuotas, QuotaClient, Violation
from minikafka.steps import Steps as WorkSteps

T = TypeVar("T")

PERCENT_PER_NS = 100 / 1_000_000_000
"""Of one second."""


class HandlerTime:
    """One request's. It runs from the start, and stops with ``pause``."""

    __slots__ = ("_client_id", "_connection", "_now_ns", "_quotas", "_spent_ns", "_started_ns")

    def __init__(self, quotas: ClientQuotas, connection: Connection, client_id: str | None) -> None:
        self._quotas = quotas
        self._connection = connection
        self._client_id = client_id
        self._now_ns = quotas.clock.monotonic_ns
        self._spent_ns = 0
        self._started_ns: int | None = self._now_ns()

    def __repr__(self) -> str:
        return f"HandlerTime({self.spent_ns} ns)"

    @property
    def spent_ns(self) -> int:
        """Until now."""
        running_ns = 0 if self._started_ns is None else self._now_ns() - self._started_ns
        return self._spent_ns + running_ns

    def pause(self) -> None:
        """The handler waits from here on, or has returned. Harmless when it does already."""
        self._spent_ns, self._started_ns = self.spent_ns, None

    def resume(self) -> None:
        """The handler continues."""
        self.pause()
        self._started_ns = self._now_ns()

    def _client(self) -> QuotaClient:
        return self._quotas.client(self._connection.principal.name, self._client_id)

    def record(self) -> Violation | None:
        """Count the time so far for the client; once a request."""
        sensor = self._client().sensors.get(QuotaType.REQUEST)
        return None if sensor is None else sensor.record(self.spent_ns * PERCENT_PER_NS, self._quotas.clock)

    def throttled(self, body: Body) -> Body:
        """The answer, with the throttle time that the request costs its client; the connection is muted."""
        client = self._client()
        throttle_time_ms = self._quotas.slow_down(self._connection, client, self.record())
        if throttle_time_ms <= body.get("throttle_time", throttle_time_ms):
            return body
        return {**body, "throttle_time": throttle_time_ms}

    def measure_steps(self, steps: WorkSteps[T]) -> WorkSteps[T]:
        """``steps``, in which the time between them does not count. It runs on when they have ended."""
        while True:
            self.resume()
            try:
                waits_for = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            self.pause()
            yield waits_for

    def measure(self, work: Coroutine[Any, Any, AnyBody]) -> Steps:
        """To be awaited instead of ``work``: its steps are measured, its waiting is not."""
        return Steps(work, self)


class Steps:
    """A coroutine under a stop watch: an awaitable whose steps are those of ``work``."""

    __slots__ = ("_time", "_work")

    def __init__(self, work: Coroutine[Any, Any, AnyBody], time: HandlerTime) -> None:
        self._work = work
        self._time = time

    def __await__(self) -> Generator[Any, Any, AnyBody]:
        return cast(Generator[Any, Any, AnyBody], self)  # as far as an await needs one

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        return self._step(self._work.send, None)

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, error: BaseException) -> Any:
        return self._step(self._work.throw, error)

    def close(self) -> None:
        self._work.close()

    def _step(self, step: Callable[[Any], Any], argument: Any) -> Any:
        self._time.resume()
        try:
            return step(argument)
        finally:
            self._time.pause()
