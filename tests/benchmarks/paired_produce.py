"""Brokers under the same produce load in turns of a fraction of a second: what one costs over the other.

The client sends finished frames over plain sockets and reads no more of the answers than their sizes, so the
brokers are the busy ones. Turns are short and many, because a busy machine's speed drifts within seconds:
neighbouring turns meet the same machine, and the median of their ratios has an interval to go with it.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request

TIMESTAMP_MS = 1_700_000_000_000
RECEIVE_BYTES = 1 << 16


class Workload(NamedTuple):
    """Each connection sends ``in_flight`` requests at once, and the next ones when all are answered: so the
    broker always finds as many of them together, whatever the machine does."""

    name: str
    connections: int
    in_flight: int
    records: int
    record_bytes: int

    def frame(self, topic: str) -> bytes:
        """One request."""
        value = b"x" * self.record_bytes
        batch = build_batch([Record(at, TIMESTAMP_MS, None, value, ()) for at in range(self.records)])
        data = {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
        body = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": [data]}
        return bytes(
            encode_request(
                api_key=ApiKey.PRODUCE, api_version=9, correlation_id=1, client_id="paired", body=body
            )
        )


WORKLOADS = (
    Workload("one record a request, 1 connection", 1, 5, 1, 100),
    Workload("one record a request, 50 connections", 50, 1, 1, 100),
    Workload("batches of 64 x 1 KB", 1, 5, 64, 1024),
)


class Turn(NamedTuple):
    """What one broker did in its turn."""

    requests_per_s: float
    cpu_us: float
    """Of the broker's process, for a request."""


class Load:
    """The connections to one broker, all with the same request."""

    def __init__(
        self,
        port: int,
        pid: int,
        workload: Workload,
        topic: str,
        *,
        log_in: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """``log_in``: what comes first on each connection."""
        self._pid = pid
        self._workload = workload
        self._frame = workload.frame(topic)
        self._selector = selectors.DefaultSelector()
        self._answer_bytes = 0
        for _ in range(workload.connections):
            peer = socket.create_connection(("127.0.0.1", port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if log_in is not None:
                log_in(peer)
            peer.sendall(self._frame)  # the answers have all the same size
            (size,) = (int.from_bytes(peer.recv(4, socket.MSG_WAITALL)),)
            peer.recv(size, socket.MSG_WAITALL)
            self._answer_bytes = 4 + size
            self._selector.register(peer, selectors.EVENT_READ)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._socket(key).close()
        self._selector.close()

    @staticmethod
    def _socket(key: selectors.SelectorKey) -> socket.socket:
        assert isinstance(key.fileobj, socket.socket)
        return key.fileobj

    def turn(self, seconds: float) -> Turn:
        """Keep the requests under way for so long, and wait for the answers of the last ones."""
        keys = list(self._selector.get_map().values())
        burst = self._frame * self._workload.in_flight
        owed_bytes = {key.fd: self._answer_bytes * self._workload.in_flight for key in keys}
        bursts, waiting = len(keys), len(keys)
        cpu_ns, began = cpu_nanoseconds(self._pid), time.perf_counter()
        for key in keys:
            self._socket(key).sendall(burst)
        while waiting:
            for key, _ in self._selector.select(10):
                peer = self._socket(key)
                owed_bytes[key.fd] -= len(peer.recv(RECEIVE_BYTES))
                if owed_bytes[key.fd]:
                    continue
                if time.perf_counter() - began > seconds:
                    waiting -= 1
                    continue
                owed_bytes[key.fd] = self._answer_bytes * self._workload.in_flight
                bursts += 1
                peer.sendall(burst)
        spent, answered = time.perf_counter() - began, bursts * self._workload.in_flight
        return Turn(answered / spent, (cpu_nanoseconds(self._pid) - cpu_ns) / 1000 / answered)


def cpu_nanoseconds(pid: int) -> int:
    """What all threads of a process have used (Linux)."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total


def in_turns(loads: Mapping[str, Load], *, times: int, seconds: float) -> Iterator[dict[str, Turn]]:
    """Each broker's turn, time after time; who begins changes."""
    names = list(loads)
    for number in range(times):
        first = number % len(names)
        yield {name: loads[name].turn(seconds) for name in names[first:] + names[:first]}


def undisturbed(values: list[float], *, most: bool) -> float:
    """The limit of the best tenth."""
    deciles = statistics.quantiles(values, n=10)
    return deciles[-1] if most else deciles[0]


def median_interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median, and between which of the values the true one lies with 95 % (by order statistics)."""
    ordered = sorted(ratios)
    half = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - half))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + half))
    return statistics.median(ordered), ordered[low], ordered[high]
