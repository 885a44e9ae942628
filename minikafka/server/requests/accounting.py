"""What requests are counted under, and the errors in answers. Kafka: ``RequestChannel.updateErrorMetrics``.

The counts themselves are ``minikafka.metrics.request_metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from minikafka.metrics.request_metrics import RequestChannelMetrics, RequestMetrics, RequestTiming
from minikafka.network.connection import PendingResponse, Result
from minikafka.network.responses import UnfinishedRequest
from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, ApiKey
from minikafka.protocol.wire.codec import AnyBody, encode_response, field
from minikafka.server.requests.context import RequestContext
from minikafka.steps import ELEMENTS_A_STEP, Steps


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


def error_codes(body: object) -> Iterator[int | None]:
    """Every error code but NONE in a response, however deep, and None after each step of the search."""
    if isinstance(body, Mapping):
        for name, value in body.items():
            if name == "error_code":
                if value:
                    yield int(value)
            elif isinstance(value, list | tuple | Mapping | msgspec.Struct):
                yield from error_codes(value)
    elif isinstance(body, msgspec.Struct):
        yield from error_codes({name: getattr(body, name) for name in body.__struct_fields__})
    elif isinstance(body, tuple) and hasattr(body, "_asdict"):
        yield from error_codes(body._asdict())
    elif isinstance(body, list | tuple):
        for count, value in enumerate(body, start=1):
            if not isinstance(value, list | tuple | Mapping | msgspec.Struct):
                return  # the elements of an array are of one kind
            yield from error_codes(value)
            if count % ELEMENTS_A_STEP == 0:
                yield None


def encode_answer(metrics: RequestChannelMetrics, context: RequestContext, body: AnyBody) -> Steps[bytes]:
    """In steps: the bytes of a response. Its errors and its throttle time are counted, and what the request
    costs its client of a request quota is in it."""
    header = context.header
    asked = metrics.of(header.api_key)
    if isinstance(body, Mapping):
        if context.handler_time is not None:
            body = context.handler_time.throttled(body)
        if throttle_time_ms := body.get("throttle_time"):
            asked.note_throttle(throttle_time_ms)
    for code in error_codes(body):
        if code is None:
            yield
        else:
            asked.note_error(code)
    return (
        yield from encode_response(
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            body=body,
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
    result.observer = timing
    return result
