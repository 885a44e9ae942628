"""The compiled check of records reads no byte that is not its own: damaged records under AddressSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from minikafka.protocol.records import records

pytestmark = pytest.mark.skipif(
    not records.IS_COMPILED or sys.platform != "linux", reason="bin/test says so: there was no C compiler"
)

SOURCE = Path(records.__file__).with_name("record_scan.c")
DAMAGE = """
import random
import record_scan

random = random.Random(1)
found = 0
for number in range(100_000):
    count = random.randrange(1, 8)
    whole = bytearray()
    for index in range(count):
        key, value = (random.choice([b"\\x01", b"\\x00", b"\\x06abc"]) for _ in range(2))
        headers = random.choice([b"\\x00", b"\\x02\\x02h\\x01", b"\\x04\\x02h\\x02x\\x00\\x00"])
        body = bytes([0, random.randrange(128), 2 * index]) + key + value + headers
        whole += bytes([2 * len(body)]) + body
    assert record_scan.scan(bytes(whole), 0, count, False) is not None
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(whole) + 1)
        match random.randrange(3):
            case 0:
                whole[at : at + 1] = random.choice([b"\\x7f", b"\\xff", b"\\x80", b"\\x01", b"\\x02"])
            case 1:
                whole[at:at] = bytes(random.choices([0x80, 0xFF, 0, 1, 2, 0x7F], k=random.randrange(1, 6)))
            case 2:
                del whole[at:]
    found += record_scan.scan(bytes(whole), 0, count, False) is not None
print(found)
"""


def test_damaged_records_are_read_within_their_bounds(tmp_path: Path) -> None:
    """Each bytes object has a piece of memory of its own (PYTHONMALLOC), behind which nothing may be read."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("bin/test says so: there is no gcc")
    sanitizers = [
        subprocess.run(
            [compiler, f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("asan", "ubsan")
    ]
    subprocess.run(
        [
            *(compiler, "-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"),
            *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
            *(f"-I{sysconfig.get_paths()['include']}", "-o", tmp_path / "record_scan.so", SOURCE),
        ],
        check=True,
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(sanitizers),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", DAMAGE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 50_000
