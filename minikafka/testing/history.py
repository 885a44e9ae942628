"""Histories: what clients did and saw, and ``check``, which says what a history shows that a log cannot do,
without knowing the broker.

A test records what its clients do (``history_recorder``), or any other program writes the same JSON lines,
one ``Operation`` a line; then::

    report = check(recorder.history())
    assert report.is_valid, report

or, for a file, ``python -m minikafka.testing.history FILE…``, which prints the anomalies.

The words are those of Jepsen's Kafka workload (``jepsen.tests.kafka``). A process is one client that does one
thing after the other in each partition; a producer with several requests in flight is one, too. Nothing here
is of a broker's inside, so a history may come from any client of any cluster.

A history can be judged when

- each value is sent to a partition once: it names the record (a client that tries again what may have failed
  goes on with the same operation);
- it ends with polls up to the end of each partition, read_committed ones too where there are any: what is not
  seen by then is missing.

The anomalies are those of Jepsen's workload, too, with three of group's positions:

======================== ==========================================================================
LOST_WRITE               an acknowledged write is missing below what was read
UNSEEN                   an acknowledged write is missing at the end
DIRTY_COMMIT             a write of a committed transaction is missing, or one is there whose abort was
                         asked for and not acknowledged
ABORTED_READ             a write is there that surely did not happen, or of an aborted transaction (G1a)
UNCOMMITTED_READ         a read_committed poll had what nothing had asked to commit yet
PHANTOM_READ             a value that was never sent
DUPLICATE                one value at two offsets, unless its transaction was not committed
INCONSISTENT_OFFSET      two values at one offset
REORDERED                a write is before one that was acknowledged before it was sent
NONMONOTONIC_SEND        one process's sends to a partition go back, or those of one request do
NONMONOTONIC_POLL        one process's polls of a partition go back
POLL_SKIP                one process's polls leave something out
INTERNAL_…               the same within one poll or one send
LOST_COMMIT              a group's last position is older than one that was acknowledged, or was seen before
GROUP_SKIP               the members of a group have left something out between them
CIRCULAR_READ            transactions that have read from each other in a circle (G1c)
WRITE_CYCLE              transactions that wrote before each other in a circle (G0). Kafka permits it
MIXED_CYCLE              a circle of both (G1c). Kafka permits it, too: open transactions interleave
======================== ==========================================================================

Whether a write happened: a send is as its outcome says, in a transaction as the transaction ended. One that
was never asked to commit is aborted. One whose commit is uncertain is committed when a read_committed poll
has seen anything of it: then all of it must be there.

A group's earlier positions may be old: a coordinator that was deposed and does not know answers with what it
has. So a history ends with a look at each position.

Circles are strongly connected components of the graph of transactions, found as Tarjan does, without
recursion.

Time and memory: n log n and n of the records.
"""

from __future__ import annotations

import argparse
import gc
import sys
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

SHOWN_MAX = 8
"""Records of an operation that are printed."""

_encoder = msgspec.json.Encoder()

_DESCRIPTION = """``python -m minikafka.testing.history FILE…``: print the anomalies of each history.

Exit status 1 when there is one that Kafka does not permit, 2 when a file cannot be judged.
"""


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
    """``partitions`` are read from now on, and no others, by a poll that it comes in as well. Those that were
    read before are read on."""
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


Graph = Mapping[str, Set[str]]
"""By node: where its edges go."""

EXAMPLES_MAX = 20
"""Of each kind; what is over that is only counted."""

_Effective = tuple[float, Operation]
"""A commit, and when it surely had happened: it was acknowledged by then, or seen."""


def components(graph: Graph) -> Iterator[list[str]]:
    """The strongly connected components of more than one node. Linear in nodes and edges."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(sorted(graph[root])))]
        while work:
            node, edges = work[-1]
            for other in edges:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found: list[str] = []
                    while not found or found[-1] != node:
                        found.append(stack.pop())
                        on_stack.discard(found[-1])
                    if len(found) > 1:
                        yield found


def shortest_cycle(graph: Graph, component: list[str]) -> list[str]:
    """A shortest cycle through the first node of a component, in the order of its edges."""
    start, members = component[-1], set(component)
    before: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in sorted(graph.get(node, ())):
            if other == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(before[cycle[-1]])
                return cycle[::-1]
            if other in members and other not in before:
                before[other] = node
                queue.append(other)
    return []


class AnomalyKind(StrEnum):
    """See the module's text."""

    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    DIRTY_COMMIT = "dirty commit"
    ABORTED_READ = "aborted read"
    UNCOMMITTED_READ = "uncommitted read"
    PHANTOM_READ = "phantom read"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent offset"
    REORDERED = "reordered"
    NONMONOTONIC_SEND = "nonmonotonic send"
    INTERNAL_NONMONOTONIC_SEND = "internal nonmonotonic send"
    NONMONOTONIC_POLL = "nonmonotonic poll"
    INTERNAL_NONMONOTONIC_POLL = "internal nonmonotonic poll"
    POLL_SKIP = "poll skip"
    INTERNAL_POLL_SKIP = "internal poll skip"
    LOST_COMMIT = "lost commit"
    GROUP_SKIP = "group skip"
    CIRCULAR_READ = "circular read"
    WRITE_CYCLE = "write cycle"
    MIXED_CYCLE = "mixed cycle"


PERMITTED = frozenset({AnomalyKind.WRITE_CYCLE, AnomalyKind.MIXED_CYCLE})
"""Of interest, but no defect: Kafka's transactions do not isolate writes."""


class Anomaly(msgspec.Struct, frozen=True):
    """One thing that cannot be, and the operations that show it."""

    kind: AnomalyKind
    text: str
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.text}", *map(str, self.operations)])


class Report(msgspec.Struct):
    """What was found: every anomaly counted, the first of each kind kept."""

    operations: int
    counts: dict[AnomalyKind, int]
    anomalies: list[Anomaly]

    @property
    def is_valid(self) -> bool:
        """Whether there is nothing but what Kafka permits."""
        return self.counts.keys() <= PERMITTED

    def __str__(self) -> str:
        counts = ", ".join(f"{count} × {kind}" for kind, count in self.counts.items())
        return "\n".join(
            [f"{self.operations} operations: {counts or 'no anomaly'}", *map(str, self.anomalies)]
        )


class _Write:
    """One value that was sent to a partition."""

    __slots__ = ("committed_reader", "offset", "operation", "reader")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.offset: int | None = None
        """Where it was told or seen to be first."""
        self.reader: Operation | None = None
        self.committed_reader: Operation | None = None
        """A read_committed poll that had it."""


class _Log:
    """One partition, as all clients together have seen it."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.writes: dict[str, _Write] = {}
        self.seen: dict[int, tuple[str, Operation]] = {}
        """By offset, with who said so."""
        self.deleted_below = 0
        self.is_read_committed = False
        """Whether read_committed consumers have read it: then they must have seen all that is committed."""
        self.committed_offsets: list[int] = []
        """What every read_committed consumer must come by, in order."""
        self.all_offsets: list[int] = []
        """What every other one must."""
        self.ranks: dict[bool, dict[int, int]] = {}
        """By whether read_committed: an offset's place among those."""


class _Transaction:
    __slots__ = ("ends", "polls", "writes")

    def __init__(self) -> None:
        self.ends: list[Operation] = []
        self.writes: list[tuple[_Log, _Write]] = []
        self.polls: list[Operation] = []

    def outcome(self) -> Outcome:
        """OK: committed; FAIL: surely not; INFO: that is not known."""
        commits = [each.outcome for each in self.ends if each.kind is Kind.COMMIT_TRANSACTION]
        if Outcome.OK in commits:
            return Outcome.OK
        if Outcome.INFO not in commits:
            return Outcome.FAIL
        is_seen = any(write.committed_reader is not None for _, write in self.writes)
        return Outcome.OK if is_seen else Outcome.INFO

    def committing(self) -> Operation | None:
        """The first call for a commit."""
        commits = [each for each in self.ends if each.kind is Kind.COMMIT_TRANSACTION]
        return min(commits, key=lambda each: each.invoked_ms, default=None)


def check(operations: Iterable[Operation]) -> Report:
    """Judge a history, whose operations may come in any order.

    Raises:
        HistoryError: it cannot be judged: a value was sent to a partition twice.
    """
    return _Analysis(sorted(operations, key=lambda each: each.invoked_ms)).report()


def _ended_ms(operation: Operation) -> float:
    return operation.invoked_ms if operation.completed_ms is None else operation.completed_ms


class _Analysis:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._report = Report(len(operations), {}, [])
        self._logs: dict[tuple[str, int], _Log] = {}
        self._transactions: dict[str, _Transaction] = defaultdict(_Transaction)
        self._outcomes: dict[str, Outcome] = {}
        self._twice: list[tuple[str, _Write, Operation]] = []

    def report(self) -> Report:
        self._collect_writes()
        self._collect_polls()
        self._outcomes = {name: each.outcome() for name, each in self._transactions.items()}
        self._check_duplicates()
        self._check_reads()
        self._check_writes_are_there()
        self._order()
        self._check_polls()
        self._check_sends()
        self._check_real_time()
        self._check_commits()
        self._check_groups()
        self._check_cycles()
        return self._report

    def _found(self, kind: AnomalyKind, text: str, *operations: Operation | None) -> None:
        count = self._report.counts[kind] = self._report.counts.get(kind, 0) + 1
        if count <= EXAMPLES_MAX:
            shown = {id(each): each for each in operations if each is not None}
            self._report.anomalies.append(Anomaly(kind, text, tuple(shown.values())))

    def _log(self, topic: str, partition: int) -> _Log:
        log = self._logs.get((topic, partition))
        if log is None:
            log = self._logs[topic, partition] = _Log(Partition(topic, partition))
        return log

    # What there is

    def _collect_writes(self) -> None:
        for operation in self._operations:
            if operation.kind is Kind.SEND:
                for record in operation.records:
                    self._collect_write(operation, self._log(record.topic, record.partition), record.value)
            elif operation.kind in (Kind.COMMIT_TRANSACTION, Kind.ABORT_TRANSACTION):
                self._transactions[operation.transaction].ends.append(operation)
            elif operation.kind is Kind.DELETE and operation.outcome is not Outcome.FAIL:
                for record in operation.records:
                    log = self._log(record.topic, record.partition)
                    log.deleted_below = max(log.deleted_below, record.offset or 0)

    def _collect_write(self, operation: Operation, log: _Log, value: str | None) -> None:
        if value is None:
            raise HistoryError(f"a record without a value cannot be told from others: {operation}")
        if value in log.writes:
            raise HistoryError(f"{value} is sent to {log.partition} twice: {operation}")
        write = log.writes[value] = _Write(operation)
        if operation.transaction:
            self._transactions[operation.transaction].writes.append((log, write))

    def _collect_polls(self) -> None:
        """What was read first: where reads and acknowledgements differ, the reads have it."""
        for operation in self._operations:
            if operation.kind is Kind.POLL:
                if operation.transaction:
                    self._transactions[operation.transaction].polls.append(operation)
                for record in operation.records:
                    log = self._log(record.topic, record.partition)
                    log.is_read_committed = log.is_read_committed or operation.read_committed
                    if record.offset is None or record.value is None:
                        raise HistoryError(f"a poll without offset or value: {operation}")
                    self._collect_place(log, record.offset, record.value, operation)
                    write = log.writes.get(record.value)
                    if write is None:
                        text = f"{record.value} is at {record.offset} of {log.partition}, and was never sent"
                        self._found(AnomalyKind.PHANTOM_READ, text, operation)
                        continue
                    write.reader = write.reader or operation
                    if operation.read_committed:
                        write.committed_reader = write.committed_reader or operation
        for operation in self._operations:
            if operation.kind is Kind.SEND and operation.outcome is Outcome.OK:
                for record in operation.records:
                    if record.offset is not None and record.value is not None:
                        log = self._log(record.topic, record.partition)
                        self._collect_place(log, record.offset, record.value, operation)

    def _collect_place(self, log: _Log, offset: int, value: str, operation: Operation) -> None:
        before = log.seen.setdefault(offset, (value, operation))
        if before[0] != value:
            text = f"{before[0]} and {value} are at {offset} of {log.partition}"
            self._found(AnomalyKind.INCONSISTENT_OFFSET, text, before[1], operation)
        write = log.writes.get(value)
        if write is None:
            return
        if write.offset is None:
            write.offset = offset
        elif write.offset != offset and before[1] is operation:
            text = f"{value} is at {write.offset} and at {offset} of {log.partition}"
            self._twice.append((text, write, operation))

    def _outcome(self, operation: Operation) -> Outcome:
        """Of a send: whether its records must be there (OK), must not (FAIL)."""
        if not operation.transaction or operation.outcome is Outcome.FAIL:
            return operation.outcome
        of_transaction = self._outcomes[operation.transaction]
        return operation.outcome if of_transaction is Outcome.OK else of_transaction

    # What was read, and should not be there; what should be there, and was not read

    def _check_duplicates(self) -> None:
        """A record of a transaction that is not committed may be there again: a coordinator has aborted what
        took too long, and the client, which had no answer, sent the record in its next epoch (KIP-890)."""
        for text, write, operation in self._twice:
            send = write.operation
            if not send.transaction or self._outcomes[send.transaction] is not Outcome.FAIL:
                self._found(AnomalyKind.DUPLICATE, text, send, write.reader, operation)

    def _check_reads(self) -> None:
        for log in self._logs.values():
            for value, write in log.writes.items():
                send, reader = write.operation, write.reader
                if reader is None:
                    continue
                where = f"{value} is at {write.offset} of {log.partition}"
                if send.outcome is Outcome.FAIL:
                    self._found(AnomalyKind.ABORTED_READ, f"{where}, and was refused", send, reader)
                elif send.transaction and write.committed_reader is not None:
                    self._check_committed_read(where, send, write.committed_reader)

    def _check_committed_read(self, where: str, send: Operation, reader: Operation) -> None:
        transaction = self._transactions[send.transaction]
        aborts = [each for each in transaction.ends if each.kind is Kind.ABORT_TRANSACTION]
        committing = transaction.committing()
        if self._outcomes[send.transaction] is not Outcome.FAIL:
            if committing is not None and (reader.completed_ms or reader.invoked_ms) < committing.invoked_ms:
                text = f"{where}, before its transaction {send.transaction} was to be committed"
                self._found(AnomalyKind.UNCOMMITTED_READ, text, send, reader, committing)
        elif aborts and all(each.outcome is not Outcome.OK for each in aborts):
            text = f"{where}; transaction {send.transaction} was to be aborted, without an answer"
            self._found(AnomalyKind.DIRTY_COMMIT, text, send, *aborts, reader)
        else:
            text = f"{where}; transaction {send.transaction} was never committed"
            self._found(AnomalyKind.ABORTED_READ, text, send, *transaction.ends, reader)

    def _check_writes_are_there(self) -> None:
        for log in self._logs.values():
            read = [write for write in log.writes.values() if write.reader is not None]
            last = max(read, key=lambda write: -1 if write.offset is None else write.offset, default=None)
            end = -1 if last is None or last.offset is None else last.offset
            for value, write in log.writes.items():
                send = write.operation
                reader = write.committed_reader if log.is_read_committed else write.reader
                if reader is not None or self._outcome(send) is not Outcome.OK:
                    continue
                if log.deleted_below and (write.offset is None or write.offset < log.deleted_below):
                    continue
                where = f"{value}, acknowledged at {write.offset} of {log.partition}, is not there"
                if write.reader is not None:
                    where += " for consumers with read_committed"
                if send.transaction:
                    ends = self._transactions[send.transaction].ends
                    text = f"{where}; transaction {send.transaction} is committed"
                    self._found(AnomalyKind.DIRTY_COMMIT, text, send, *ends)
                elif write.offset is not None and write.offset < end and last is not None:
                    self._found(AnomalyKind.LOST_WRITE, f"{where}; {end} was read", send, last.reader)
                else:
                    self._found(AnomalyKind.UNSEEN, where, send)

    # Orders

    def _order(self) -> None:
        for log in self._logs.values():
            committed, present = [], []
            for offset, (value, _) in log.seen.items():
                write = log.writes.get(value)
                if write is None or write.reader is not None or self._outcome(write.operation) is Outcome.OK:
                    present.append(offset)
                if write is not None and (
                    write.committed_reader is not None or self._outcome(write.operation) is Outcome.OK
                ):
                    committed.append(offset)
            log.committed_offsets, log.all_offsets = sorted(committed), sorted(present)
            log.ranks = {
                True: {offset: rank for rank, offset in enumerate(log.committed_offsets)},
                False: {offset: rank for rank, offset in enumerate(log.all_offsets)},
            }

    def _check_polls(self) -> None:
        """In the order of their ends: clients are assigned partitions inside of a poll, and it then returns
        what is read after that."""
        positions: dict[str, dict[tuple[str, int], tuple[int, Operation]]] = defaultdict(dict)
        for operation in sorted(self._operations, key=_ended_ms):
            kind = operation.kind
            if kind is Kind.POLL and operation.outcome is Outcome.OK:
                self._check_poll(operation, positions[operation.process])
            elif kind is Kind.ASSIGN:
                kept = {(topic, number) for topic, number in operation.partitions}
                before = positions[operation.process]
                positions[operation.process] = {key: at for key, at in before.items() if key in kept}
            elif kind is Kind.SEEK:
                for key in operation.partitions:
                    positions[operation.process].pop((key.topic, key.number), None)

    def _check_poll(
        self, operation: Operation, positions: dict[tuple[str, int], tuple[int, Operation]]
    ) -> None:
        for record in operation.records:
            key, offset = (record.topic, record.partition), record.offset
            assert offset is not None
            before = positions.get(key)
            positions[key] = (offset, operation)
            if before is None:
                continue
            is_internal = before[1] is operation
            if offset <= before[0]:
                kind = AnomalyKind.NONMONOTONIC_POLL
                if is_internal:
                    kind = AnomalyKind.INTERNAL_NONMONOTONIC_POLL
                text = f"{operation.process} reads {offset} of {Partition(*key)} after {before[0]}"
                self._found(kind, text, before[1], operation)
                continue
            skipped = self._skipped(self._logs[key], before[0], offset, operation.read_committed)
            if skipped:
                kind = AnomalyKind.INTERNAL_POLL_SKIP if is_internal else AnomalyKind.POLL_SKIP
                text = f"{operation.process} reads {offset} of {Partition(*key)} after {before[0]}"
                self._found(kind, f"{text}, not {skipped}", before[1], operation)

    def _skipped(self, log: _Log, first: int, following: int, read_committed: bool) -> list[int]:
        """What lies between two offsets, the last of it."""
        ranks = log.ranks[read_committed]
        after, before = ranks.get(following), ranks.get(first)
        if after is not None and before is not None and after - before == 1:
            return []  # the usual case
        offsets = log.committed_offsets if read_committed else log.all_offsets
        between = offsets[bisect_left(offsets, first + 1) : bisect_left(offsets, following)]
        return [offset for offset in between[-EXAMPLES_MAX:] if offset >= log.deleted_below]

    def _check_sends(self) -> None:
        """In each partition a process's records are in the order in which it sent them."""
        lasts: dict[tuple[str, str, int], tuple[int, Operation]] = {}
        for operation in self._operations:
            if operation.kind is not Kind.SEND or operation.outcome is not Outcome.OK:
                continue
            for record in operation.records:
                offset = self._place_of(record.topic, record.partition, record.value)
                if offset is None:
                    continue
                key = (operation.process, record.topic, record.partition)
                before = lasts.get(key)
                lasts[key] = (offset, operation)
                if before is None or offset > before[0]:
                    continue
                kind = AnomalyKind.NONMONOTONIC_SEND
                if before[1] is operation:
                    kind = AnomalyKind.INTERNAL_NONMONOTONIC_SEND
                where = Partition(record.topic, record.partition)
                text = f"{operation.process} sent {record.value} to {where} later than what is at {before[0]}"
                self._found(kind, f"{text}, and it is at {offset}", before[1], operation)

    def _place_of(self, topic: str, partition: int, value: str | None) -> int | None:
        write = self._logs[topic, partition].writes.get(value or "")
        return None if write is None else write.offset

    def _check_real_time(self) -> None:
        """What was acknowledged before something was sent is before it, of any process."""
        sends = [
            operation
            for operation in self._operations
            if operation.kind is Kind.SEND
            and operation.outcome is Outcome.OK
            and operation.completed_ms is not None
        ]
        ended = sorted(sends, key=lambda each: each.completed_ms or 0)
        last: dict[tuple[str, int], tuple[int, Operation]] = {}
        position = 0
        for operation in sends:
            while (ended[position].completed_ms or 0) < operation.invoked_ms:
                before = ended[position]
                for record in before.records:
                    offset = self._place_of(record.topic, record.partition, record.value)
                    key = (record.topic, record.partition)
                    if offset is not None and (key not in last or last[key][0] < offset):
                        last[key] = (offset, before)
                position += 1
            for record in operation.records:
                offset = self._place_of(record.topic, record.partition, record.value)
                found = last.get((record.topic, record.partition))
                if offset is None or found is None or offset > found[0]:
                    continue
                if found[1].process != operation.process:  # else it is NONMONOTONIC_SEND
                    text = f"{record.value} is at {offset}, before {found[0]}, which was acknowledged before"
                    self._found(AnomalyKind.REORDERED, text, found[1], operation)

    # Groups

    def _check_commits(self) -> None:
        """A group's last position is that of the last commit, or of one that may be later."""
        of_position: dict[tuple[str, str, int], list[Operation]] = defaultdict(list)
        for operation in self._operations:
            if operation.kind in (Kind.COMMIT, Kind.FETCH_COMMITTED) and not operation.transaction:
                for record in operation.records:
                    of_position[operation.group, record.topic, record.partition].append(operation)
        for (group, topic, number), operations in of_position.items():
            self._check_position(group, Partition(topic, number), operations)

    def _check_position(self, group: str, partition: Partition, operations: list[Operation]) -> None:
        commits: dict[int, list[Operation]] = defaultdict(list)
        effective: list[_Effective] = []
        for operation in operations:
            if operation.kind is Kind.COMMIT and operation.outcome is not Outcome.FAIL:
                commits[_position(operation, partition)].append(operation)
                if operation.outcome is Outcome.OK and operation.completed_ms is not None:
                    effective.append((operation.completed_ms, operation))
        looks = [
            each
            for each in operations
            if each.kind is Kind.FETCH_COMMITTED
            and each.outcome is Outcome.OK
            and each.completed_ms is not None
        ]
        if not looks:
            return
        *earlier, final = looks
        for look in earlier:
            seen = commits.get(_position(look, partition), ())
            if len(seen) == 1:
                effective.append((look.completed_ms or 0, seen[0]))
        last: _Effective | None = None
        for known in sorted(effective, key=lambda each: each[0]):
            if known[0] < final.invoked_ms:
                last = _later(last, known)
        told = _position(final, partition)
        possible = [
            each
            for each in commits.get(told, ())
            if each.invoked_ms <= (final.completed_ms or 0) and not _is_over(each, last)
        ]
        if not possible and (last is not None or told >= 0):
            was = -1 if last is None else _position(last[1], partition)
            text = f"group {group} is told {told} in {partition}, where {was} was committed"
            self._found(AnomalyKind.LOST_COMMIT, text, None if last is None else last[1], final)

    def _check_groups(self) -> None:
        """Between them, members read every record from their first to their last."""
        polled: dict[tuple[str, str, int], dict[int, Operation]] = defaultdict(dict)
        for operation in self._operations:
            if operation.kind is Kind.POLL and operation.group and operation.outcome is Outcome.OK:
                for record in operation.records:
                    assert record.offset is not None
                    key = (operation.group, record.topic, record.partition)
                    polled[key].setdefault(record.offset, operation)
        for (group, topic, number), by_offset in polled.items():
            log = self._logs[topic, number]
            for first, following in pairwise(sorted(by_offset)):
                reader = by_offset[following]
                skipped = self._skipped(log, first, following, reader.read_committed)
                if skipped:
                    text = f"group {group} has read {first} and {following} of {log.partition}, not {skipped}"
                    self._found(AnomalyKind.GROUP_SKIP, text, by_offset[first], reader)

    # Transactions among each other

    def _check_cycles(self) -> None:
        writes: dict[str, set[str]] = defaultdict(set)
        reads: dict[str, set[str]] = defaultdict(set)
        for log in self._logs.values():
            names = (
                log.writes[log.seen[offset][0]].operation.transaction
                for offset in log.committed_offsets
                if log.seen[offset][0] in log.writes
            )
            for first, following in pairwise([name for name in names if name]):
                if first != following:
                    writes[first].add(following)
        for name, transaction in self._transactions.items():
            for operation in transaction.polls:
                for record in operation.records:
                    write = self._logs[record.topic, record.partition].writes.get(record.value or "")
                    writer = "" if write is None else write.operation.transaction
                    if writer and writer != name:
                        reads[writer].add(name)
        told: set[frozenset[str]] = set()
        mixed = {name: writes.get(name, set()) | reads.get(name, set()) for name in {**writes, **reads}}
        for kind, graph in (
            (AnomalyKind.CIRCULAR_READ, reads),
            (AnomalyKind.WRITE_CYCLE, writes),
            (AnomalyKind.MIXED_CYCLE, mixed),
        ):
            self._check_graph(kind, dict(graph), told)

    def _check_graph(self, kind: AnomalyKind, graph: Graph, told: set[frozenset[str]]) -> None:
        for component in components(graph):
            if frozenset(component) in told:
                continue
            told.add(frozenset(component))
            cycle = shortest_cycle(graph, component)
            shown = [
                operation
                for name in cycle[:EXAMPLES_MAX]
                for operation in (
                    *(write.operation for _, write in self._transactions[name].writes[:EXAMPLES_MAX]),
                    *self._transactions[name].polls[:EXAMPLES_MAX],
                )
            ]
            self._found(kind, " before ".join([*cycle[:EXAMPLES_MAX], cycle[0]]), *shown)


def _position(operation: Operation, partition: Partition) -> int:
    for record in operation.records:
        if (record.topic, record.partition) == (partition.topic, partition.number):
            return -1 if record.offset is None else record.offset
    raise HistoryError(f"{operation} says nothing of {partition}")


def _later(first: _Effective | None, second: _Effective) -> _Effective:
    """The commit that surely was later; of two at the same time the one that was asked for first, for what is
    over before that one is over before both."""
    if first is None or first[0] < second[1].invoked_ms:
        return second
    if second[0] < first[1].invoked_ms:
        return first
    return min(first, second, key=lambda each: each[1].invoked_ms)


def _is_over(commit: Operation, last: _Effective | None) -> bool:
    """Whether ``last`` has replaced it: the one was acknowledged before the other was asked for."""
    return (
        last is not None
        and commit.outcome is Outcome.OK
        and commit.completed_ms is not None
        and commit.completed_ms < last[1].invoked_ms
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minikafka.testing.history", description=_DESCRIPTION)
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help="a history as JSON lines")
    gc.disable()  # a history has no cycles, and a million operations take twice as long with it
    is_valid = True
    for path in parser.parse_args().files:
        try:
            report = check(read_history(path))
        except (HistoryError, OSError) as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        print(f"{path}: {report}")
        is_valid = is_valid and report.is_valid
    sys.exit(not is_valid)


if __name__ == "__main__":
    main()
