"""``python -m tests.power --cuts 500``: a broker on a real file system whose power is cut again and again.

A cut comes in the middle of appends, rolls, checkpoints, compaction, moves between log directories and
writes of the store, or in the middle of a start, which recovers from the cut before. After each one the file
system is mounted again, the broker starts, everything that it promised is read (``load``), and ``dump-log
--verify`` finds nothing.

Prints a tally. Exit status: 1 when something was wrong, 77 when this machine has no such disk.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from minikafka.cli.dump_log.files import Verifier
from minikafka.files import OsFiles
from tests.integration.support.process import BrokerProcess, StartFailed
from tests.power.disk import Disk, NoSuchDiskError
from tests.power.load import Load

SKIPPED: Final = 77
CUTS_A_DISK: Final = 25
"""Then there is a new one, with other options; what was written grows until then."""

_OWN_MOUNTS: Final = "POWER_TEST_HAS_OWN_MOUNTS"
_PROPERTIES: Final = {
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.flush.start.offset.checkpoint.interval.ms": 200,
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.segment.delete.delay.ms": 50,
    "log.flush.interval.messages": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "http.port": 0,
}


class Machine:
    """A broker, its load and its disk."""

    def __init__(self, directory: Path, kind: str, *, rng: random.Random) -> None:
        self._rng = rng
        self.disk = Disk(directory, kind, rng=rng)
        self._directories = [self.disk.path / "a", self.disk.path / "b"]
        self._broker = BrokerProcess(
            self._directories[0], more_dirs=self._directories[1:], properties=_PROPERTIES
        )
        self._broker.log_path = directory / "broker.log"
        self._broker.log_path.unlink(missing_ok=True)
        self.load = Load([str(path) for path in self._directories], rng=rng)
        try:
            self._broker.start()
            self.load.prepare(self._broker.port)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"{self.disk.kind} ({self.disk.options})"

    def cut_under_load(self) -> None:
        self.load.start(self._broker.port)
        time.sleep(self._rng.uniform(0.05, 1.0))  # when the power goes is no event of the broker
        self._lose_power()
        self.load.stop()

    def cut_while_starting(self) -> None:
        """Of a broker that recovers. It runs already, so it is killed first."""
        self._kill()
        process = subprocess.Popen(
            self._broker.arguments(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._broker.process = process
        time.sleep(self._rng.uniform(0.2, 1.5))
        self._lose_power()

    def _lose_power(self) -> None:
        if self._rng.random() < 0.7:
            self.disk.scatter()
        self.load.power_goes.set()
        self.disk.cut()
        self._kill()

    def _kill(self) -> None:
        process = self._broker.process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def recover(self, *, verify: bool) -> list[str]:
        """Mount, start and check; what is wrong. ``verify``: a clean stop in between, and dump-log."""
        self.disk.unmount()
        self.disk.mount()
        try:
            self._broker.start()
        except StartFailed as error:
            return [f"the broker does not start: {str(error)[-3000:]}"]
        wrong = self.load.check(self._broker.port)
        if verify:
            self._broker.stop()
            wrong += _damage(self._directories)
            self._broker.start()
            wrong += self.load.check(self._broker.port)
        if "Traceback (most recent call last)" in self._broker.log_text():
            wrong.append(f"a traceback in {self._broker.log_path}")
        return wrong

    def keep(self, directory: Path) -> None:
        """A copy of the disk and the broker's log, to look into."""
        self._kill()
        shutil.copytree(self.disk.path, directory / "disk", dirs_exist_ok=True)
        shutil.copy(self._broker.log_path, directory)

    def close(self) -> None:
        self._kill()
        self.load.stop()
        self.disk.unmount()


def _damage(log_directories: list[Path]) -> list[str]:
    """What ``dump-log --verify`` finds, but for what the broker removes by itself: a stop cuts a compaction
    short."""
    return [
        str(finding)
        for directory in log_directories
        for finding in Verifier(OsFiles()).log_directory(str(directory))
        if not (finding.advice or "").startswith("nothing:")
    ]


def cut_again_and_again(
    directory: Path, *, cuts: int, seed: int, kinds: list[str], until: float
) -> tuple[int, collections.Counter[str]]:
    """How many cuts something was wrong after, and the tally."""
    rng = random.Random(seed)
    tally: collections.Counter[str] = collections.Counter()
    failures = 0
    machine: Machine | None = None
    try:
        for number in range(cuts):
            if time.monotonic() > until:
                break
            if machine is None:
                machine = Machine(directory, kinds[number // CUTS_A_DISK % len(kinds)], rng=rng)
            starting = rng.random() < 0.15
            if starting:
                machine.cut_while_starting()
            else:
                machine.cut_under_load()
            wrong = machine.recover(verify=number % 3 == 0)
            tally[f"{machine.disk.kind}: {'while starting' if starting else 'under load'}"] += 1
            failures += bool(wrong)
            for each in wrong:
                print(f"cut {number} of seed {seed}, {machine!r}: {each}", flush=True)
            if wrong:
                kept = directory.parent / f"power-{seed}-{number}"
                machine.keep(kept)
                print(f"    kept in {kept}", flush=True)
            if wrong or number % CUTS_A_DISK == CUTS_A_DISK - 1:
                tally["acked and found again"] += machine.load.acked()
                machine.close()
                machine = None
        if machine is not None:
            tally["acked and found again"] += machine.load.acked()
    finally:
        if machine is not None:
            machine.close()
    return failures, tally


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=__doc__.split("\n")[0])
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0, help="end after these, however many cuts")
    parser.add_argument("--file-system", action="append", choices=("ext4", "xfs"), help="by default ext4")
    arguments = parser.parse_args()
    if _OWN_MOUNTS not in os.environ:
        if os.geteuid() != 0 or not shutil.which("unshare"):
            print("no disk to cut the power of: not root, or no unshare", file=sys.stderr)
            return SKIPPED
        command = [
            "unshare",
            "--mount",
            "--propagation=private",
            sys.executable,
            "-m",
            "tests.power",
            *sys.argv[1:],
        ]
        return subprocess.run(command, env={**os.environ, _OWN_MOUNTS: "1"}, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="minikafka-power-") as directory:
        try:
            failures, tally = cut_again_and_again(
                Path(directory),
                cuts=arguments.cuts,
                seed=arguments.seed,
                kinds=arguments.file_system or ["ext4"],
                until=time.monotonic() + arguments.minutes * 60,
            )
        except NoSuchDiskError as error:
            print(f"no disk to cut the power of: {error}", file=sys.stderr)
            return SKIPPED
    for what, count in sorted(tally.items()):
        print(f"{count:8,} {what}")
    print(f"{failures:8,} cuts after which something was wrong")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
