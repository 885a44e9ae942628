"""What is fuzzed: a reader of bytes that are not trusted, with the errors that its callers handle.

A target's run returns, or raises one of its ``refusals``. ``judge`` calls anything else a finding: another
exception, a run of more than ``CPU_S_MAX`` of processor time, and memory out of proportion to the input.
"""

from __future__ import annotations

import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

CPU_S_MAX: Final = 0.02
"""Of one input. What takes longer is done in steps or in a thread, and is no reader on the loop."""

MEMORY_BYTES_MAX: Final = 8 << 20
MEMORY_RATIO_MAX: Final = 1024
"""Peak memory of one input: as many bytes for each of its own, and those above at least. An array element of
one byte costs about 100 (``protocol.wire.reading``)."""

CONFIRMATIONS: Final = 3


class Target(NamedTuple):
    """A row of the table (``tests.fuzz.targets``)."""

    name: str
    run: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...]
    """What the callers of the code handle: declared in its docstring under Raises."""
    seeds: Callable[[], Iterable[bytes]] = lambda: ()
    """Well-formed inputs to begin with, made by the code that writes them."""
    input_bytes_max: int = 4096


class Finding(NamedTuple):
    """Why an input is one. ``signature`` is the same for those of one cause."""

    signature: str
    details: str


def attempt(target: Target, data: bytes) -> Finding | None:
    """Run ``target`` once; None when it did as it should, however long it took."""
    try:
        target.run(data)
    except target.refusals:
        return None
    except BaseException as error:  # noqa: BLE001 whatever it is, it is a finding
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "minikafka" in frame.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].name}"
        details = "".join(traceback.format_exception(error, limit=-8))
        return Finding(f"{type(error).__name__} in {where}", details)
    return None


def cpu_s(target: Target, data: bytes) -> float:
    """Processor time of one run."""
    begun = time.process_time()
    attempt(target, data)
    return time.process_time() - begun


def judge(target: Target, data: bytes, *, with_memory: bool = False) -> Finding | None:
    """What is wrong with how ``target`` takes ``data``; None: nothing."""
    begun = time.process_time()
    finding = attempt(target, data)
    if finding is not None:
        return finding
    taken_s = time.process_time() - begun
    if taken_s > CPU_S_MAX:
        taken_s = min(cpu_s(target, data) for _ in range(CONFIRMATIONS))
        if taken_s > CPU_S_MAX:
            return Finding("slow", f"{taken_s * 1000:.0f} ms of processor time")
    if with_memory:
        return _memory_finding(target, data)
    return None


def _memory_finding(target: Target, data: bytes) -> Finding | None:
    allowed = max(MEMORY_BYTES_MAX, MEMORY_RATIO_MAX * len(data))
    tracemalloc.start()
    try:
        attempt(target, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return Finding("memory", f"{peak} bytes for an input of {len(data)}") if peak > allowed else None
