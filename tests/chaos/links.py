"""The links between all processes of a chaos run: TCP relays that know who connects.

Each broker advertises its relay's port, so that clients and the other brokers come through it. Who that is is
found by the port that it connects from: every socket of a process is in its ``/proc``. So the link of two
brokers, and each of its directions, can be held back alone (``minikafka.testing.cluster``).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from minikafka.testing.cluster import CLIENTS, End, Flow, Network, Relay

T = TypeVar("T")


NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
"""``linux/netlink.h``, ``linux/sock_diag.h``."""
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""An interface and a cookie: not asked for."""
_INODE_AT = _HEADER.size + 4 + 48 + 16
"""In ``inet_diag_msg``: behind what it is, its addresses, and four counts."""


def socket_inode(local_port: int, remote_port: int) -> int | None:
    """Of the end with ``local_port`` of a connection on this machine.

    The kernel is asked for that socket (``sock_diag``). ``/proc/net/tcp`` has all: with ten thousand on the
    machine it takes 25 ms of CPU to read, for every connection, and the loop of the relays passes nothing on.
    """
    host = socket.inet_aton("127.0.0.1") + bytes(12)
    request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    request += struct.pack(">HH", local_port, remote_port) + host + host + _ANY
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, 1, 0, 0) + request)
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] == SOCK_DIAG_BY_FAMILY:
        return int.from_bytes(answer[_INODE_AT : _INODE_AT + 4], sys.byteorder)
    return _listed_inode(local_port, remote_port)  # it is gone, or the kernel cannot be asked


def _listed_inode(local_port: int, remote_port: int) -> int | None:
    # local and remote address, state, queues, timer, retransmissions, uid, time-out, inode
    line = rb":%04X [0-9A-F]{8}:%04X [0-9A-F]{2} \S+ \S+ \S+ +\d+ +\d+ (\d+) "
    found = re.search(line % (local_port, remote_port), Path("/proc/net/tcp").read_bytes())
    return None if found is None else int(found[1])


def has_socket(pid: int, inode: int) -> bool:
    """Whether a process holds that socket."""
    link = f"socket:[{inode}]"
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            for each in descriptors:
                try:
                    if os.readlink(each.path) == link:
                        return True
                except FileNotFoundError:
                    continue
    except FileNotFoundError:
        return False
    return False


class KnownRelay(Relay):
    """A relay to one broker, whose flows are those of whichever process connects."""

    def __init__(self, network: Network, node_id: int, target: Callable[[], tuple[str, int] | None]) -> None:
        super().__init__(Flow(), Flow(), target)
        self._network = network
        self._node_id = node_id
        self.pids: Callable[[], Mapping[int, int]] = dict
        """Of the brokers that run, by node id."""

    def flows(self, writer: asyncio.StreamWriter) -> tuple[Flow, Flow]:
        port = writer.get_extra_info("peername")[1]
        inode = socket_inode(port, self.port)
        source: End = CLIENTS
        if inode is not None:
            owners = (node_id for node_id, pid in self.pids().items() if has_socket(pid, inode))
            source = next(owners, CLIENTS)
        return self._network.flow(source, self._node_id), self._network.flow(self._node_id, source)


class Links:
    """All relays, in a thread with a loop of its own. Methods may be called from any thread."""

    def __init__(self, targets: Mapping[int, int]) -> None:
        """``targets``: the port that each broker listens at, by node id."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._network = Network()
        self._relays = {
            node_id: KnownRelay(self._network, node_id, lambda port=port: ("127.0.0.1", port))  # type: ignore[misc]
            for node_id, port in targets.items()
        }
        for relay in self._relays.values():
            self._await(relay.open())
        self.ports = {node_id: relay.port for node_id, relay in self._relays.items()}

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _do(self, work: Callable[[], object]) -> None:
        async def done() -> None:
            work()

        self._await(done())

    def know(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """Tell which processes the brokers are."""
        for relay in self._relays.values():
            relay.pids = pids

    def hold(self, source: End, target: End) -> None:
        """Nothing that ``source`` sends arrives at ``target`` any more; the other direction is as it was."""
        self._do(self._network.flow(source, target).hold)

    def isolate(self, node_id: int) -> None:
        """Nothing passes from or to a broker, its clients included."""
        for other in (*self.ports, CLIENTS):
            if other != node_id:
                self.hold(node_id, other)
                self.hold(other, node_id)

    def delay(self, source: End, target: End, delay_ms: float) -> None:
        def set_delay() -> None:
            self._network.flow(source, target).delay_ms = delay_ms

        self._do(set_delay)

    def drip(self, source: End, target: End, bytes_a_time: int) -> None:
        """Let what passes arrive in pieces of so many bytes."""

        def set_drip() -> None:
            self._network.flow(source, target).chunk_bytes = bytes_a_time

        self._do(set_drip)

    def cut(self, node_id: int) -> None:
        """Reset every connection to a broker."""
        self._await(self._relays[node_id].cut())

    def heal(self) -> None:
        """Everything passes."""
        self._do(lambda: [flow.release() for flow in self._network.flows()])

    def close(self) -> None:
        for relay in self._relays.values():
            self._await(relay.shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
