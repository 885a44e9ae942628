"""Frames to headers and bodies, and back, for every API and version in ``api_versions``.

Kafka: ``RequestHeader``, ``RequestContext.parseRequest``, ``AbstractResponse.serialize``; header versions as
in ``ApiKeys.requestHeaderVersion`` (flexible requests have header 2, the client id in it is a legacy string
all the same, and ApiVersions has response header 0 always, KIP-511).

Decoded entities are named tuples with Kafka's field names in snake case (``reading``); bodies to encode are
plain dicts with the same names (``writing``). Both hold ints in milliseconds for durations and times.

Measured (µs, one topic with one partition; an empty Python call took 0.07; kio's own in parentheses): header
1.1 · decode Fetch v12 5.2 (2.2, but see ``schema``), Produce v10 2.8 (``produce_request``), 5.6 by the
slow path · encode Metadata v12 with 10 topics 91 (250), ApiVersions v3 34 (67).
"""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from minikafka.deferred import deferred
from minikafka.errors import InvariantError, PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.api_versions import (
    ANSWERED,
    BETWEEN_BROKERS,
    CONTROL_VALUES,
    FLEXIBLE_SINCE,
    ApiKey,
)
from minikafka.protocol.wire.reading import (
    ELEMENTS_MAX,
    MALFORMED,
    REQUEST_ELEMENTS_MAX,
    Budget,
    StepReader,
    compile_reader_in_steps,
    skip_tagged_fields,
)
from minikafka.protocol.wire.schema import Direction, message_schema, names_by_version
from minikafka.protocol.wire.writing import Body, FrameWriter, StepWriter, compile_writer_in_steps
from minikafka.steps import Steps, finish
from minikafka.types import Buffer

if TYPE_CHECKING:
    from minikafka.protocol.wire import control_bodies as bodies
    from minikafka.protocol.wire import produce_request
else:
    bodies = deferred("minikafka.protocol.wire.control_bodies")
    produce_request = deferred("minikafka.protocol.wire.produce_request")

__all__ = [
    "AnyBody",
    "Body",
    "RequestHeader",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "field",
    "read_request_header",
]

AnyBody = Body | msgspec.Struct
"""A dict for the public APIs, a struct of ``protocol.control`` for those between brokers."""

_REQUEST_HEADER = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_CLIENT_ID_START = _REQUEST_HEADER.size + _CLIENT_ID_LENGTH.size
_FRAME_SIZE = struct.Struct(">i")
_RESPONSE_PREFIX = struct.Struct(">ii")
_REQUEST_PREFIX = struct.Struct(">ihhi")
_CORRELATION_ID = struct.Struct(">i")

_NEVER_FLEXIBLE: Final = 32767
_HEADERS: Final = {
    int(key): (*versions, FLEXIBLE_SINCE.get(key, _NEVER_FLEXIBLE))
    for key, versions in (ANSWERED | BETWEEN_BROKERS).items()
}
_NOT_SUPPORTED: Final = (0, -1, 0)

_AT_ONCE: Final = frozenset(
    (
        ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.ELECT_LEADERS, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.UPDATE_FEATURES, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS,
    )
)  # fmt: skip
JOIN_ELEMENTS_MAX: Final = 1_000
"""Protocols of a member that joins. Clients have up to five; each is compared with those of every member."""

AT_ONCE_ELEMENTS_MAX: Final = 50_000
"""Array elements in a request that is answered in one go, at a microsecond or two each: of members, groups'
states, features. The largest that an honest client sends names the partitions of one group's member."""


_ELEMENTS_MAX: Final[dict[int, int]] = {
    **dict.fromkeys(_AT_ONCE, AT_ONCE_ELEMENTS_MAX),
    ApiKey.JOIN_GROUP: JOIN_ELEMENTS_MAX,
}
"""Array elements that a request may have, where not ``REQUEST_ELEMENTS_MAX``."""


class RequestHeader(NamedTuple):
    """What precedes a request's body.

    Of a request that is not supported only the first three fields are known, because the rest cannot be told
    apart.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request. An unknown api key or version is no error here: the caller decides.

    Raises:
        PeerProtocolError: the frame ends inside the header, or the header is malformed.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST_HEADER.unpack_from(frame)
        version_min, version_max, flexible_since = _HEADERS.get(api_key, _NOT_SUPPORTED)
        if not version_min <= api_version <= version_max:
            return RequestHeader(api_key, api_version, correlation_id, None, _REQUEST_HEADER.size)
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _REQUEST_HEADER.size)
        position = _CLIENT_ID_START
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_CLIENT_ID_START:position], "utf-8")
        elif length != -1:
            raise PeerProtocolError(f"a client id of {length} bytes")
        if position > len(frame):
            raise PeerProtocolError("a request ends inside its client id")
        if api_version >= flexible_since:
            # Byte 0: no tagged field, and no client sends one so far.
            position = (
                position + 1 if frame[position] == 0 else skip_tagged_fields(memoryview(frame), position)
            )
    except MALFORMED as error:
        raise PeerProtocolError(f"a malformed request header: {error}") from error
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, position))


def decode_request(header: RequestHeader, frame: Buffer) -> Steps[Any]:
    """In steps: the body of a request whose version is answered. Records in it are read-only views of
    ``frame``.

    Raises:
        PeerProtocolError: the body is not what its version says. Bytes after it are ignored, as in Kafka.
    """
    view = frame if isinstance(frame, memoryview) and frame.readonly else memoryview(frame).toreadonly()
    api_key, api_version = header.api_key, header.api_version
    if api_key == ApiKey.PRODUCE:
        try:
            return (yield from produce_request.read_produce_request(view, header.body_start, api_version))
        except MALFORMED as error:
            raise PeerProtocolError(f"malformed: Produce, version {api_version}: {error}") from error
    if api_key in CONTROL_VALUES and api_version == bodies.VERSION_OF_0_2:
        return bodies.decode_of_0_2(api_key, "request", view[header.body_start :])
    budget = [_ELEMENTS_MAX.get(api_key, REQUEST_ELEMENTS_MAX)]
    read = _reader(api_key, api_version, "request")
    request = yield from _read(read, view, header.body_start, budget, api_key, api_version)
    return bodies.from_kafka(api_key, "request", request) if api_key in CONTROL_VALUES else request


def encode_response(*, api_key: int, api_version: int, correlation_id: int, body: AnyBody) -> Steps[bytes]:
    """In steps: a whole response frame, size included.

    Raises:
        InvariantError: a field that no version has, a required one left out, a value that does not fit.
    """
    buffers = yield from encode_response_buffers(
        api_key=api_key, api_version=api_version, correlation_id=correlation_id, body=body
    )
    return b"".join(buffers)


def encode_response_buffers(
    *, api_key: int, api_version: int, correlation_id: int, body: AnyBody
) -> Steps[list[Buffer]]:
    """The same as the buffers that it consists of: records and other large values are not copied."""
    if isinstance(body, msgspec.Struct):
        if api_version == bodies.VERSION_OF_0_2:
            data = bodies.encode_for_0_2(body)
            return [_RESPONSE_PREFIX.pack(_CORRELATION_ID.size + len(data), correlation_id) + data]
        body = bodies.to_kafka(body)
    write, header_flexible = _writer(api_key, api_version, "response")
    out = FrameWriter(_RESPONSE_PREFIX.size)
    if header_flexible:
        out.append(0)
    yield from write(out, body)
    _RESPONSE_PREFIX.pack_into(out, 0, out.size_bytes - _FRAME_SIZE.size, correlation_id)
    return out.buffers()


def encode_request(
    *, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: AnyBody
) -> bytes:
    """A whole request frame, size included, for the side that plays the client.

    Raises:
        InvariantError: as ``encode_response``.
    """
    out = bytearray(_REQUEST_PREFIX.size)
    if client_id is None:
        out += _CLIENT_ID_LENGTH.pack(-1)
    else:
        data = client_id.encode()
        out += _CLIENT_ID_LENGTH.pack(len(data))
        out += data
    if isinstance(body, msgspec.Struct) and api_version == bodies.VERSION_OF_0_2:
        out += bodies.encode_for_0_2(body)
    else:
        if isinstance(body, msgspec.Struct):
            body = bodies.to_kafka(body)
        write, header_flexible = _writer(api_key, api_version, "request")
        if header_flexible:
            out.append(0)
        finish(write(out, body))
    size = len(out) - _FRAME_SIZE.size
    _REQUEST_PREFIX.pack_into(out, 0, size, api_key, api_version, correlation_id)
    return bytes(out)


def decode_response(*, api_key: int, api_version: int, frame: Buffer) -> tuple[int, Any]:
    """Correlation id and body of a response frame without its size. Records in it are views of ``frame``.

    Raises:
        PeerProtocolError: the frame is not such a response.
    """
    view = memoryview(frame).toreadonly()
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(view)
        position = _CORRELATION_ID.size
        if api_key in CONTROL_VALUES and api_version == bodies.VERSION_OF_0_2:
            return correlation_id, bodies.decode_of_0_2(api_key, "response", view[position:])
        if message_schema(api_key, api_version, "response").header_flexible:
            position = skip_tagged_fields(view, position)
    except MALFORMED as error:
        raise PeerProtocolError(f"a malformed response header: {error}") from error
    read = _reader(api_key, api_version, "response")
    response = finish(_read(read, view, position, [ELEMENTS_MAX], api_key, api_version))
    if api_key in CONTROL_VALUES:
        response = bodies.from_kafka(api_key, "response", response)
    return correlation_id, response


def field(entity: Any, name: str, default: Any) -> Any:
    """A field that only some versions have."""
    return getattr(entity, name, default)


def _read(
    read: StepReader, view: memoryview, position: int, budget: Budget, api_key: int, api_version: int
) -> Steps[Any]:
    try:
        entity, position = yield from read(view, position, budget)
    except MALFORMED as error:
        raise PeerProtocolError(f"malformed: api key {api_key}, version {api_version}: {error}") from error
    except PeerProtocolError as error:
        raise PeerProtocolError(f"malformed: api key {api_key}, version {api_version}: {error}") from error
    return entity


@cache
def _reader(api_key: int, api_version: int, direction: Direction) -> StepReader:
    return compile_reader_in_steps(message_schema(api_key, api_version, direction).body)


@cache
def _writer(api_key: int, api_version: int, direction: Direction) -> tuple[StepWriter, bool]:
    schema = message_schema(api_key, api_version, direction)

    write = compile_writer_in_steps(schema.body, partial(names_by_version, api_key, direction))

    def write_body(out: bytearray, body: Body) -> Steps[None]:
        try:
            yield from write(out, body)
        except InvariantError as error:
            raise InvariantError(f"{schema.api_name} {direction} v{api_version}: {error}") from error

    return write_body, schema.header_flexible
