"""Buffers that come and go cost page faults once, not each time."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from minikafka.loadgen import targets

ROUNDS = 20
MEASURE = f"""
import resource, sys
from minikafka.server.runtime.process import keep_freed_memory

def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        [bytearray(1 << 20) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_freed_memory()
print(faults())
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, how],
        env=targets.module_environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives memory back so early")
def test_an_answers_memory_is_used_again() -> None:
    assert faults("keep") < faults("as it is") / 4
