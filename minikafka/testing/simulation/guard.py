"""While a simulation runs, no code reads a real clock, throws real dice, starts a thread or opens a socket.

minikafka's own code takes all of these as arguments, so when it asks the real world it is a mistake, which is
raised where it happens (``NondeterminismError``). Other code (aiokafka, logging, uuid) cannot be changed: it
gets virtual time and seeded dice from the functions that it knows. What took a function out of its module
before the run (``from time import monotonic``) escapes; of asyncio's that is nothing that matters. What takes
one out during the run (a module imported then) has the real function again when the run is over.

``HostClock``: ``minikafka.clock.Clock`` of a simulated machine.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from minikafka.testing.simulation.errors import NondeterminismError
from minikafka.testing.simulation.loop import NS_PER_MS, Host, VirtualTimeLoop, current_process

START_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""


class HostClock:
    """The loop's time, as the host sees it: its wall clock may be wrong, its monotonic one is not."""

    def __init__(self, loop: VirtualTimeLoop, host: Host) -> None:
        self._loop = loop
        self._host = host

    def now_ms(self) -> int:
        return START_MS + self._loop.now_ns // NS_PER_MS + self._host.clock_skew_ms

    def monotonic_ms(self) -> int:
        return self._loop.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        return self._loop.now_ns


_OWN = "minikafka."
_FREE = ("minikafka.testing.",)
_DICE = (
    "betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits", "normalvariate", "randbytes",
    "randint", "random", "randrange", "sample", "shuffle", "triangular", "uniform",
)  # fmt: skip


@contextmanager
def guarded(loop: VirtualTimeLoop, rng: random.Random) -> Iterator[None]:
    """Keep the real world out until the block ends."""
    originals: list[tuple[Any, str, Any]] = []
    is_over = False

    def patch(module: Any, name: str, function: Callable[..., Any]) -> None:
        original = getattr(module, name)

        def guarded_function(*args: Any, **options: Any) -> Any:
            if is_over:
                return original(*args, **options)
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.startswith(_OWN) and not caller.startswith(_FREE):
                raise NondeterminismError(f"{caller} calls {module.__name__}.{name}(): it is an argument")
            return function(*args, **options)

        originals.append((module, name, original))
        setattr(module, name, guarded_function)

    def forbid(owner: Any, name: str, what: str) -> None:
        def forbidden(*args: Any, **options: Any) -> Any:
            raise NondeterminismError(f"{what} in a simulation")

        originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, forbidden)

    try:
        _patch_clocks(patch, loop)
        for name in _DICE:
            patch(random, name, getattr(rng, name))
        patch(os, "urandom", rng.randbytes)
        patch(random, "_urandom", rng.randbytes)  # where SystemRandom and secrets get theirs
        forbid(time, "sleep", "time.sleep(): real time passes")
        forbid(threading.Thread, "start", "Thread.start(): threads run in no order")
        forbid(socket.socket, "__init__", "socket.socket(): a real socket")
        originals.append((socket, "getfqdn", socket.getfqdn))
        socket.getfqdn = lambda name="": current_process().host.name
        originals.append((socket, "has_dualstack_ipv6", socket.has_dualstack_ipv6))
        socket.has_dualstack_ipv6 = lambda: False
        yield
    finally:
        is_over = True
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def _patch_clocks(patch: Callable[[Any, str, Callable[..., Any]], None], loop: VirtualTimeLoop) -> None:
    start_ns = START_MS * NS_PER_MS
    patch(time, "time", lambda: (start_ns + loop.now_ns) / 1e9)
    patch(time, "time_ns", lambda: start_ns + loop.now_ns)
    patch(time, "monotonic", loop.time)
    patch(time, "monotonic_ns", lambda: loop.now_ns)
    patch(time, "perf_counter", loop.time)
    patch(time, "perf_counter_ns", lambda: loop.now_ns)
    patch(time, "clock_gettime", lambda clock: loop.time())
    patch(time, "clock_gettime_ns", lambda clock: loop.now_ns)
