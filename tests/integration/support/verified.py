"""``dump-log --verify`` over the directories that a test leaves behind: nothing in them may be damaged.

A verifier that is wrong once is not believed again, so it sees every directory that any test makes, with
whatever retention, compaction, moves and kills have left there, and those of Apache Kafka.
"""

from __future__ import annotations

import os
from pathlib import Path

from minikafka.cli.dump_log.files import Verifier
from minikafka.files import OsFiles
from minikafka.log.checkpoint import META_PROPERTIES


def assert_undamaged(root: Path) -> None:
    """Verify each log directory in ``root``; their brokers have ended."""
    found = [
        finding
        for directory, _, names in os.walk(root)
        if META_PROPERTIES in names
        for finding in Verifier(OsFiles()).log_directory(directory)
    ]
    assert not found, "dump-log --verify finds damage:\n" + "\n".join(map(str, found[:20]))
