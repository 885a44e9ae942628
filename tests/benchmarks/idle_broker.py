"""What a stock client takes for a broker and what costs next to nothing: the other side of ``bench_ceiling``.

It is no broker. It keeps no record: it reads each Produce request off its socket, because answering one takes
that, adds the counts in the headers of its batches to its offsets, and acknowledges. A Fetch is answered with
batches that were built once: as many records as the offsets promise, as big as the topic's first one, all
zeros; only the base offset in front of a batch is its own. Left out are the check of CRCs and records, files,
replicas, groups (a consumer hears of a coordinator and cannot join), idempotence, transactions, retention,
fetch sessions, quotas, and waking who waits: a Fetch that finds no records takes as long as it may. Offsets
are right, so the load generator's own checks hold.

With ``--reads`` the batches of a Fetch come out of files in the page cache, as those of a broker that keeps
its log in files do: one ``preadv`` each, into memory that stays. It does nothing else more.

So the rate of a client beside it is what the client can do on this machine when the other side costs next to
nothing. A broker on the same machine could be faster only by what this one still costs, which the results of
the benchmark say, or by answering later: while a client waits it makes bigger batches, which cost it less.

Measured, on a busy machine: answers of 8 MiB suit librdkafka best, of 1 to 50 MiB. In the quietest runs
requests cost 0.17 CPU seconds a GB here, and 0.10 when the kernel drops their bytes unread (``MSG_TRUNC``),
which is no way for a broker.

``python -m tests.benchmarks.idle_broker [--reads]`` prints its address, and ends with its input. Each
connection has a thread that waits in the kernel; with one connection at work, as in the benchmark, none waits
for another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Any
from uuid import UUID, uuid4

import msgspec

from minikafka.errors import ErrorCode, PeerProtocolError
from minikafka.loadgen.targets import Address
from minikafka.protocol.records.batch import HEADER_SIZE, iterate_headers
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire import codec
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey, VersionRange
from minikafka.protocol.wire.codec import Body, RequestHeader, field
from minikafka.protocol.wire.fast_paths import (
    FetchPartitionResponse,
    ProducePartitionResponse,
)
from minikafka.types import Buffer
from tests.support.codec import decode_request, encode_response, fetch_response, produce_response

ROOT = Path(__file__).resolve().parents[2]
HOST, NODE_ID = "127.0.0.1", 1
ANSWER_BYTES_MAX = 8 << 20
"""Of a Fetch; the batch that crosses it is the last one."""
REQUEST_BYTES_MAX = 100 << 20
"""``socket.request.max.bytes``, Kafka's default."""
BATCHES_KEPT = 32
STORED_BYTES = 256 << 20
"""Of batches of one size. Far more than a processor caches."""
RECORD_OVERHEAD = 13
"""What a record without key and headers has around its value, at most."""
EARLIEST, LATEST = -2, -1
IOV_MAX = os.sysconf("SC_IOV_MAX")

SERVED: dict[int, VersionRange] = {
    ApiKey.PRODUCE: SUPPORTED[ApiKey.PRODUCE],
    ApiKey.FETCH: SUPPORTED[ApiKey.FETCH],
    ApiKey.LIST_OFFSETS: SUPPORTED[ApiKey.LIST_OFFSETS],
    ApiKey.METADATA: VersionRange(1, 11),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 3),
    ApiKey.API_VERSIONS: SUPPORTED[ApiKey.API_VERSIONS],
    ApiKey.CREATE_TOPICS: SUPPORTED[ApiKey.CREATE_TOPICS],
    ApiKey.DELETE_TOPICS: VersionRange(1, 5),
}
"""But for Metadata and DeleteTopics by topic id, and FindCoordinator for several keys."""

READS = "--reads"

_SIZE = Struct(">I")
_BASE_OFFSET = Struct(">q")


class Topic(msgspec.Struct):
    """``ends``: for each partition, the offset of the next record."""

    name: str
    topic_id: UUID
    ends: list[int]
    value_bytes: int = -1
    """Of the first record that came, and so of all that go."""


class IdleBroker(socketserver.ThreadingTCPServer):
    """See the module header."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *, reads_files: bool = False) -> None:
        super().__init__((HOST, 0), Connection)
        self._stored = Stored() if reads_files else None
        self._here = {"node_id": NODE_ID, "host": HOST, "port": int(self.server_address[1])}
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID | None, Topic] = {}
        self._lock = threading.Lock()
        self._bodies = {
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: lambda _: (
                self._here | {"throttle_time": 0, "error_code": 0, "error_message": None}
            ),
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.DELETE_TOPICS: self._delete_topics,
        }

    @property
    def address(self) -> str:
        return f"{HOST}:{self._here['port']}"

    def answer(self, frame: memoryview) -> list[Buffer]:
        """The buffers of the response to one request; none to a Produce with acks=0.

        Raises:
            PeerProtocolError: malformed, or an API or version that ApiVersions does not name.
        """
        header = codec.read_request_header(frame)
        key, version, correlation_id = header[:3]
        low, high = SERVED.get(key, (0, -1))
        if not low <= version <= high:
            raise PeerProtocolError(f"api key {key} is not served in version {version}")
        request = decode_request(header, frame)
        if key == ApiKey.PRODUCE:
            return self._produce(header, request)
        if key == ApiKey.FETCH:
            return self._fetch(header, request)
        body = self._bodies[ApiKey(key)](request)
        return [encode_response(api_key=key, api_version=version, correlation_id=correlation_id, body=body)]

    def _topic(self, name: str, topic_id: UUID | None, index: int) -> Topic | None:
        """The topic, by id or by name, if it has such a partition."""
        topic = self._by_id.get(topic_id) or self._topics.get(name)
        return topic if topic is not None and 0 <= index < len(topic.ends) else None

    def _produce(self, header: RequestHeader, request: Any) -> list[Buffer]:
        answers = []
        for data in request.topic_data:
            for index, records in data.partition_data:
                topic = self._topic(data.name, data.topic_id, index)
                code, base_offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
                if topic is not None:
                    code, base_offset = ErrorCode.NONE, self._count(topic, index, records or b"")
                answers.append(ProducePartitionResponse(data.name, data.topic_id, index, code, base_offset))
        return [produce_response(header, answers)] if request.acks else []

    def _count(self, topic: Topic, index: int, records: Buffer) -> int:
        """The offset of the first of these records."""
        count = sum(batch.record_count for _, batch in iterate_headers(records))
        if count and topic.value_bytes < 0:
            topic.value_bytes = len(next(iterate_records(records)).value or b"")
        with self._lock:
            base_offset = topic.ends[index]
            topic.ends[index] += count
        return base_offset

    def _fetch(self, header: RequestHeader, request: Any) -> list[Buffer]:
        left = min(request.max_bytes, ANSWER_BYTES_MAX)
        answers: list[FetchPartitionResponse] = []
        base_offsets: list[int] = []
        for asked in request.topics:
            name, topic_id = field(asked, "topic", ""), field(asked, "topic_id", None)
            for wanted in asked.partitions:
                index, offset = wanted.partition, wanted.fetch_offset
                topic = self._topic(name, topic_id, index)
                code, end, records = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, memoryview(b"")
                if topic is not None:
                    end = topic.ends[index]
                    code = ErrorCode.NONE if 0 <= offset <= end else ErrorCode.OFFSET_OUT_OF_RANGE
                    if 0 <= offset < end and left > 0:
                        records = batch(topic.value_bytes, end - offset, wanted.partition_max_bytes)
                        left -= len(records)
                        base_offsets.append(offset)
                answers.append(
                    FetchPartitionResponse(name, topic_id, index, code, end, end, 0, records=records)
                )
        if not base_offsets:
            time.sleep(request.max_wait / 1000)
        buffers: list[Buffer] = []
        for number, buffer in enumerate(fetch_response(header, answers)):
            if number % 2:  # fields and records alternate
                if self._stored is not None:
                    buffer = self._stored.read(buffer, number)
                buffers += (_BASE_OFFSET.pack(base_offsets[number // 2]), buffer[_BASE_OFFSET.size :])
            else:
                buffers.append(buffer)
        return buffers

    def _list_offsets(self, request: Any) -> Body:
        def found(name: str, index: int, timestamp: int) -> dict[str, Any]:
            topic, code, offset = self._topic(name, None, index), ErrorCode.NONE, -1
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif timestamp not in (EARLIEST, LATEST):
                code = ErrorCode.UNSUPPORTED_VERSION
            else:
                offset = topic.ends[index] if timestamp == LATEST else 0
            place = {"partition_index": index, "offset": offset, "timestamp": -1, "leader_epoch": 0}
            return place | {"error_code": code}

        topics = [
            {
                "name": asked.name,
                "partitions": [
                    found(asked.name, each.partition_index, each.timestamp) for each in asked.partitions
                ],
            }
            for asked in request.topics
        ]
        return {"throttle_time": 0, "topics": topics}

    def _metadata(self, request: Any) -> Body:
        names = list(self._topics) if request.topics is None else [asked.name for asked in request.topics]
        return {
            "throttle_time": 0,
            "brokers": [self._here | {"rack": None}],
            "cluster_id": "idle",
            "controller_id": NODE_ID,
            "topics": [self._described(name) for name in names],
        }

    def _described(self, name: str) -> dict[str, Any]:
        topic = self._topics.get(name)
        partition = {"error_code": 0, "leader_id": NODE_ID, "leader_epoch": 0, "offline_replicas": []}
        partition |= {"replica_nodes": [NODE_ID], "isr_nodes": [NODE_ID]}
        return {
            "error_code": ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "name": name,
            "topic_id": topic.topic_id if topic else None,
            "is_internal": False,
            "partitions": [
                partition | {"partition_index": index} for index in range(len(topic.ends) if topic else 0)
            ],
        }

    def _api_versions(self, _: Any) -> Body:
        keys = [
            {"api_key": key, "min_version": versions.min, "max_version": versions.max}
            for key, versions in SERVED.items()
        ]
        return {"error_code": 0, "api_keys": keys, "throttle_time": 0}

    def _create_topics(self, request: Any) -> Body:
        results = []
        for asked in request.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
            if asked.name not in self._topics:
                code, topic = ErrorCode.NONE, Topic(asked.name, uuid4(), [0] * max(asked.num_partitions, 1))
                self._topics[topic.name] = self._by_id[topic.topic_id] = topic
            results.append({"name": asked.name, "error_code": code, "error_message": None})
        return {"throttle_time": 0, "topics": results}

    def _delete_topics(self, request: Any) -> Body:
        results = []
        for name in request.topic_names:
            topic, code = self._topics.pop(name, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None:
                del self._by_id[topic.topic_id]
                code = ErrorCode.NONE
            results.append({"name": name, "error_code": code, "error_message": None})
        return {"throttle_time": 0, "responses": results}


class Stored:
    """Batches in files, so many copies of each that no cache of the processor holds what is read next."""

    def __init__(self) -> None:
        self._files: dict[int, tuple[int, int]] = {}
        """Descriptor and number of copies, by the size of the batch."""
        self._reads = 0
        self._memory = threading.local()

    def read(self, records: Buffer, number: int) -> Buffer:
        """The same bytes from a file, in memory that is kept for the ``number``-th buffer of an answer."""
        size = len(records)
        if size not in self._files:
            self._files[size] = self._write(records, STORED_BYTES // size + 1)
        descriptor, copies = self._files[size]
        kept: dict[int, bytearray] = self._memory.__dict__.setdefault("kept", {})
        if len(kept.get(number, b"")) < size:
            kept[number] = bytearray(size)
        view = memoryview(kept[number])[:size]
        self._reads += 1
        os.preadv(descriptor, [view], self._reads % copies * size)
        return view

    @staticmethod
    def _write(records: Buffer, copies: int) -> tuple[int, int]:
        descriptor = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR)
        for number in range(copies):
            os.pwrite(descriptor, records, number * len(records))
        return descriptor, copies


class Connection(socketserver.BaseRequestHandler):
    """The thread of one connection; its requests are read into one buffer, one after the other."""

    server: IdleBroker

    def handle(self) -> None:
        """Until the client leaves. Raises PeerProtocolError: it is cut off."""
        connection: socket.socket = self.request
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size, buffer = memoryview(bytearray(_SIZE.size)), memoryview(bytearray(2 << 20))
        with contextlib.suppress(ConnectionError):
            while read(connection, size):
                (length,) = _SIZE.unpack(size)
                if length > REQUEST_BYTES_MAX:
                    raise PeerProtocolError(f"a request of {length} bytes")
                if length > len(buffer):
                    buffer = memoryview(bytearray(length))
                if not read(connection, buffer[:length]):
                    return
                if buffers := self.server.answer(buffer[:length].toreadonly()):
                    send(connection, buffers)


def read(connection: socket.socket, buffer: memoryview) -> bool:
    """Fill it; False when the client has left. MSG_WAITALL holds the sender up: 0.49 s a GB, where this takes
    0.34 (the best of seven)."""
    filled = 0
    while filled < len(buffer):
        received = connection.recv_into(buffer[filled:])
        if not received:
            return False
        filled += received
    return True


def send(connection: socket.socket, buffers: list[Buffer]) -> None:
    """All of them, as a rule with one system call."""
    if len(buffers) > IOV_MAX:
        buffers = [b"".join(buffers)]
    sent = connection.sendmsg(buffers)
    if sent < sum(map(len, buffers)):
        connection.sendall(memoryview(b"".join(buffers))[sent:])


def batch(value_bytes: int, records: int, bytes_max: int) -> memoryview:
    """That many records from offset 0 on, or those that ``bytes_max`` has room for; at least one."""
    fitting = (bytes_max - HEADER_SIZE) // (value_bytes + RECORD_OVERHEAD)
    return _built(value_bytes, max(min(records, fitting), 1))


@lru_cache(BATCHES_KEPT)
def _built(value_bytes: int, records: int) -> memoryview:
    value = bytes(value_bytes)
    return memoryview(build_batch(Record(offset, 0, None, value) for offset in range(records)))


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Address]:
    """One in a process of its own; ended at the end. Raises RuntimeError: it did not start."""
    command = [sys.executable, "-m", "tests.benchmarks.idle_broker", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the idle broker ended with {process.wait()}")
        yield Address(address, (process.pid,))


def main() -> int:
    """Serve until standard input ends."""
    with IdleBroker(reads_files=READS in sys.argv[1:]) as broker:
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        print(broker.address, flush=True)
        sys.stdin.read()
        broker.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
