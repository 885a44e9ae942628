"""How a ``KafkaError`` becomes fields of a response, or all of it (``AbstractRequest.getErrorResponse``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.protocol.wire.schema import REQUIRED, EntitySchema, FieldSchema, message_schema

MESSAGE_LENGTH_MAX = 4096
"""Characters. Messages repeat what the client sent, and a string of older versions ends at 32767 bytes."""

NO_ERROR: dict[str, Any] = {"error_code": ErrorCode.NONE, "error_message": None}


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
    for field in schema.fields:
        if field.name in known:
            value = known[field.name]
            if field.entity is not None:
                value = [_answer(field.entity, each, error) for each in value]
            answer[field.name] = value
        elif field.name in error:
            answer[field.name] = error[field.name]
        elif field.default is REQUIRED:
            answer[field.name] = _empty(field)
    return answer


_EMPTY: Final[Mapping[str, Any]] = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": None}
"""By type; of all others the empty value is 0."""


def _empty(field: FieldSchema) -> Any:
    if field.is_array:
        return None if field.nullable else ()
    if field.nullable:
        return None
    if field.entity is not None:
        return _answer(field.entity, {}, {})
    return _EMPTY.get(field.kafka_type or "", 0)
