"""A request of this broker to itself: the handler that answers others, called without a connection.

Kafka connects to itself for the markers of transactions. Here the request becomes what it would be after its
way over the wire, and so does the answer; a handler that looks at the connection cannot be asked so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, cast

from minikafka.network.broker_client import BrokerUnavailable
from minikafka.network.connection import Connection, PendingResponse
from minikafka.network.responses import ResponseQueue
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import (
    Body,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from minikafka.server.apis import HANDLERS
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

SIZE_BYTES = 4
"""The size that precedes a frame."""

NO_CONNECTION = cast(Connection, None)


async def ask_own_broker(services: Services, api_key: ApiKey, body: Body) -> Any:
    """The entity of the response.

    Raises:
        BrokerUnavailable: the handler gives no answer.
    """
    version = SUPPORTED[api_key].max
    frame = encode_request(api_key=api_key, api_version=version, correlation_id=0, client_id=None, body=body)[
        SIZE_BYTES:
    ]
    header = read_request_header(frame)
    context = RequestContext(NO_CONNECTION, header, len(frame))
    answer = HANDLERS[api_key](services, context, decode_request(header, frame))
    if isinstance(answer, Generator):
        answer = await services.turns.finished(answer)
    if isinstance(answer, Coroutine):
        answer = await answer
    if isinstance(answer, tuple):
        response = b"".join(answer)
    elif isinstance(answer, PendingResponse):
        response = await _completed(answer)
    else:
        response = encode_response(api_key=api_key, api_version=version, correlation_id=0, body=answer)
    return decode_response(api_key=api_key, api_version=version, frame=response[SIZE_BYTES:])[1]


async def _completed(pending: PendingResponse) -> bytes:
    """The bytes of a response that comes later. Raises BrokerUnavailable: none will."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def resolved(error: BrokerUnavailable | None = None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    queue = ResponseQueue(
        changed=resolved, abandoned=lambda: resolved(BrokerUnavailable("this broker gives no answer"))
    )
    queue.add(pending)
    if not queue.out:
        await done
    return b"".join(queue.out)
