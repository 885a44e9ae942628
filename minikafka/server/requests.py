"""A request beside its content: who asks, what it is counted under, and how an error answers it.

A ``RequestContext`` is what a handler knows about a request besides its content. Errors in answers are
counted, and requests counted under names, as in Kafka's ``RequestChannel.updateErrorMetrics``; the counts
themselves are ``minikafka.metrics.request_metrics``. A ``KafkaError`` becomes fields of a response, or all of
it (``AbstractRequest.getErrorResponse``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from functools import cache
from types import NoneType
from typing import Any, Final
from uuid import UUID

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.flight_recorder import SlowRequest, cut
from minikafka.metrics.request_metrics import (
    RequestChannelMetrics,
    RequestMetrics,
    RequestTiming,
    SlowRequests,
)
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Connection, PendingResponse, Result
from minikafka.network.responses import BothObservers, UnfinishedRequest
from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, ApiKey
from minikafka.protocol.wire.codec import AnyBody, Body, RequestHeader, encode_response_buffers, field
from minikafka.protocol.wire.schema import REQUIRED, EntitySchema, FieldSchema, message_schema
from minikafka.server.client_quotas import ClientQuotas, HandlerTime, QuotaClient
from minikafka.steps import ELEMENTS_A_STEP, Steps
from minikafka.types import Buffer

_WITH_PARTS: Final = (list, tuple, Mapping, msgspec.Struct)
_WITHOUT_PARTS: Final = frozenset({int, str, bool, bytes, bytearray, memoryview, UUID, NoneType, ErrorCode})
"""What most fields are: known at a glance, where an abstract class has to be asked."""

_WAITS_AS_ASKED: Final = frozenset(
    {ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONTROLLED_SHUTDOWN}
)
"""Of these the remote time is no sign of slowness: they wait for records, for other members, for leaders that
move."""

MESSAGE_LENGTH_MAX = 4096
"""Characters. Messages repeat what the client sent, and a string of older versions ends at 32767 bytes."""

NO_ERROR: dict[str, Any] = {"error_code": ErrorCode.NONE, "error_message": None}

_EMPTY: Final[Mapping[str, Any]] = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": None}
"""By type; of all others the empty value is 0."""


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


def api_name(key: ApiKey) -> str:
    """Kafka's spelling: LIST_OFFSETS is ListOffsets."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def request_channel_metrics() -> RequestChannelMetrics:
    """For all APIs that this broker answers."""
    return RequestChannelMetrics(
        {int(key): api_name(key) for key in ANSWERED | BETWEEN_BROKERS},
        produce_key=ApiKey.PRODUCE,
        fetch_key=ApiKey.FETCH,
        frequent_keys=(ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    )


def fetch_metrics(metrics: RequestChannelMetrics, request: Any) -> RequestMetrics:
    """Those of a Fetch: followers count apart from consumers."""
    state = field(request, "replica_state", None)
    replica_id, _ = (request.replica_id, None) if state is None else state
    return metrics.fetch_follower if replica_id >= 0 else metrics.fetch_consumer


@cache
def fields_without_errors(api_key: int) -> frozenset[str]:
    """The names of fields in which no version of an API's response has an error code: to look for one in each
    of 10,000 ACLs takes as long as to write them."""
    key = ApiKey(api_key)
    with_errors: set[str] = set()
    without_errors: set[str] = set()

    def has_errors(schema: EntitySchema) -> bool:
        found = False
        for each in schema.fields:
            if each.name == "error_code":
                found = True
            elif each.entity is not None:
                below = has_errors(each.entity)
                (with_errors if below else without_errors).add(each.name)
                found = found or below
        return found

    versions = ANSWERED[key] if key in ANSWERED else BETWEEN_BROKERS[key]
    for version in range(versions.min, versions.max + 1):
        has_errors(message_schema(key, version, "response").body)
    return frozenset(without_errors - with_errors)


def error_codes(body: object, skipped: Set[str] = frozenset()) -> Iterator[int | None]:
    """Every error code but NONE in a response, however deep and in no order, and None after each step of the
    search. Fields in ``skipped`` have none."""
    unseen: list[Any] = [body]
    seen = 0
    while unseen:
        value = unseen.pop()
        if type(value) is dict:
            pass
        elif isinstance(value, msgspec.Struct):
            value = {name: getattr(value, name) for name in value.__struct_fields__}
        elif isinstance(value, tuple) and hasattr(value, "_asdict"):
            value = value._asdict()
        elif isinstance(value, list | tuple):
            if value and isinstance(value[0], _WITH_PARTS):  # the elements of an array are of one kind
                unseen += value
            continue
        elif not isinstance(value, Mapping):  # null, among entities
            continue
        for name, part in value.items():
            if name == "error_code":
                if part:
                    yield int(part)
            elif type(part) not in _WITHOUT_PARTS and name not in skipped and isinstance(part, _WITH_PARTS):
                unseen.append(part)
        seen += 1
        if seen % ELEMENTS_A_STEP == 0:
            yield None


def encode_answer(
    metrics: RequestChannelMetrics, context: RequestContext, body: AnyBody
) -> Steps[list[Buffer]]:
    """In steps: the buffers of a response. Its errors and its throttle time are counted, and what the request
    costs its client of a request quota is in it."""
    header = context.header
    asked = metrics.of(header.api_key)
    if isinstance(body, Mapping):
        if context.handler_time is not None:
            body = context.handler_time.throttled(body)
        if throttle_time_ms := body.get("throttle_time"):
            asked.note_throttle(throttle_time_ms)
    for code in error_codes(body, fields_without_errors(header.api_key)):
        if code is None:
            yield
        else:
            asked.note_error(code)
    return (
        yield from encode_response_buffers(
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            body=body,
        )
    )


class ClientRequestTiming(RequestTiming):
    """That of a request whose client is known: it is recorded as an event when it was slow."""

    __slots__ = ("_context", "_request", "_slow")

    def __init__(
        self,
        metrics: RequestMetrics,
        now_ns: Callable[[], int],
        context: RequestContext,
        slow: SlowRequests,
    ) -> None:
        super().__init__(
            metrics, now_ns, arrived_ns=context.connection.received_ns, size_bytes=context.size_bytes
        )
        self._request = metrics.name
        self._context = context
        self._slow = slow

    def ended(self, row: tuple[float, float, float, float, float]) -> None:
        super().ended(row)
        header, connection = self._context.header, self._context.connection
        duration_ms = sum(row)
        slow_ms = duration_ms - (row[2] if header.api_key in _WAITS_AS_ASKED else 0)
        if slow_ms < self._slow.from_ms:
            return
        queue_ms, local_ms, remote_ms, response_queue_ms, send_ms = map(int, row)
        self._slow.record(
            SlowRequest(
                request=self._request,
                client_id=cut(header.client_id or ""),
                connection=connection.peer,
                duration_ms=int(duration_ms),
                queue_ms=queue_ms,
                local_ms=local_ms,
                remote_ms=remote_ms,
                response_queue_ms=response_queue_ms,
                send_ms=send_ms,
            )
        )


def timed(timing: RequestTiming, result: Result) -> Result:
    """What a handler returned, with its stations told to ``timing`` from here on."""
    timing.handled()
    assert not isinstance(result, UnfinishedRequest)
    if result is None:
        return None
    if not isinstance(result, PendingResponse):
        buffers, result = result, PendingResponse()
        result.complete(buffers)
    result.observer = timing if result.observer is None else BothObservers(timing, result.observer)
    return result


def error_fields(error: KafkaError) -> dict[str, Any]:
    """``error_code`` and ``error_message``, the message cut to what every version can carry."""
    message = error.message
    if message is not None and len(message) > MESSAGE_LENGTH_MAX:
        message = f"{message[: MESSAGE_LENGTH_MAX - 1]}…"
    return {"error_code": error.code, "error_message": message}


def refusing_body(
    api_key: int, api_version: int, error: KafkaError, known: Mapping[str, Any] | None = None
) -> Body:
    """The body of a response of any API that says ``error`` wherever it has room for it: at the top, and with
    each of the things ``known``, by the names of the fields. All else is empty."""
    schema = message_schema(api_key, api_version, "response")
    return _answer(schema.body, known or {}, error_fields(error))


def _answer(schema: EntitySchema, known: Mapping[str, Any], error: Mapping[str, Any]) -> dict[str, Any]:
    """An entity with what is known of it and the error where it has room for one; all else is empty."""
    answer: dict[str, Any] = {}
    for wanted in schema.fields:
        if wanted.name in known:
            value = known[wanted.name]
            if wanted.entity is not None:
                value = [_answer(wanted.entity, each, error) for each in value]
            answer[wanted.name] = value
        elif wanted.name in error:
            answer[wanted.name] = error[wanted.name]
        elif wanted.default is REQUIRED:
            answer[wanted.name] = _empty(wanted)
    return answer


def _empty(wanted: FieldSchema) -> Any:
    if wanted.is_array:
        return None if wanted.nullable else ()
    if wanted.nullable:
        return None
    if wanted.entity is not None:
        return _answer(wanted.entity, {}, {})
    return _EMPTY.get(wanted.kafka_type or "", 0)
