"""A worker process's side of the conversation with its parent, and what all kinds of workers share."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from confluent_kafka import KafkaError

from minikafka.loadgen.messages import (
    REPORT_INTERVAL_S,
    Command,
    Go,
    Recorder,
    Report,
    Stop,
    command_decoder,
    encoded,
)

_logger = logging.getLogger(__name__)

END = Stop()
"""The parent is gone, or wants us to be."""

_logger.addHandler(logging.NullHandler())
_logger.propagate = False

REASONS = (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._SSL, KafkaError._AUTHENTICATION)
"""Errors that say why there is no connection."""


class Station:
    """Commands come in, reports go out. A thread reads them, so that a worker looks without waiting."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._target = target
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._next_report_ns = 0
        self.is_stopped = False
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: BinaryIO) -> None:
        for line in source:
            self._commands.put(command_decoder.decode(line))
        self._commands.put(END)

    def send(self, report: Report) -> None:
        """A parent that is gone is not told; the end of our input says so."""
        with contextlib.suppress(BrokenPipeError):
            self._target.write(encoded(report))
            self._target.flush()

    def wait_for_go(self) -> int | None:
        """When time begins, ns; returns then. None when the parent says stop instead."""
        command = self._commands.get()
        if not isinstance(command, Go):
            self.is_stopped = True
            return None
        time.sleep(max(command.start_ns - time.monotonic_ns(), 0) / 1e9)
        return command.start_ns

    def command(self) -> Command | None:
        """The next one, if there is one. Stop is also noted in ``is_stopped``."""
        try:
            command = self._commands.get_nowait()
        except queue.Empty:
            return None
        self.is_stopped |= isinstance(command, Stop)
        return command

    def wait_for_end(self) -> None:
        """Until the parent closes our input."""
        while self._commands.get() is not END:
            pass

    def report_if_due(self, recorders: Iterable[Recorder]) -> None:
        """Intervals of these flows, about twice a second."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_report_ns:
            self._next_report_ns = now_ns + int(REPORT_INTERVAL_S * 1e9)
            self.report(recorders)

    def report(self, recorders: Iterable[Recorder]) -> None:
        """Intervals of these flows, now."""
        now_ns = time.monotonic_ns()
        for recorder in recorders:
            self.send(recorder.take(now_ns))


class Reachability:
    """Since when no broker can be reached, as librdkafka's error callback tells it; an answer ends that."""

    def __init__(self, bootstrap: str, give_up_s: float) -> None:
        self._bootstrap = bootstrap
        self._give_up_ns = int(give_up_s * 1e9)
        self._down_since_ns = 0
        self._reason = ""

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's ``error_cb``."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down_since_ns = self._down_since_ns or time.monotonic_ns()
        elif error.code() in REASONS:
            self._reason = plain_reason(error)

    def answered(self) -> None:
        """A broker has just answered."""
        self._down_since_ns = 0

    def failure(self) -> str | None:
        """Why to stop; None while a broker answers."""
        if not self._down_since_ns or time.monotonic_ns() - self._down_since_ns < self._give_up_ns:
            return None
        reason = f" ({self._reason})" if self._reason else ""
        return f"no broker of {self._bootstrap} could be reached for {self._give_up_ns / 1e9:g} s{reason}"


def plain_reason(error: KafkaError) -> str:
    """``Connection refused`` of librdkafka's long sentence."""
    text = error.str().partition(" (after ")[0]
    return text.rpartition("failed: ")[2] if "failed: " in text else text.rpartition(": ")[2]


def client_config(
    bootstrap: str, reachability: Reachability, *layers: Mapping[str, Any], is_consumer: bool = False
) -> dict[str, Any]:
    """librdkafka's configuration; later layers win."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "minikafka-bench",
        "error_cb": reachability.on_error,
        "logger": _logger,
        "log_level": 0,
    }
    if is_consumer:
        config["allow.auto.create.topics"] = False
    for layer in layers:
        config |= layer
    return config


def standard_station() -> Station:
    """On standard input and output."""
    return Station(sys.stdin.buffer, sys.stdout.buffer)
