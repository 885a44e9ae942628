"""A client that says just the bytes that a test wants."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    address: tuple[str, int],
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    host: str = "localhost",
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One request on a connection of its own."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    if body:
        lines.append(f"content-length: {len(body)}")
    return await say(
        address, "\r\n".join([*lines, "", ""]).encode() + body, is_head=method == "HEAD", tls=tls
    )


async def say(
    address: tuple[str, int], data: bytes, *, is_head: bool = False, tls: ssl.SSLContext | None = None
) -> Answer:
    """The answer to whatever ``data`` is."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*address, ssl=tls)
        try:
            writer.write(data)
            return await read_answer(reader, is_head=is_head)
        finally:
            writer.close()
            await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    size = 0 if is_head else int(headers["content-length"])
    return Answer(int(status.split()[1]), headers, await reader.readexactly(size))
