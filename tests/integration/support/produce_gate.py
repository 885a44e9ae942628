"""A relay to a broker whose Produce requests wait until a test lets them pass.

Everything else passes at once, but for what a client sends behind a waiting request: a connection's order
stays.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.reading import compile_reader
from minikafka.protocol.wire.schema import message_schema
from tests.integration.support import confluent

ELEMENTS_MAX = 1_000
FLEXIBLE_SINCE = 9
"""The version of Produce whose response header has tagged fields."""


class _Passage:
    """One connection: the client's end and the broker's, and what waits."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.waiting: deque[bytes] = deque()
        self.versions: dict[int, int] = {}
        """Of the Produce requests that wait for an answer, by correlation id."""

    def close(self) -> None:
        for each in (self.client, self.broker):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class ProduceGate:
    """Listens at ``port``. Methods are those of a test, in one thread."""

    def __init__(self, target: int) -> None:
        """``target``: the port that the broker listens at."""
        self.target = target
        self._lock = threading.RLock()
        self._is_held = False
        self._passages: list[_Passage] = []
        self._refuses_to_answer = False
        self.answers: list[ErrorCode] = []
        """The broker's to Produce requests, each of one partition, whether they were passed on or not."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name=f"gate to {target}", daemon=True).start()

    def hold(self) -> None:
        """Produce requests wait from now on."""
        with self._lock:
            self._is_held = True

    def release(self) -> None:
        """Nothing waits any more."""
        with self._lock:
            self._is_held = False
            for passage in self._passages:
                self._pass_on(passage)

    def wait_for(self, count: int) -> None:
        """Until so many Produce requests of one connection wait. Raises AssertionError at the deadline."""
        confluent.wait_until(lambda: self._longest(count), f"{count} Produce requests wait at the gate")

    def let_pass(self, count: int, *, answered: bool = True) -> None:
        """Pass on so many of the Produce requests that wait in the longest queue, and wait for the broker's
        answers. ``answered``: whether the client gets those."""
        with self._lock:
            self._refuses_to_answer = not answered
            expected = len(self.answers) + count
            passage = self._longest(count)
            assert passage is not None, f"there are no {count} Produce requests that wait"
            self._pass_on(passage, count)
        confluent.wait_until(lambda: len(self.answers) >= expected, "the broker answers Produce requests")

    def cut(self) -> None:
        """Close all connections; what waits in them is gone. Answers are given again to those that follow."""
        with self._lock:
            passages, self._passages = self._passages, []
            self._refuses_to_answer = False
        for passage in passages:
            passage.close()

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _longest(self, count: int) -> _Passage | None:
        with self._lock:
            for passage in self._passages:
                if sum(_is_produce(frame) for frame in passage.waiting) >= count:
                    return passage
        return None

    def _pass_on(self, passage: _Passage, count: int | None = None) -> None:
        """What waits, up to so many Produce requests; all without ``count``."""
        while passage.waiting and count != 0:
            frame = passage.waiting.popleft()
            if _is_produce(frame) and count is not None:
                count -= 1
            self._send(passage, frame)

    def _send(self, passage: _Passage, frame: bytes) -> None:
        if _is_produce(frame):
            version, correlation_id = struct.unpack_from(">hi", frame, 2)
            passage.versions[correlation_id] = version
        passage.broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return  # closed
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            passage = _Passage(client, broker)
            with self._lock:
                self._passages.append(passage)
            for pump in (self._requests, self._responses):
                threading.Thread(target=pump, args=(passage,), daemon=True).start()

    def _requests(self, passage: _Passage) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(passage.client):
                with self._lock:
                    if passage.waiting or (self._is_held and _is_produce(frame)):
                        passage.waiting.append(frame)
                    else:
                        self._send(passage, frame)
        passage.close()

    def _responses(self, passage: _Passage) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(passage.broker):
                version = passage.versions.pop(int.from_bytes(frame[:4], "big"), None)
                if version is not None:
                    with self._lock:
                        is_swallowed = self._refuses_to_answer
                        self.answers.append(_error_of(frame, version))
                    if is_swallowed:
                        continue
                passage.client.sendall(struct.pack(">i", len(frame)) + frame)
        passage.close()


def _is_produce(frame: bytes) -> bool:
    return int.from_bytes(frame[:2], "big") == ApiKey.PRODUCE


def _error_of(frame: bytes, version: int) -> ErrorCode:
    """Of the only partition in a Produce response."""
    body_start = 5 if version >= FLEXIBLE_SINCE else 4
    read = compile_reader(message_schema(ApiKey.PRODUCE, version, "response").body)
    answer, _ = read(memoryview(frame), body_start, [ELEMENTS_MAX])
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Without their sizes, until the peer closes."""
    with source.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            frame = stream.read(int.from_bytes(size, "big"))
            if not frame:
                return
            yield frame
