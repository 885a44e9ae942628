"""Builds and runs ``crowd.c``, the crowd of clients."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("crowd.c")


@functools.cache
def _client() -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    if shutil.which("gcc") is None:
        raise SystemExit("scale: needs gcc (Debian: gcc libc6-dev)")
    directory = tempfile.TemporaryDirectory(prefix="minikafka-crowd-")
    client = Path(directory.name) / "crowd"
    subprocess.run(["gcc", "-O2", "-o", str(client), str(SOURCE), "-lm"], check=True)
    return client, directory


def crowd(
    kind: str,
    port: int,
    frames: Sequence[bytes],
    *,
    connections: int,
    rate: float,
    seconds: float,
    when_open: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """What ``crowd.c`` says.

    Args:
        kind: ``stay`` or ``visit``, see there.
        when_open: called when all connections of a crowd that stays are there and none has asked yet.

    Raises:
        RuntimeError: it failed; says why.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(frames))
        file.flush()
        numbers = map(str, (port, connections, rate, seconds))
        with subprocess.Popen(
            [str(_client()[0]), kind, *numbers, file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            if kind == "stay":
                said = process.stderr.readline()
                if said != "open\n":
                    raise RuntimeError(f"the crowd failed: {said or process.wait()}")
                when_open()
            out, err = process.communicate("go\n")
            if process.returncode:
                raise RuntimeError(f"the crowd failed: {err}")
            answer: dict[str, Any] = json.loads(out)
            return answer
