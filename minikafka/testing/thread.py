"""``ThreadedBroker``: a broker for tests that have no event loop, on a loop in a thread of its own.

It also serves asynchronous tests whose loop the broker must not share (a test that blocks its loop, or a
fixture that outlives the test's loop), since clients reach it over TCP either way.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from minikafka.testing.broker import Broker, Property

START_TIMEOUT_S = 30.0
"""A start takes tens of milliseconds; a directory full of segments to recover takes longer."""


class ThreadedBroker:
    """A broker for the length of a ``with`` block::

        with ThreadedBroker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    Takes the arguments of ``minikafka.testing.Broker``. The attributes may be read from any thread.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, Property] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._broker = Broker(config=config, data_dir=data_dir, host=host)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return repr(self._broker).replace("testing.Broker", "testing.ThreadedBroker")

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._broker.port

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as every Kafka client takes it."""
        return self._broker.bootstrap_servers

    @property
    def data_dir(self) -> str:
        """Where the records are."""
        return self._broker.data_dir

    def start(self) -> None:
        """Start, or raise ``StartError`` or ``ConfigError`` and leave nothing behind."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="minikafka-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S:g} s")
        if self._error is not None:
            self._join()

    def stop(self) -> None:
        """Stop cleanly and wait for it; raises what went wrong inside, if anything did."""
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._join()

    def _join(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._loop = self._stop = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that started or stops the broker
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._broker:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> ThreadedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows, PyPy: the standard loop serves as well
        return asyncio.new_event_loop
    return uvloop.new_event_loop
