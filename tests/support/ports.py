"""Ports for servers that other processes start, and start again: nobody else comes upon them meanwhile."""

from __future__ import annotations

import random
import socket

PORTS = range(12_000, 32_000)
"""Below those that systems give to whoever asks for any port, and to connections (Linux: 32768 and up)."""

_marks: list[socket.socket] = []
"""One for each port that was given out, as long as this process lives."""


def free_port() -> int:
    """A TCP port of loopback that nobody listens on, and that no test was given before. Its UDP namesake is
    held: that is how the tests of another process see that it is taken, listened on or not."""
    while True:
        port = random.choice(PORTS)
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
        else:
            _marks.append(mark)
            return port
