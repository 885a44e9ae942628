"""CPU and memory of the target's processes, from ``/proc`` (Linux)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from minikafka.errors import ConfigError

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """Over a run, of all processes of the target together."""

    cpu_seconds: float
    cpu_share: float
    """Cores that were busy with it."""
    resident_before_bytes: int
    resident_peak_bytes: int
    """The most that was seen during the run."""

    def text(self) -> str:
        return (
            f"target: {self.cpu_seconds:.2f} s CPU ({self.cpu_share:.2f} cores), "
            f"resident {self.resident_before_bytes / 1e6:.1f} MB before, "
            f"{self.resident_peak_bytes / 1e6:.1f} MB at most."
        )


class UsageMeter:
    """Looks at the processes at the start, whenever told to, and at the end.

    A process that ends meanwhile counts with what was seen of it last.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        """Raises ConfigError: there is no such process."""
        self._cpu: dict[int, float] = {}
        self._resident: dict[int, int] = {}
        for pid in pids:
            if not self._look_at(pid):
                raise ConfigError(f"--pid {pid}: there is no such process")
        self.begin()

    def begin(self) -> None:
        """The usage is from here on."""
        self._began_ns = time.monotonic_ns()
        self._resident_peak = 0
        self.look()
        self._cpu_before = sum(self._cpu.values())
        self._resident_before = self._resident_peak

    def look(self) -> None:
        """Take the peak of resident memory; often enough for it to be one."""
        for pid in self._cpu:
            self._look_at(pid)
        self._resident_peak = max(self._resident_peak, sum(self._resident.values()))

    def usage(self) -> Usage | None:
        """Since the start; None without processes."""
        if not self._cpu:
            return None
        self.look()
        seconds = (time.monotonic_ns() - self._began_ns) / 1e9
        cpu_seconds = sum(self._cpu.values()) - self._cpu_before
        return Usage(
            cpu_seconds=cpu_seconds,
            cpu_share=cpu_seconds / seconds if seconds else 0.0,
            resident_before_bytes=self._resident_before,
            resident_peak_bytes=self._resident_peak,
        )

    def _look_at(self, pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            status = Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        fields = stat.rpartition(")")[2].split()
        self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                self._resident[pid] = int(line.split()[1]) * 1024
        return True
