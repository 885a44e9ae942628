"""One target in a process of its own: ``python -m tests.fuzz.worker TARGET DIRECTORY fuzz SECONDS`` with
atheris, or ``… cover BYTES`` with a tracer. Its parent (``campaign``) reads what it prints."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz.target import Finding, Target, judge

_GROWTH_KIB: Final = 16 * 1024
"""Of resident memory during one input: worth a closer look."""


class _Fuzzing:
    """What atheris calls with each input."""

    def __init__(self, target: Target, directory: Path) -> None:
        self._target = target
        self._findings = directory / "findings"
        self._seen: set[str] = set()
        self._resident_kib = 0
        self.executions = 0

    def one_input(self, data: bytes) -> None:
        self.executions += 1
        finding = judge(self._target, data)
        if finding is not None:
            self._keep(finding, data)
        resident_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if resident_kib - self._resident_kib > _GROWTH_KIB and self.executions > 1:
            finding = judge(self._target, data, with_memory=True)
            if finding is not None:
                self._keep(finding, data)
        self._resident_kib = max(resident_kib, self._resident_kib)

    def _keep(self, finding: Finding, data: bytes) -> None:
        if finding.signature in self._seen:
            return
        self._seen.add(finding.signature)
        name = hashlib.sha256(finding.signature.encode()).hexdigest()[:12]
        (self._findings / name).write_bytes(data)
        (self._findings / f"{name}.txt").write_text(f"{finding.signature}\n{finding.details}\n")


def _fuzz(name: str, directory: Path, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["minikafka"]):
        target, seeds = _warmed(name)
    fuzzing = _Fuzzing(target, directory)
    _write_seeds(seeds, directory / "corpus")
    corpora = [directory / "corpus", Path(__file__).parent / "corpus" / name]
    libfuzzer = [
        sys.argv[0],
        *(str(path) for path in corpora if path.is_dir()),
        f"-max_total_time={seconds}",
        f"-max_len={target.input_bytes_max}",
        "-rss_limit_mb=2048",
        "-timeout=20",
        "-print_final_stats=1",
        f"-artifact_prefix={directory}/findings/",
    ]
    atheris.Setup(libfuzzer, fuzzing.one_input)
    atheris.Fuzz()


def _warmed(name: str) -> tuple[Target, list[bytes]]:
    """The target and its seeds, each run once: what it imports late is imported by now."""
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    seeds = [seed for seed in target.seeds() if len(seed) <= target.input_bytes_max]
    for seed in seeds:
        judge(target, seed)
    return target, seeds


def _write_seeds(seeds: list[bytes], corpus: Path) -> None:
    for seed in seeds:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


def _cover(name: str, directory: Path, bytes_max: int) -> None:
    """Choose from the corpora: again and again the smallest input that reaches a line that none before it
    does.

    Inputs that are a finding's are left out: they come by hand.
    """
    from tests.fuzz.campaign import corpus_files

    target, seeds = _warmed(name)
    _write_seeds(seeds, directory / "corpus")
    ours = Path(__file__).parent / "corpus" / name
    files = [*corpus_files(directory / "corpus"), *corpus_files(ours)]
    covered: set[tuple[Any, int]] = set()
    chosen: list[str] = []
    size = 0
    for path in sorted(files, key=lambda path: path.stat().st_size):
        data = path.read_bytes()
        if path.name.startswith("finding-") or size + len(data) > bytes_max:
            continue
        reached = _reached(target, data)
        if reached - covered:
            covered |= reached
            chosen.append(str(path))
            size += len(data)
    print(json.dumps(chosen))


def _reached(target: Target, data: bytes) -> set[tuple[Any, int]]:
    lines: set[tuple[Any, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if "/minikafka/" not in frame.f_code.co_filename:
            return None
        lines.add((frame.f_code, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        judge(target, data)
    finally:
        sys.settrace(None)
    return lines


def main() -> None:
    name, directory, action, amount = sys.argv[1:]
    {"fuzz": _fuzz, "cover": _cover}[action](name, Path(directory), int(amount))


if __name__ == "__main__":
    main()
