"""Well-formed inputs, of every API in every version among others; and those that fuzzing has kept
(``python -m tests.fuzz``): those that cover most, and those that once were findings. Each is taken, or
refused by an error that the callers handle."""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import CORPUS, corpus_files
from tests.fuzz.target import attempt
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_is_taken_or_refused_as_declared(name: str) -> None:
    files = corpus_files(CORPUS / name)
    assert files, "python -m tests.fuzz minimize makes the corpus of a new target"
    findings = {path.name: attempt(TARGETS[name], path.read_bytes()) for path in files}
    seeds = list(TARGETS[name].seeds())
    assert any(len(seed) <= TARGETS[name].input_bytes_max for seed in seeds), "all are too long to begin with"
    findings |= {str(seed[:40]): attempt(TARGETS[name], seed) for seed in seeds}
    assert not any(findings.values()), {file: finding for file, finding in findings.items() if finding}


def test_there_is_no_corpus_without_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= TARGETS.keys()
