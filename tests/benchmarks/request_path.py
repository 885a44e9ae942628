"""What one small Produce costs on the loop, with the accounting of requests and without it.

No sockets, no scheduler and no second process: frames go into a connection, and its transport drops the
answers. After each series of requests the code of the functions on the path is exchanged for that without
the accounting (``uncounted_broker``) or back, so that both meet the same machine: neighbouring series are a
pair.

The interpreter's instructions of a request are counted too. They say nothing of what each takes, but are the
same on every machine, however busy.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, cast

from minikafka.metrics.request_metrics import TIMED_ONE_IN
from tests.benchmarks.uncounted_broker import uncounted

SERIES_REQUESTS = 500
TRACED_REQUESTS = 5 * TIMED_ONE_IN
"""Among which as many are timed as there should be."""


class Owner:
    def connection_opened(self, connection: Any) -> bool:
        return True

    def connection_secured(self, connection: Any) -> None:
        pass

    def connection_closed(self, connection: Any) -> None:
        pass


class DiscardingTransport:
    """It drops what is written."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1


class RequestPath:
    """The functions that a small Produce passes, in both kinds."""

    def __init__(self) -> None:
        from minikafka.network.connection import Connection
        from minikafka.server.dispatch.repeated_produce import RepeatedProduce
        from minikafka.server.replica.replica_manager import ReplicaManager

        self._codes: list[tuple[FunctionType, CodeType, CodeType]] = []
        for owner, names in (
            (Connection, ("data_received", "_serve", "_flush")),
            (RepeatedProduce, ("serve",)),
            (ReplicaManager, ("append_to",)),
        ):
            stripped = self._stripped(owner)
            for name in names:
                function = getattr(owner, name)
                self._codes.append((function, function.__code__, getattr(stripped, name).__code__))

    def _stripped(self, owner: type) -> type:
        """The class as it would be without the accounting."""
        module = importlib.import_module(owner.__module__)
        path = module.__file__
        assert path is not None
        source = uncounted(owner.__module__, Path(path).read_text())
        namespace: dict[str, Any] = {"__name__": f"{owner.__module__}_uncounted"}
        sys.modules[namespace["__name__"]] = module
        exec(compile(source, path, "exec"), namespace)
        stripped: type = namespace[owner.__name__]
        return stripped

    def take(self, *, counted: bool) -> None:
        for function, with_counts, without in self._codes:
            function.__code__ = with_counts if counted else without


class Pair(NamedTuple):
    """One request, with the accounting and without."""

    counted: float
    uncounted: float


class Measured(NamedTuple):
    microseconds: list[Pair]
    """Of neighbouring series, which take turns in which begins."""
    instructions: Pair
    """The interpreter's."""


def instructions(do: Callable[[], None]) -> int:
    """How many the interpreter carries out in the functions that ``do`` calls."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


async def measure(frames_a_chunk: int, *, pairs: int) -> Measured:
    """So many pairs of series."""
    from minikafka.network.connection import Connection
    from minikafka.network.limits import MemoryBudget
    from minikafka.protocol.records.records import Record, build_batch
    from minikafka.protocol.wire.api_versions import ApiKey
    from minikafka.protocol.wire.codec import encode_request
    from minikafka.server.apis import HANDLERS
    from minikafka.server.dispatch.dispatcher import Dispatcher
    from minikafka.testing import Broker
    from minikafka.types import TopicPartition

    batch = build_batch([Record(0, 1_700_000_000_000, None, b"x" * 100, ())])
    partition = {"index": 0, "records": batch}
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [{"name": "requests", "partition_data": [partition]}],
    }
    async with Broker() as broker:
        services = broker.server.services
        await services.topics.create_topic("requests", partitions=1)
        await services.topics.wait_for_leaders("requests", partitions=1, timeout_ms=10_000)
        loop = asyncio.get_running_loop()
        connection = Connection(
            Dispatcher(services, HANDLERS),
            owner=Owner(),
            loop=loop,
            budget=MemoryBudget(1 << 30, call_soon=loop.call_soon),
            frame_bytes_max=1 << 20,
            listener_name="PLAINTEXT",
            now_ns=services.clock.monotonic_ns,
        )
        transport = DiscardingTransport()
        connection.connection_made(cast(asyncio.Transport, transport))
        chunks = [
            b"".join(
                encode_request(
                    api_key=ApiKey.PRODUCE,
                    api_version=9,
                    correlation_id=number,
                    client_id="requests",
                    body=body,
                )
                for number in range(frames_a_chunk)
            )
            for _ in range(SERIES_REQUESTS // frames_a_chunk)
        ]
        path = RequestPath()
        found = []
        for number in range(pairs):
            pair = {}
            for counted in (number % 2 == 0, number % 2 == 1):
                path.take(counted=counted)
                connection.data_received(chunks[0])  # the interpreter gets to know the code
                began = time.process_time_ns()
                for chunk in chunks:
                    connection.data_received(chunk)
                pair[counted] = (time.process_time_ns() - began) / 1000 / SERIES_REQUESTS
                await asyncio.sleep(0)
            found.append(Pair(pair[True], pair[False]))
        traced = {}
        chunks_traced = TRACED_REQUESTS // frames_a_chunk

        def serve() -> None:
            for _ in range(chunks_traced):
                connection.data_received(chunks[0])

        for counted in (True, False):
            path.take(counted=counted)
            traced[counted] = instructions(serve) / (chunks_traced * frames_a_chunk)
        path.take(counted=True)
        log = services.replica_manager.partition(TopicPartition("requests", 0)).log
        counts = services.replica_manager.stats.topics["requests"].value("messages_in")
        requests = pairs * (SERIES_REQUESTS + frames_a_chunk) + chunks_traced * frames_a_chunk
        assert log.log_end_offset == 2 * counts == 2 * requests
        return Measured(found, Pair(traced[True], traced[False]))
