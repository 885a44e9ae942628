"""Reading the body of a key or a value behind its first two bytes, and saying why that cannot be done."""

from __future__ import annotations

from typing import Any, Final

from minikafka.errors import PeerProtocolError
from minikafka.protocol.wire.reading import ELEMENTS_MAX, MALFORMED, Reader

UNREADABLE: Final = (PeerProtocolError, *MALFORMED)
"""What ``read_body`` raises of a body that is not what its version says."""


def read_body(reader: Reader, data: bytes | memoryview) -> Any:
    return reader(memoryview(data), 2, [ELEMENTS_MAX])[0]


def why_unreadable(cause: Exception) -> str:
    if isinstance(cause, PeerProtocolError):
        return str(cause)
    return "a string is not UTF-8" if isinstance(cause, UnicodeDecodeError) else "it ends too early"
