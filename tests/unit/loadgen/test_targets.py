"""Brokers that the load generator starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from minikafka.loadgen.targets import MinikafkaRecipe, RunningBrokers

SAYS_WHERE_IT_LOOKS = """#!/bin/sh
echo "looks in ${PYTHONPATH:-nothing of ours}"
"""


def test_another_releases_command_does_not_find_our_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run it in the place of its own, and a comparison of two releases would compare one with
    itself."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = tmp_path / "minikafka-broker"
    command.write_text(SAYS_WHERE_IT_LOOKS)
    command.chmod(0o755)
    with RunningBrokers(tempfile.TemporaryDirectory()) as running:
        MinikafkaRecipe(str(command)).start(running, 1)
        (process,) = running.processes
        process.process.wait()
        assert process.log_tail().strip() == "looks in nothing of ours"
