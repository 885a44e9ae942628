"""Runs a broker on an event loop until a signal, or a failure inside, ends it.

The first SIGTERM or SIGINT stops the broker cleanly, also in the middle of its start. The second ends the
process at once; the data is then as after a crash. uvloop is used where it is installed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minikafka.cli.banner import banner_lines, http_url, print_banner
from minikafka.config.broker import BrokerConfig
from minikafka.config.listeners import Listener
from minikafka.config.loader import UnknownProperty
from minikafka.network.addresses import format_address
from minikafka.server.broker import Broker
from minikafka.server.runtime.descriptors import raise_limit
from minikafka.server.runtime.freed_memory import keep_freed_memory
from minikafka.server.runtime.full_collections import FullCollections
from minikafka.system_clock import SystemClock

logger = logging.getLogger("minikafka.cli.broker")

FAILURE = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_broker(
    config: BrokerConfig,
    *,
    unknown: Sequence[UnknownProperty] = (),
    temporary_directory: str | None = None,
    usual_http_port: int | None = None,
) -> int:
    """Run a broker with ``config`` until it is stopped. Returns the exit status.

    ``temporary_directory`` is removed when a second signal leaves the caller no time to. ``usual_http_port``:
    see ``Broker``.

    Raises:
        ConfigError, StartError: the broker cannot start, and why.
    """
    for unknown_property in unknown:
        logger.warning(str(unknown_property))
    raise_limit()
    keep_freed_memory()
    directories = [str(Path(directory).absolute()) for directory in config.log_dirs]
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(config, directories, temporary_directory, usual_http_port))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    config: BrokerConfig,
    directories: list[str],
    temporary_directory: str | None,
    usual_http_port: int | None,
) -> int:
    stopped = _stop_on_signals(temporary_directory)
    broker = Broker(config, usual_http_port=usual_http_port)
    start = asyncio.ensure_future(broker.start())
    await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
    try:
        await start
    except asyncio.CancelledError:
        logger.info("stopped while starting")
        return 0
    full_collections = FullCollections(SystemClock())
    full_collections.begin()
    failed = broker.failure
    try:
        print_banner(
            banner_lines(
                node_id=config.node_id,
                listening=[_address(listener) for listener in broker.bound],
                unprotected=[_address(listener) for listener in broker.bound if listener.is_unprotected],
                addresses=[format_address(*endpoint) for endpoint in broker.listeners.values()],
                directories=directories,
                status_page=http_url(broker.http_address, "/"),
                metrics=http_url(broker.http_address, "/metrics")
                or _why_no_metrics(config=config, usual_port=usual_http_port),
                temporary=temporary_directory is not None,
            )
        )
        ends: set[asyncio.Future[Any]] = {stopped, failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await broker.stop()
        full_collections.end()
    if stopped.done():
        return 0
    print(f"minikafka-broker: stopped because of a failure: {failed.result()!r}", file=sys.stderr)
    return FAILURE


def _address(listener: Listener) -> str:
    address = format_address(listener.host or "*", listener.port)
    return f"{address} (all interfaces)" if listener.is_wildcard else address


def _stop_on_signals(temporary_directory: str | None) -> asyncio.Future[None]:
    """A future that the first signal resolves; the second ends the process."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def handle(signal_number: signal.Signals) -> None:
        if not stopped.done():
            logger.info("stopping", extra={"signal": signal_number.name})
            stopped.set_result(None)
            return
        logger.warning("ending at once", extra={"signal": signal_number.name})
        if temporary_directory is not None:
            shutil.rmtree(temporary_directory, ignore_errors=True)
        os._exit(128 + signal_number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle, number)
    return stopped


def _why_no_metrics(*, config: BrokerConfig, usual_port: int | None) -> str | None:
    if usual_port is not None and config.http_port is None:
        return f"nowhere: port {usual_port} is taken (--http-port)"
    return None
