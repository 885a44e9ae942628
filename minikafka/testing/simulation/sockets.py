"""What simulated servers and transports show as their sockets: names, and options that nobody looks at."""

from __future__ import annotations

import socket
from typing import Any

Address = tuple[str, int]


class SimulatedSocket:
    """As much of a socket as asyncio's users may ask of one."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, sockname: Address, peername: Address | None = None) -> None:
        self._sockname = sockname
        self._peername = peername
        self._options: dict[tuple[int, int], Any] = {}

    def __repr__(self) -> str:
        return f"SimulatedSocket({self._sockname}, {self._peername})"

    def getsockname(self) -> Address:
        return self._sockname

    def getpeername(self) -> Address:
        if self._peername is None:
            raise OSError("the socket is not connected")
        return self._peername

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self._options[level, name] = value

    def getsockopt(self, level: int, name: int) -> Any:
        return self._options.get((level, name), 0)

    def fileno(self) -> int:
        """None that the system knows."""
        return -1
