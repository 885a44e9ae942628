"""A member's next heartbeat, served without reading again what did not change.

The fast path of ``apis/groups`` and ``apis/consumer_groups`` for what an idle member says every
three seconds: the request of last time, but for its correlation id. So it is not decoded again, and when the
group answers what it did last time neither is the answer encoded again. The group is asked as on the slow
path, by the same call, and what it does is its own affair. While a request quota is set anywhere all requests
take the slow path. When what is remembered is dropped: ``runtime.fast_paths``.

What it brings (``bin/bench fast_paths``, median of pairs): 2.33 × the rate, 2.74 × as many for the same CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minikafka.deferred import deferred
from minikafka.errors import ErrorCode
from minikafka.metrics.request_metrics import RequestTiming
from minikafka.network.connection import PendingResponse, Result
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.apis.shared.coordinator_requests import error_code
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.requests import RequestContext, encode_answer, timed
from minikafka.server.services import Services
from minikafka.steps import finish
from minikafka.types import Buffer

if TYPE_CHECKING:
    from minikafka.server.apis import consumer_groups
    from minikafka.server.apis import groups as classic_groups
else:
    classic_groups = deferred("minikafka.server.apis.groups")
    consumer_groups = deferred("minikafka.server.apis.consumer_groups")

QUESTIONS: Final = {
    int(ApiKey.HEARTBEAT): classic_groups,
    int(ApiKey.CONSUMER_GROUP_HEARTBEAT): consumer_groups,
}

_CORRELATION_ID: Final = slice(4, 8)
"""In a request without its size, and in a response with it."""


class RepeatedHeartbeat:
    """What a connection's handler remembers of its last heartbeat."""

    __slots__ = (
        "_after_id", "_answer", "_answered", "_before_id", "_context", "_metrics", "_question", "_services",
        "epoch",
    )  # fmt: skip

    def __init__(self, services: Services, context: RequestContext, request: Any, frame: Buffer) -> None:
        data = bytes(frame)
        self.epoch = services.fast_paths.epoch
        self._services = services
        self._metrics = services.request_metrics.of(context.header.api_key)
        self._context = context
        self._question = QUESTIONS[context.header.api_key].question(services, context, request)
        self._before_id = data[: _CORRELATION_ID.start]
        self._after_id = data[_CORRELATION_ID.stop :]
        self._answered: Any = None
        """The last result without an error, and its response: errors are counted as they are encoded."""
        self._answer = b""

    def __repr__(self) -> str:
        return f"RepeatedHeartbeat({self._question.group_id!r}, last answer {self._answered!r})"

    @classmethod
    def of(
        cls, services: Services, context: RequestContext, request: Any, frame: Buffer
    ) -> RepeatedHeartbeat | None:
        """What to expect after ``request``, which is being served the usual way; None: that refuses it. What
        repeats it names the same group and topics, and comes from the same principal
        (``Connection.hand_over``); a change of the rules begins a new epoch (``runtime.fast_paths``)."""
        if services.authorizer is not None:
            asked = QUESTIONS[context.header.api_key]
            if asked.refusal(services, context, request, logs=False) is not None:
                return None
        return cls(services, context, request, frame)

    def serve(self, frame: Buffer) -> Result:
        """The answer, if ``frame`` is that request again; None: serve it the usual way."""
        data = bytes(frame)
        if data[_CORRELATION_ID.stop :] != self._after_id or data[: _CORRELATION_ID.start] != self._before_id:
            return None
        if self._context.header.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT and self._matches_much():
            return None
        if not self._metrics.note(self._context.header.api_version):
            return self._ask(data[_CORRELATION_ID])
        timing = RequestTiming(
            self._metrics,
            self._services.clock.monotonic_ns,
            arrived_ns=self._context.connection.received_ns,
            size_bytes=len(data),
        )
        return timed(timing, self._ask(data[_CORRELATION_ID]))

    def _matches_much(self) -> bool:
        """Whether the group looks at regular expressions now: the slow path matches them in slices first."""
        has_rules = self._services.authorizer is not None
        return bool(self._services.groups.regexes_due(self._question.group_id, has_rules=has_rules))

    def _ask(self, correlation_id: bytes) -> Result:
        answer = HeartbeatAnswer(self, correlation_id)
        group_id, call, _ = self._question
        self._services.groups.ask(group_id, call, answer)
        return answer.promise() if answer.response is None else answer.response

    def response_to(self, result: Any, correlation_id: bytes) -> bytes:
        """The bytes of an answer."""
        if result == self._answered:
            answer = self._answer
            return answer[: _CORRELATION_ID.start] + correlation_id + answer[_CORRELATION_ID.stop :]
        header = self._context.header._replace(correlation_id=int.from_bytes(correlation_id, signed=True))
        context = self._context._replace(header=header)
        metrics = self._services.request_metrics
        answer = b"".join(finish(encode_answer(metrics, context, self._question.body(result))))
        if error_code(result) is ErrorCode.NONE:
            self._answered, self._answer = result, answer
        return answer


class HeartbeatAnswer(RequestTicket):
    """The response to a repeated heartbeat: its buffers, or a promise of them once it is waited for."""

    __slots__ = ("_correlation_id", "_heartbeat", "response")

    def __init__(self, asked: RepeatedHeartbeat, correlation_id: bytes) -> None:
        self._heartbeat = asked
        self._correlation_id = correlation_id
        self.response: PendingResponse | tuple[bytes] | None = None

    def answer(self, result: Any) -> None:
        pending = self.response
        if pending is not None and not (isinstance(pending, PendingResponse) and pending.is_waiting):
            return  # only the first answer counts, and none when the connection is gone
        try:
            buffers = (self._heartbeat.response_to(result, self._correlation_id),)
        except BaseException:
            self.promise().abandon()
            raise
        if pending is None:
            self.response = buffers
        else:
            pending.complete(buffers)

    def promise(self) -> PendingResponse:
        """For when there is no answer yet."""
        if self.response is None:
            self.response = PendingResponse()
        assert isinstance(self.response, PendingResponse)
        return self.response
