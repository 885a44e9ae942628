"""Sends files through a socket, as a broker does what it reads cold; but it is no broker.

What producers of a broker feel beside it is what the machine does to them while so much is read from the disk
and sent: the broker's own share of a cold read is what it costs them more than that.

    python tests/benchmarks/scale/file_sender.py FILE...

prints the port and sends the files to the first that connects. Linux and macOS; errors are tracebacks.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

PIECE_BYTES = 8 << 20
"""What the broker reads and sends at a time (``CONSUMER_ANSWER_BYTES_MAX``)."""


def send(peer: socket.socket, paths: Sequence[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            offset = 0
            while piece := os.pread(descriptor, PIECE_BYTES, offset):
                peer.sendall(piece)
                offset += len(piece)
                if not peer.recv(1):  # as a fetch asks for the next piece
                    return
        finally:
            os.close(descriptor)


def main(paths: Sequence[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        peer, _ = listening.accept()
        with peer:
            send(peer, paths)


if __name__ == "__main__":
    main(sys.argv[1:])
