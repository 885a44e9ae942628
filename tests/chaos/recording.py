"""A client's history as it is written: one operation a line, as soon as its outcome is known."""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from minikafka.testing.history import Kind, Operation, Outcome, Record


def now_ms() -> float:
    """Of the machine's monotonic clock, which all processes share."""
    return time.monotonic() * 1000


def tell_stacks_on_request() -> None:
    """SIGQUIT writes to stderr where each thread is, also in a call of a C library that does not return, and
    ends the process."""
    faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)


def quiet_logger() -> logging.Logger:
    """For librdkafka, which reports lost connections: here losing them is the plan."""
    logger = logging.getLogger("tests.chaos")
    logger.setLevel(logging.CRITICAL)
    return logger


def ignore_passing_errors(_: object) -> None:
    """``error_cb`` of librdkafka's producers. Passing errors are the plan here. A fatal one does not come
    here: where there is such a callback, the library raises it from the next call, and else only logs it."""


class Recorder:
    """The history of one process, in a file of its own."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        """Its name in the history. A producer that has lost track of an order goes on under another."""
        self._file = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def write(self, kind: Kind, invoked_ms: float, outcome: Outcome, **fields: Any) -> None:
        """Record an operation that has ended now."""
        operation = Operation(
            process=fields.pop("process", self.process),
            kind=kind,
            invoked_ms=invoked_ms,
            completed_ms=now_ms(),
            outcome=outcome,
            **fields,
        )
        self._file.write(self._encoder.encode(operation) + b"\n")

    def sent(
        self,
        invoked_ms: float,
        record: Record,
        *,
        process: str,
        transaction: str = "",
        error: object = None,
    ) -> None:
        """One record was acknowledged; or, with ``error``, may have been written and may not."""
        outcome = Outcome.OK if error is None else Outcome.INFO
        self.write(
            Kind.SEND,
            invoked_ms,
            outcome,
            process=process,
            records=(record,),
            transaction=transaction,
            error="" if error is None else str(error),
        )

    def close(self) -> None:
        self._file.close()
