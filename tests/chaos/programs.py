"""What each client of a chaos run is started with: Python's own, Kafka's from Maven, and kgo, built by Go.

``python -m tests.chaos.programs`` builds kgo's beforehand.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.integration.support import java
from tests.integration.support.process import java_is_there

GO_SOURCES = Path(__file__).parent / "go"
GO_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "chaos-go"
BUILD_DEADLINE_S = 600


class Programs:
    """Those that this machine can run. What is left out is said once."""

    def __init__(self) -> None:
        self._class_path = java.class_path(java.CLIENT_VERSIONS[-1]) if java_is_there() else None
        if self._class_path is None:
            print("without Kafka's Java clients: java or mvn is missing")
        self._kgo = kgo() if shutil.which("go") else None
        if self._kgo is None:
            print("without kgo: go is missing")

    def of(self, client: str, kind: str) -> list[str] | None:
        """The command of a ``producer`` or ``member``, up to its role or its brokers; None: it cannot run."""
        if client in ("java", "java-consumer"):
            if self._class_path is None:
                return None
            program = [*java.command(self._class_path), "ChaosClient", kind]
            if kind == "member":
                program.append("consumer" if client == "java-consumer" else "classic")
            return program
        if client == "kgo":
            if self._kgo is None:
                return None
            return [str(self._kgo), kind, *(["classic"] if kind == "member" else [])]
        module = "tests.chaos.producers" if kind == "producer" else "tests.chaos.consumers"
        return [sys.executable, "-m", module, client]


@functools.cache
def kgo() -> Path:
    """The program in ``go/``, built unless it is there. Raises AssertionError with the compiler's words."""
    digest = hashlib.sha256()
    for path in sorted(GO_SOURCES.iterdir()):
        digest.update(path.read_bytes())
    program = GO_CACHE / digest.hexdigest()[:16]
    if not program.exists():
        GO_CACHE.mkdir(parents=True, exist_ok=True)
        built = subprocess.run(
            ["go", "build", "-o", str(program), "."],
            cwd=GO_SOURCES,
            capture_output=True,
            text=True,
            timeout=BUILD_DEADLINE_S,
        )
        assert built.returncode == 0, f"Go could not build kgo's client:\n{built.stdout}{built.stderr}"
    return program


if __name__ == "__main__":
    kgo()
