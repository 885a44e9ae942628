"""Small file systems, which can be full: a tmpfs for the log directory of one broker.

They need the right to mount. Where there is none, no disk runs full, and the run says so.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SIZE_MB = 256
FILLER = "filler"


class SmallDisk:
    """Mounted at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no byte."""
        with contextlib.suppress(OSError), open(self.path / FILLER, "ab", buffering=0) as filler:
            while True:
                filler.write(bytes(1024 * 1024))
        with contextlib.suppress(OSError), open(self.path / FILLER, "ab", buffering=0) as filler:
            while True:
                filler.write(bytes(1024))

    def empty(self) -> None:
        (self.path / FILLER).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disks(paths: dict[int, Path]) -> Iterator[dict[int, SmallDisk]]:
    """One for each path; none at all where mounting is not permitted. What is on them is kept."""
    mounted: dict[int, SmallDisk] = {}
    try:
        for node_id, path in paths.items():
            path.mkdir(parents=True)
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "minikafka-chaos", str(path)],
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                print(f"no disk runs full: {done.stderr.strip()}")
                break
            mounted[node_id] = SmallDisk(path)
        yield mounted
    finally:
        for disk in mounted.values():
            kept = disk.path.with_name(disk.path.name + ".kept")
            shutil.copytree(disk.path, kept)
            subprocess.run(["umount", "-l", str(disk.path)], check=True)
            disk.path.rmdir()
            kept.rename(disk.path)
