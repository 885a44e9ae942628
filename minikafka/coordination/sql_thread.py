"""The thread on which all SQL of the embedded store runs (``sqlite.SqliteStore``)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Call = Callable[[], object]


class SqlThread:
    """Runs a store's calls one after the other, and something else now and then while there are none. Calls
    must not raise.

    Instead of ``ThreadPoolExecutor``: polling from here costs one wake-up, from the event loop it takes two
    and a hop back, which is what an idle broker's CPU time mostly consists of.
    """

    def __init__(self, name: str, *, idle_call: Call, idle_interval: Callable[[], float | None]) -> None:
        """``idle_call`` runs when nothing was asked for ``idle_interval`` seconds; None: never."""
        self._idle_call = idle_call
        self._idle_interval = idle_interval
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()  # bounded by those who await
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> None:
        self._calls.put(call)

    def stop(self) -> None:
        """After the calls submitted so far. Does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=self._idle_interval())
            except queue.Empty:
                call = self._idle_call
            if call is None:
                return
            call()
