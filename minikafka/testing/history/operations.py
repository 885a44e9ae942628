"""What clients did and what they were told, as data: one ``Operation`` a line in a file of JSON lines.

The words are those of Jepsen's Kafka workload (``jepsen.tests.kafka``). A process is one client that does one
thing after the other in each partition; a producer with several requests in flight is one, too. Nothing here
is of a broker's inside, so a history may come from any client of any cluster.

A history can be judged when

- each value is sent to a partition once: it names the record (a client that tries again what may have failed
  goes on with the same operation);
- it ends with polls up to the end of each partition, read_committed ones too where there are any: what is not
  seen by then is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

SHOWN_MAX = 8
"""Records of an operation that are printed."""

_encoder = msgspec.json.Encoder()


class HistoryError(Exception):
    """A file or an operation is not what it should be; says where and what."""


class Kind(StrEnum):
    """What was asked for."""

    SEND = "send"
    """``records``: what is sent, in this order, with their offsets where those were told."""
    POLL = "poll"
    """``records``: what came, in this order."""
    BEGIN = "begin"
    COMMIT_TRANSACTION = "commit-transaction"
    ABORT_TRANSACTION = "abort-transaction"
    ASSIGN = "assign"
    """``partitions`` are read from now on, and no others. Those that were read before are read on."""
    SEEK = "seek"
    """The process reads on in ``partitions`` at whatever offset: where it was there counts no more."""
    COMMIT = "commit"
    """``records`` are positions of ``group``, without values."""
    FETCH_COMMITTED = "fetch-committed"
    """``records`` are the positions of ``group`` that were told; offset -1: none."""
    DELETE = "delete"
    """What lies below the offsets of ``records`` may be gone, unless it failed: DeleteRecords, retention,
    compaction."""


class Outcome(StrEnum):
    """What is known of what was asked for."""

    OK = "ok"
    """It happened, and what must keep it keeps it. A send with less than acks=all is never ok."""
    FAIL = "fail"
    """It did not happen, and never will."""
    INFO = "info"
    """It may have happened, or may yet."""


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record, or one position."""

    topic: str
    partition: int
    offset: int | None = None
    """None: it was not told."""
    value: str | None = None


class Operation(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One call of a client, from when it was made to when its outcome was known. A recorder fills it in."""

    process: str
    kind: Kind
    invoked_ms: float
    """Of a clock that all processes share."""
    completed_ms: float | None = None
    """None: never."""
    outcome: Outcome = Outcome.INFO
    records: tuple[Record, ...] = ()
    partitions: tuple[Partition, ...] = ()
    transaction: str = ""
    """Its name, that of no other: for all that is done in it, and for its begin and end."""
    read_committed: bool = False
    """Of a poll."""
    group: str = ""
    """Of polls, too, where a group's members share the partitions."""
    error: str = ""
    """What was told instead of a result; for readers."""

    def __str__(self) -> str:
        ended = "…" if self.completed_ms is None else f"{self.completed_ms:.0f}"
        what = [f"{self.invoked_ms:.0f}-{ended} ms {self.process} {self.kind} {self.outcome}"]
        if self.transaction:
            what.append(f"in {self.transaction}")
        if self.error:
            what.append(f"({self.error})")
        shown = [
            f"{each.topic}-{each.partition}@{each.offset}={each.value}" for each in self.records[:SHOWN_MAX]
        ]
        if len(self.records) > SHOWN_MAX:
            shown.append(f"and {len(self.records) - SHOWN_MAX} more")
        return " ".join([*what, *shown, *map(str, self.partitions)])


_decoder = msgspec.json.Decoder(Operation)


def write_history(path: Path, operations: Iterable[Operation]) -> None:
    """One operation a line. Raises OSError."""
    with path.open("wb") as file:
        for operation in operations:
            file.write(_encoder.encode(operation) + b"\n")


def read_history(path: Path) -> Iterator[Operation]:
    """Raises HistoryError, with the line's number; OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise HistoryError(f"{path}, line {number}: {error}") from error
