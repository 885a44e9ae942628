"""The end of connections that a client of asyncio has closed and does not wait for."""

from __future__ import annotations

import asyncio

DEADLINE_S = 30


async def connections_closed() -> None:
    """Wait until the running loop has no socket open.

    aiokafka closes its connections and goes on. Over TLS both sides say that they close; a loop that ends
    meanwhile leaves the socket to the garbage collector, which finds it in whatever test it runs in.

    Raises:
        TimeoutError: one is still open after ``DEADLINE_S``.
    """
    async with asyncio.timeout(DEADLINE_S):
        while _is_any_open(asyncio.get_running_loop()):  # noqa: ASYNC110 only their protocols are told
            await asyncio.sleep(0.01)


def _is_any_open(loop: asyncio.AbstractEventLoop) -> bool:
    transports = loop._transports  # type: ignore[attr-defined] # asyncio shows them nowhere else
    return any(transport._sock is not None for transport in transports.values())
