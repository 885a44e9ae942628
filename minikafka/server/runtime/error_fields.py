"""How a ``KafkaError`` becomes fields of a response."""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode, KafkaError

MESSAGE_LENGTH_MAX = 4096
"""Characters. Messages repeat what the client sent, and a string of older versions ends at 32767 bytes."""

NO_ERROR: dict[str, Any] = {"error_code": ErrorCode.NONE, "error_message": None}


def error_fields(error: KafkaError) -> dict[str, Any]:
    """``error_code`` and ``error_message``, the message cut to what every version can carry."""
    message = error.message
    if message is not None and len(message) > MESSAGE_LENGTH_MAX:
        message = f"{message[: MESSAGE_LENGTH_MAX - 1]}…"
    return {"error_code": error.code, "error_message": message}
