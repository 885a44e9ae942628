"""A recording: a file of JSON lines, a head and then requests and responses in the order in which they came.

    {"format":"minikafka-recording","version":1,"records":"hidden","brokers":[1]}
    {"type":"request","number":0,"ms":0.0,"connection":0,"broker":null,"client_id":"rdkafka","api":"METADATA","version":12,"body":{…}}
    {"type":"response","number":0,"ms":1.2,"body":{…}}

Bodies have Kafka's field names in snake case; ``{"$bytes": base64}`` stands for bytes and ``{"$uuid": text}``
for ids. A request without a response was not answered while it was recorded, or asks for no answer.

No secret is in it: logins, tokens and passwords are not kept, and keys, values and headers of records are
replaced by as many other bytes, equal ones by equal ones, unless they are asked for.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from minikafka.errors import MinikafkaError
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, iterate_headers, rewrite
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import Buffer

FORMAT: Final = "minikafka-recording"
VERSION: Final = 1

NEVER_KEPT: Final = frozenset(
    (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.PUSH_TELEMETRY,
    )
)
"""Secrets, and what clients say of themselves."""

_SECRET_NAME: Final = re.compile(r"password|secret|jaas|token|\bkey\b|keystore\.key", re.IGNORECASE)
HIDDEN: Final = "hidden"


class RecordingError(MinikafkaError):
    """A file is not a recording, or cannot be written; the message is for the person at the terminal."""


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    version: int
    records: Literal["hidden", "kept"]
    brokers: list[int]
    """The cluster's, by id."""


class Request(msgspec.Struct, frozen=True, tag_field="type", tag="request"):
    """A request as the client sent it."""

    number: int
    ms: float
    """Since the recording began."""
    connection: int
    broker: int | None
    """That the connection went to; None: the one that clients are given, any of the cluster."""
    client_id: str | None
    api: str
    """By Kafka's name (``ApiKeys``)."""
    version: int
    body: Any


class Response(msgspec.Struct, frozen=True, tag_field="type", tag="response"):
    """What was answered to the request of the same number."""

    number: int
    ms: float
    body: Any


Event = Request | Response

_decode_event = msgspec.json.Decoder(Event).decode
_decode_head = msgspec.json.Decoder(Head).decode


def read(path: Path) -> tuple[Head, Iterator[Event]]:
    """The head, and the rest as it is read. Raises RecordingError, also while it is read."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}") from None
    with file:
        try:
            head = _decode_head(file.readline())
        except msgspec.DecodeError:
            head = Head("", 0, "hidden", [])
    if head.format != FORMAT:
        raise RecordingError(f"{path} is not a recording of minikafka record")
    if head.version != VERSION:
        raise RecordingError(
            f"{path} has version {head.version} of recordings, this minikafka reads {VERSION}"
        )
    return head, _events(path)


def _events(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        file.readline()
        for number, line in enumerate(file, start=2):
            if not line.endswith(b"\n"):
                return  # the recorder was killed while it wrote
            try:
                yield _decode_event(line)
            except msgspec.DecodeError as error:
                raise RecordingError(f"{path}, line {number}: {error}") from None


def body_of(entity: Any) -> Any:
    """An entity of the codec as a body that it takes: named tuples become dicts, views bytes."""
    if isinstance(entity, tuple):
        if hasattr(entity, "_fields"):
            return {name: body_of(value) for name, value in zip(entity._fields, entity, strict=True)}
        return [body_of(each) for each in entity]
    if isinstance(entity, memoryview | bytearray):
        return bytes(entity)
    return entity


def plain(value: Any) -> Any:
    """A body as JSON has it."""
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case UUID():
            return {"$uuid": str(value)}
        case _:
            return value


def body_from(value: Any) -> Any:
    """The reverse of ``plain``."""
    match value:
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$uuid": str(text)}:
            return UUID(text)
        case dict():
            return {name: body_from(each) for name, each in value.items()}
        case list():
            return [body_from(each) for each in value]
        case _:
            return value


def without_secrets(body: Any) -> Any:
    """Values of properties whose name says that they are secret are ``hidden``."""
    match body:
        case {"name": str(name), "value": str(), **others} if _SECRET_NAME.search(name):
            return {"name": name, "value": HIDDEN, **others}
        case dict():
            return {name: without_secrets(each) for name, each in body.items()}
        case list():
            return [without_secrets(each) for each in body]
        case _:
            return body


class Disguise:
    """Replaces keys, values and header values of records: equal bytes by equal ones, of the same length."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)

    def of_body(self, body: Any) -> Any:
        """``body`` with all ``records`` in it disguised."""
        return with_records(body, self._of_batches)

    def _of_batches(self, data: bytes) -> bytes:
        try:
            return with_batches(data, self._of_batch)
        except MinikafkaError:  # nothing that a broker would take, or an older format
            return bytes(len(data))

    def _of_batch(self, batch: bytes, header: BatchHeader) -> bytes:
        if header.is_control:
            return batch
        records = [
            Record(
                each.offset,
                each.timestamp,
                self._of(each.key),
                self._of(each.value),
                tuple((name, self._of(value)) for name, value in each.headers),
            )
            for each in iterate_records(batch)
        ]
        return build_batch(
            records,
            base_offset=header.base_offset,
            compression=CompressionType(header.compression),
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            leader_epoch=header.partition_leader_epoch,
        )

    def _of(self, data: bytes | None) -> bytes | None:
        if not data:
            return data
        return hashlib.shake_128(self._salt + data).digest(len(data))


def with_records(body: Any, change: Callable[[bytes], bytes]) -> Any:
    """``body`` with ``change`` made to each field ``records``."""
    if isinstance(body, dict):
        return {
            name: change(value)
            if name == "records" and isinstance(value, bytes)
            else with_records(value, change)
            for name, value in body.items()
        }
    if isinstance(body, list):
        return [with_records(each, change) for each in body]
    return body


def with_batches(data: bytes, change: Callable[[bytes, BatchHeader], bytes]) -> bytes:
    """Batches one after the other, each changed; one that is cut off is dropped. Raises CorruptBatch."""
    return b"".join(
        change(data[position : position + header.size], header) for position, header in iterate_headers(data)
    )


def with_producer_ids(data: bytes, ids: Mapping[int, int]) -> bytes:
    """Batches with the producer ids that ``ids`` has for theirs."""

    def change(batch: bytes, header: BatchHeader) -> bytes:
        producer_id = ids.get(header.producer_id, header.producer_id)
        if producer_id == header.producer_id:
            return batch
        return rewrite(batch, header, producer_id=producer_id) + batch[HEADER_SIZE:]

    try:
        return with_batches(data, change) or data
    except MinikafkaError:
        return data


def records_in(data: Buffer | None) -> list[Any]:
    """What a consumer gets of a field ``records``: offset, whether a control record, key, value, headers."""
    if not data:
        return []
    data = bytes(data)
    return [
        (each.offset, header.is_control, each.key, each.value, each.headers)
        for position, header in iterate_headers(data)
        for each in iterate_records(data[position : position + header.size])
    ]
