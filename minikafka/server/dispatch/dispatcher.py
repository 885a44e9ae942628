"""From a frame to the handler of its API, and from the handler's answer to the bytes that leave.

Kafka's ``SocketServer`` (the parsing half) and ``KafkaApis.handle``. Called synchronously for every frame,
so a request that needs no waiting costs no task, queue or future.

What Kafka does with a request that it cannot serve, and so do we:
- an api key that Kafka's broker listener has and this broker has not: UNSUPPORTED_VERSION, in the schema of
  that API, as Kafka answers an API of a feature that is off (``apis.refusal``);
- an unknown api key, or one of Kafka's controllers: the connection closes;
- an unsupported version of ApiVersions: answered in version 0 with UNSUPPORTED_VERSION and the range of
  ApiVersions itself, so that the client can try again (KIP-511);
- an unsupported version of anything else: the connection closes; no answer could be read by a client that
  ignored what ApiVersions told it. Each comes with a log line that names the peer, the API and the version.

All this is so, too, of a release that is imitated (``api.versions``), with its APIs and its versions.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from minikafka.deferred import deferred
from minikafka.errors import InvariantError, PeerProtocolError
from minikafka.metrics.request_metrics import RequestMetrics
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Connection, PendingResponse, Result
from minikafka.network.responses import UnfinishedRequest
from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, ApiKey, Release, VersionRange
from minikafka.protocol.wire.codec import (
    AnyBody,
    RequestHeader,
    decode_request,
    encode_response,
    read_request_header,
)
from minikafka.server.apis import api_versions
from minikafka.server.client_quotas import HandlerTime
from minikafka.server.cluster import features
from minikafka.server.requests import ClientRequestTiming, RequestContext, encode_answer, fetch_metrics, timed
from minikafka.server.runtime.fast_paths import FastPath
from minikafka.server.services import Services
from minikafka.steps import Steps, finish
from minikafka.types import Buffer

if TYPE_CHECKING:
    from minikafka.server.apis import refusal
    from minikafka.server.dispatch import repeated_fetch, repeated_heartbeat, repeated_produce
else:
    refusal = deferred("minikafka.server.apis.refusal")
    repeated_fetch = deferred("minikafka.server.dispatch.repeated_fetch")
    repeated_heartbeat = deferred("minikafka.server.dispatch.repeated_heartbeat")
    repeated_produce = deferred("minikafka.server.dispatch.repeated_produce")

Answer = AnyBody | Result | Coroutine[Any, Any, AnyBody]
Handler = Callable[[Services, RequestContext, Any], Answer | Steps[Answer]]
"""One API. A body is encoded in the version of the request; finished buffers leave as they are. A handler
that goes through the elements of a request is a generator (``minikafka.steps``)."""

REMEMBERED_FRAME_BYTES = 64 * 1024
"""A larger Fetch is not compared with the last one: that would be thousands of partitions at once."""

_VERSIONS = ANSWERED | BETWEEN_BROKERS

_LARGE_ANSWERS = frozenset(
    {
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.SHARE_FETCH,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.FETCH,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
    }
)
"""A few bytes may ask for megabytes: these wait while unread answers have the memory for responses. The
answers of all others are about as large as their requests, and those are counted."""

_FAST_PATHS: Final = {
    int(ApiKey.PRODUCE): FastPath.PRODUCE,
    int(ApiKey.FETCH): FastPath.FETCH,
    int(ApiKey.HEARTBEAT): FastPath.HEARTBEAT,
    int(ApiKey.CONSUMER_GROUP_HEARTBEAT): FastPath.HEARTBEAT,
}

_FINISHED = (tuple, list, PendingResponse)
"""Answers that need no encoding. Named, because a union in the call would be built for every request."""
_BODIES = (dict, msgspec.Struct, Mapping)
"""Answers to encode: what nearly all are first, since an abstract class takes a call to ask."""


class _Route(NamedTuple):
    """Where the requests of one API go."""

    versions: VersionRange
    handler: Handler
    metrics: RequestMetrics
    answer_may_be_large: bool


def _while_at_a_level(feature: str, handler: Handler) -> Handler:
    """``handler``, which refuses while the feature is switched off."""

    def handle(services: Services, context: RequestContext, request: Any) -> Answer | Steps[Answer]:
        is_on = services.features.level(feature) != features.NO_LEVEL
        return (handler if is_on else refusal.handle)(services, context, request)

    return handle


class Dispatcher:
    """The ``Handler`` of a socket server: frame in, response out."""

    def __init__(
        self, services: Services, handlers: Mapping[ApiKey, Handler], *, imitated: Release | None = None
    ) -> None:
        """``imitated``: what others than our own brokers and tools get."""
        self._services = services
        self._client_quotas = services.client_quotas
        self._fast_paths = services.fast_paths
        self._now_ns = services.clock.monotonic_ns
        self._handlers = handlers
        self._routes: dict[int, _Route] = {}
        """Of the APIs that were asked for: who never is need not be imported."""
        self._imitated = imitated
        self._imitated_routes: dict[int, _Route] = {}

    def __call__(self, connection: Connection, frame: Buffer) -> Result:
        """Serve one request.

        Raises:
            PeerProtocolError: the connection must close, and why.
        """
        memory = connection.memory
        if memory is not None and memory.epoch == self._fast_paths.epoch:
            repeated: Result = memory.serve(frame)
            if repeated is not None:
                return repeated
        header = read_request_header(frame)
        route: _Route | None
        if self._imitated is not None and self._imitated.advertises_to(connection.client_software_name):
            route = self._imitated_routes.get(header.api_key) or self._imitated_route(header, self._imitated)
        else:
            route = self._routes.get(header.api_key) or self._new_route(header)
        if not route.versions.min <= header.api_version <= route.versions.max:
            return self._unsupported_version(header, route.versions)
        handler_time = None
        if self._client_quotas.times_requests and header.api_key not in BETWEEN_BROKERS:
            handler_time = HandlerTime(self._client_quotas, connection, header.client_id)
        context = RequestContext(connection, header, len(frame), handler_time)
        steps = self._serve(route, context, frame)
        if handler_time is not None:
            steps = handler_time.measure_steps(steps)
        if not route.answer_may_be_large:
            return self._services.scheduler.run(steps)
        for_records = header.api_key == ApiKey.FETCH
        if not connection.has_room(for_records=for_records):
            steps = _while_there_is_room(connection, steps, for_records=for_records)
        result: Result = self._services.scheduler.run(steps, answer_may_be_large=True)
        if isinstance(result, UnfinishedRequest):  # others are answered before its next step
            result.steps = _while_there_is_room(connection, result.steps, for_records=for_records)
        return result

    def _serve(self, route: _Route, context: RequestContext, frame: Buffer) -> Steps[Result]:
        """In steps: decode, count, remember what the next one may be like, have it handled, encode."""
        request = yield from decode_request(context.header, frame)
        header, metrics, timing = context.header, route.metrics, None
        if header.api_key == ApiKey.FETCH:
            metrics = fetch_metrics(self._services.request_metrics, request)
        path = _FAST_PATHS.get(header.api_key)
        if path in self._fast_paths.on:
            self._remember(path, context, request, frame)
        if metrics.note(header.api_version):
            timing = ClientRequestTiming(metrics, self._now_ns, context, self._services.request_metrics.slow)
        answer = route.handler(self._services, context, request)
        if isinstance(answer, GeneratorType):
            answer = yield from answer
        result: Result
        if answer is None or isinstance(answer, _FINISHED):
            if context.handler_time is not None:
                context.handler_time.pause()
            result = answer
        elif isinstance(answer, _BODIES):
            result = yield from encode_answer(self._services.request_metrics, context, answer)
        elif isinstance(answer, Coroutine):
            result = self._answer_later(route, context, answer)
        else:
            raise InvariantError(f"{ApiKey(context.header.api_key).name} answered {answer!r}")
        return result if timing is None else timed(timing, result)

    def _new_route(self, header: RequestHeader) -> _Route:
        if header.api_key not in self._handlers:
            raise PeerProtocolError(f"unknown api key {header.api_key} (version {header.api_version})")
        key = ApiKey(header.api_key)
        metrics = self._services.request_metrics.of(key)
        handler = self._handlers[key]
        if key in features.APIS:
            handler = _while_at_a_level(features.APIS[key], handler)
        route = _Route(_VERSIONS[key], handler, metrics, key in _LARGE_ANSWERS)
        self._routes[key] = route
        return route

    def _imitated_route(self, header: RequestHeader, release: Release) -> _Route:
        """The route that a broker of ``release`` has."""
        route = self._routes.get(header.api_key) or self._new_route(header)
        key = ApiKey(header.api_key)
        advertised = release.advertised.get(key)
        if advertised is None:
            raise PeerProtocolError(f"unknown api key {key} (version {header.api_version})")
        versions = VersionRange(
            max(route.versions.min, advertised.min), min(route.versions.max, advertised.max)
        )
        handler = refusal.handle if key in release.switched_off else route.handler
        route = route._replace(versions=versions, handler=handler)
        self._imitated_routes[key] = route
        return route

    def _remember(self, path: FastPath, context: RequestContext, request: Any, frame: Buffer) -> None:
        """On a connection that produces or fetches, that is what is worth remembering. Nothing of a client
        that has a quota; of a heartbeat only its time counts, and that of all while any is to be counted."""
        connection, header, memory = context.connection, context.header, context.connection.memory
        if path is FastPath.HEARTBEAT:
            preferred = (repeated_produce.RepeatedProduce, repeated_fetch.RepeatedFetch)
            if not (self._client_quotas.times_requests or isinstance(memory, preferred)):
                connection.memory = repeated_heartbeat.RepeatedHeartbeat.of(
                    self._services, context, request, frame
                )
        elif self._client_quotas.client(connection.principal.name, header.client_id).is_limited:
            return
        elif path is FastPath.PRODUCE:
            if not isinstance(memory, repeated_produce.RepeatedProduce):
                memory = connection.memory = repeated_produce.RepeatedProduce(self._services, connection)
            memory.remember(header, request, memoryview(frame))
        elif isinstance(memory, repeated_produce.RepeatedProduce):
            return
        elif len(frame) <= REMEMBERED_FRAME_BYTES:
            view = memoryview(frame)
            if not (isinstance(memory, repeated_fetch.RepeatedFetch) and memory.is_like(view)):
                found = repeated_fetch.RepeatedFetch.of(self._services, context, request, view)
                connection.memory = found or memory

    def _answer_later(
        self, route: _Route, context: RequestContext, work: Coroutine[Any, Any, AnyBody]
    ) -> PendingResponse:
        pending = PendingResponse()
        handler_time = context.handler_time
        if handler_time is not None:
            handler_time.pause()

        async def answer() -> None:
            try:
                body = await (work if handler_time is None else handler_time.measure(work))
                buffers = await self._services.scheduler.finished(
                    encode_answer(self._services.request_metrics, context, body),
                    answer_may_be_large=route.answer_may_be_large,
                )
            except BaseException:
                pending.abandon()
                raise
            pending.complete(buffers)

        self._services.supervisor.start(ApiKey(context.header.api_key).name, answer)
        return pending

    def _unsupported_version(self, header: RequestHeader, versions: VersionRange) -> Result:
        name = ApiKey(header.api_key).name
        if header.api_key == ApiKey.API_VERSIONS:
            body = api_versions.unsupported_version(versions)
            steps = encode_response(
                api_key=header.api_key, api_version=0, correlation_id=header.correlation_id, body=body
            )
            return (finish(steps),)
        raise PeerProtocolError(
            f"UNSUPPORTED_VERSION: {name} version {header.api_version}, "
            f"this broker speaks {versions.min} to {versions.max}"
        )


def _while_there_is_room(connection: Connection, steps: Steps[Result], *, for_records: bool) -> Steps[Result]:
    """``steps``, none of which is taken while there is none: the answers of hundreds that have begun at the
    same moment would be made one after the other. No answer for a connection that has closed meanwhile."""
    while True:
        has_room = connection.has_room(for_records=for_records)
        if not (has_room or (yield from connection.wait_for_room(for_records=for_records))):
            steps.close()
            return None
        try:
            waits_for = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        yield waits_for
