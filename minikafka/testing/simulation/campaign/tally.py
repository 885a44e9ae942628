"""The tally: one JSON line for each seed that was run, in ``tally.jsonl`` of a directory, and what it adds up
to.

A run that is interrupted leaves whole lines, but for the last; it goes on with the seeds that have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

FILE = "tally.jsonl"


class TallyError(Exception):
    """The file is none of ours; says which line."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one seed."""

    scenario: str
    seed: int
    cpu_s: float
    acked: int = 0
    calls: int = 0
    """Operations in the history of its clients."""
    virtual_ms: int = 0
    faults: dict[str, int] = {}
    """By kind."""
    failure: str = ""
    """What went wrong, if anything did."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Outcome)


class Tally:
    """The outcomes in a directory, which is made when there is none.

    Raises:
        TallyError: the file there is none of these. OSError.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        whole_bytes = 0
        if self.path.exists():
            for line, end in _lines(self.path.read_bytes()):
                try:
                    self._count(_decoder.decode(line))
                except msgspec.MsgspecError as error:
                    raise TallyError(
                        f"{self.path}, line {len(self.outcomes) + 1}: {error}; name another --dir"
                    ) from error
                whole_bytes = end
            with self.path.open("r+b") as file:  # an interrupted run's last line
                file.truncate(whole_bytes)

    def add(self, outcome: Outcome) -> None:
        """Write it down. Raises OSError."""
        with self.path.open("ab") as file:
            file.write(_encoder.encode(outcome) + b"\n")
        self._count(outcome)

    def _count(self, outcome: Outcome) -> None:
        self.outcomes[outcome.scenario, outcome.seed] = outcome

    def report(self) -> list[str]:
        """A line for each scenario, one of faults, and one for each failure."""
        lines = []
        for scenario in sorted({each.scenario for each in self.outcomes.values()}):
            lines += _report(scenario, [each for each in self.outcomes.values() if each.scenario == scenario])
        failures = [each for each in self.outcomes.values() if each.failure]
        return lines + [failure_line(each) for each in failures]


def failure_line(outcome: Outcome) -> str:
    """What failed, and how to see it again."""
    what = outcome.failure.replace("\n", " ")[:400]
    again = f"python -m minikafka.testing.simulation replay {outcome.seed} --scenario {outcome.scenario}"
    return f"FAILED {outcome.scenario} seed {outcome.seed}: {what} [again: {again}]"


def _report(scenario: str, outcomes: Iterable[Outcome]) -> list[str]:
    outcomes = list(outcomes)
    faults: Counter[str] = Counter()
    for each in outcomes:
        faults.update(each.faults)
    hours = sum(each.virtual_ms for each in outcomes) / 3_600_000
    cpu_s = sum(each.cpu_s for each in outcomes)
    failed = sum(1 for each in outcomes if each.failure)
    return [
        f"{scenario}: {len(outcomes)} seeds, {failed} failed, {hours:.1f} virtual hours, "
        f"{sum(each.calls for each in outcomes)} operations, {sum(each.acked for each in outcomes)} acked, "
        f"{cpu_s / len(outcomes):.3f} CPU s a seed",
        f"  {sum(faults.values())} faults: "
        + ", ".join(f"{count} {kind}" for kind, count in faults.most_common()),
    ]


def _lines(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Whole lines, and where each ends."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start:end], end + 1
        start = end + 1
