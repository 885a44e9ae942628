"""One partition as one share group consumes it: which records are in flight, with whom, and until when.

Kafka: ``kafka.server.share.SharePartition`` with ``InFlightBatch`` and ``InFlightState``; KIP-932, KIP-1206
(acquire modes), KIP-1222 (renewal). Records from the share-partition start offset (SPSO) up to the end are in
flight, each in one of these states:

    AVAILABLE --acquire (delivery count + 1)------------------> ACQUIRED
    ACQUIRED  --accept----------------------------------------> ACKNOWLEDGED
    ACQUIRED  --reject, or as below at the limit--------------> ARCHIVING, ARCHIVED
    ACQUIRED  --gap-------------------------------------------> ARCHIVED
    ARCHIVING --in the dead letter queue, or not possible-----> ARCHIVED
    ACQUIRED  --release, lock over----------------------------> AVAILABLE
    ACQUIRED  --session over (delivery count - 1)-------------> AVAILABLE
    AVAILABLE --log start moved, aborted, compacted-----------> ARCHIVED

An acknowledgement is a ``Transition``: a value that says what is to be persisted. Until ``complete`` its
records are neither acquired nor acknowledged again; when it could not be persisted they are what they were.
A lock that is over, and a session, take effect at once: what is persisted of them is a delivery count.

A group with a dead letter queue (KIP-1191) has records in ARCHIVING between the two: that is persisted first,
then they are written to the queue, then ARCHIVED is persisted. The next leader finds what is in ARCHIVING,
and writes it to the queue once more: each record is there at least once. ``complete`` names what is to be
written, ``archive`` is told when that is done.

Where Kafka has batches with states of offsets in them, here are ``runs``: consecutive records with the same
history. Invariants:
- the runs follow each other without a gap from ``start_offset`` to ``next_offset``;
- a run with ``before`` belongs to exactly one transition that is not complete;
- the first run, if there is one, is not terminal, or is waiting for its transition;
- a run in ARCHIVING is never split or joined, so that it stays the one that ``complete`` has named.

Where it differs from Kafka: offsets that are not in the log any more (compacted), control batches, and
aborted transactions under read_committed are archived as soon as a fetch shows them; consumers need not
acknowledge such gaps between batches.

What was delivered often may have one record in it that no member can process. So records that were delivered
half of ``delivery_count_limit`` times are given out in ever smaller parts of the batch they were first
delivered in, and for the last time each alone (``shouldThrottleRecordsDelivery``). Kafka looks at a whole
batch in flight; here each run of it is throttled by itself, and batches that have become one run count as
the largest of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Final

from minikafka.coordinator.share.messages import StateBatch
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.named_tuple import NamedTuple

THROTTLE_DELIVERIES_MIN: Final = 2
"""Records that were delivered less often are never throttled, however low the limit is (Kafka:
``MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT``)."""


class RecordState(IntEnum):
    """By the ids that are persisted (Kafka: ``RecordState``)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """No member gets it any more, and it is not known to be in the dead letter queue."""
    ARCHIVED = 4


TERMINAL: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class DeadLetterCause(Enum):
    """Why a record is given up, as it says in the dead letter queue (Kafka: ``ShareGroupDLQManager``)."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class AcknowledgeType(IntEnum):
    """What a consumer says of a record (Kafka: ``AcknowledgeType``)."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """It is still at work on it: the lock begins again (KIP-1222)."""


_OUTCOMES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class AcquireMode(IntEnum):
    """How max records counts (Kafka: ``ShareAcquireMode``, KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole record batches, until there are as many records or more."""
    RECORD_LIMIT = 1
    """No more records than that."""


class ShareLimits(NamedTuple):
    """What holds for the group now."""

    delivery_count_limit: int
    record_locks_max: int
    """Records in flight beyond which none is read from the log that was not read before."""
    lock_duration_ms: int
    has_dead_letter_queue: bool = False


class FetchedBatch(NamedTuple):
    """A record batch that was read, by its offsets, both included."""

    first_offset: int
    last_offset: int
    is_hidden: bool = False
    """Nothing in it is for consumers: a control batch, or of an aborted transaction for a group that reads
    what is committed."""


class AcquiredRecords(NamedTuple):
    """Records that a member has been given, both offsets included."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


class AcknowledgementBatch(NamedTuple):
    """``types``: one for all offsets, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]

    def ranges(self) -> Iterator[tuple[int, int, AcknowledgeType]]:
        """First and last offset of the same type."""
        if len(self.types) == 1:
            yield self.first_offset, self.last_offset, AcknowledgeType(self.types[0])
            return
        first = self.first_offset
        for offset, kind in enumerate(self.types, start=self.first_offset):
            if offset == self.last_offset or self.types[offset + 1 - self.first_offset] != kind:
                yield first, offset, AcknowledgeType(kind)
                first = offset + 1


class _Before(NamedTuple):
    """What a run goes back to when its transition is not persisted."""

    state: RecordState
    member_id: str | None
    lock_until_ms: int


class Run:
    """Consecutive records with the same history."""

    __slots__ = (
        "batch_count",
        "before",
        "cause",
        "delivery_count",
        "first",
        "last",
        "lock_until_ms",
        "member_id",
        "state",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member_id: str | None = None,
        lock_until_ms: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms
        self.before: _Before | None = None
        self.batch_count = last - first + 1
        """Records that were first delivered together with these."""
        self.cause: DeadLetterCause | None = None
        """In ARCHIVING."""

    def __repr__(self) -> str:
        held = "" if self.member_id is None else f" by {self.member_id} until {self.lock_until_ms}"
        waits = "" if self.before is None else f" after {self.before.state.name}"
        return f"[{self.first}-{self.last} {self.state.name} x{self.delivery_count}{held}{waits}]"

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire it."""
        return self.state is RecordState.AVAILABLE and self.before is None

    @property
    def is_over(self) -> bool:
        """Whether no member gets it any more, and that is safe."""
        return self.state in TERMINAL and self.before is None

    def continues(self, other: Run) -> bool:
        """Whether both may be one run, of which this is the second."""
        return (
            self.state is other.state
            and self.state not in (RecordState.ACQUIRED, RecordState.ARCHIVING)
            and self.before is None
            and other.before is None
            and (self.delivery_count == other.delivery_count or self.state in TERMINAL)
        )

    def extend(self, other: Run) -> None:
        """By ``other``, which continues it."""
        self.last = other.last
        self.batch_count = max(self.batch_count, other.batch_count)


class Transition:
    """Records that change their state when ``batches`` are persisted, or have changed it already."""

    __slots__ = ("batches", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.batches: list[StateBatch] = []

    def __repr__(self) -> str:
        return f"Transition({self.batches})"

    def add(self, run: Run) -> None:
        """``run`` is in its new state."""
        self.runs.append(run)
        batch = StateBatch(run.first, run.last, int(run.state), run.delivery_count)
        if self.batches:
            last = self.batches[-1]
            if last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
                self.batches[-1] = last._replace(last_offset=batch.last_offset)
                return
        self.batches.append(batch)


class SharePartition:
    """See the module header. Times are milliseconds of a clock that never goes back."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], limits: ShareLimits) -> None:
        """``batches`` are what was persisted, in order. What lies between them was never acknowledged.

        Raises:
            KafkaError: UNKNOWN_SERVER_ERROR: they are not in order, or of no state that is persisted.
        """
        self.start_offset = start_offset
        self.next_offset = start_offset
        """Behind the last record in flight: what comes after was not acquired by any member yet."""
        self.limits = limits
        self.runs: list[Run] = []
        for batch in batches:
            if batch.first_offset < self.next_offset or batch.last_offset < batch.first_offset:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the persisted state is not in order: {batch} behind offset {self.next_offset}",
                )
            if batch.delivery_state not in (RecordState.AVAILABLE, RecordState.ARCHIVING, *TERMINAL):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the persisted state has {batch}")
            if batch.first_offset > self.next_offset:
                self._append(batch.first_offset - 1, RecordState.AVAILABLE, 0)
            self._append(batch.last_offset, RecordState(batch.delivery_state), batch.delivery_count)
        self._may_have_free = bool(self.runs)
        self._advance_start()

    def __repr__(self) -> str:
        return f"SharePartition({self.start_offset} to {self.next_offset}, {len(self.runs)} runs)"

    @property
    def in_flight(self) -> int:
        """Records between the start offset and the end."""
        return self.next_offset - self.start_offset

    # Acquiring

    def next_fetch_offset(self) -> int:
        """Where the next fetch should begin: at the first record that is available, else behind all."""
        if self._may_have_free:
            for run in self.runs:
                if run.is_free:
                    return run.first
            self._may_have_free = False
        return self.next_offset

    def can_acquire(self) -> bool:
        """Whether a fetch at ``next_fetch_offset`` may bring anything."""
        return self.in_flight < self.limits.record_locks_max or self.next_fetch_offset() < self.next_offset

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Sequence[FetchedBatch],
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        now_ms: int,
    ) -> list[AcquiredRecords]:
        """Give ``member_id`` what is available of ``batches``, which were read from ``fetch_offset`` on, in
        the order of the log. About ``batch_size`` records are in each element, cut where record batches end.
        """
        if not batches:
            return []
        begin = max(batches[0].first_offset, self.start_offset)
        self._archive_missing(max(fetch_offset, self.start_offset), begin)
        last = batches[-1].last_offset
        taking = _Taking(member_id, batches, max_records, batch_size, mode, self._lock_until(now_ms))
        at = bisect_right(self.runs, begin, key=_first) - 1 if begin < self.next_offset else len(self.runs)
        while at < len(self.runs) and self.runs[at].first <= last and taking.left > 0:
            if not self.runs[at].is_free:
                at += 1
                continue
            at = self._split(max(begin, self.runs[at].first))
            run = self.runs[at]
            part = self._part(run)
            if part is not None and taking.acquired:
                taking.left = 0
                break
            end = run.last if part is None else min(run.last, run.first + part - 1)
            taken = taking.take(run.first, min(end, last), run.delivery_count)
            if not taken:
                break
            self._split(taken[-1].last + 1)
            for each in taken:
                each.batch_count = run.batch_count
            self.runs[at : at + 1] = taken
            at += len(taken)
            if part is not None and taking.acquired:
                taking.left = 0
        new = max(begin, self.next_offset)
        room = self.limits.record_locks_max - self.in_flight
        if new <= last and taking.left > 0 and room > 0:
            taking.left = min(taking.left, room)
            for run in taking.take(new, last, 0):
                run.batch_count = run.count
                self.runs.append(run)
                self.next_offset = run.last + 1
        self._advance_start()
        return taking.acquired

    def _part(self, run: Run) -> int | None:
        """How many records of ``run`` are given out at once, and with no others; None when it is not
        throttled."""
        limit = self.limits.delivery_count_limit
        throttled_from = max(THROTTLE_DELIVERIES_MIN, (limit + 1) // 2)
        if run.delivery_count < throttled_from:
            return None
        if run.delivery_count >= limit - 1:
            return 1
        return max(1, run.batch_count >> (run.delivery_count - throttled_from + 1))

    def _archive_missing(self, first: int, end: int) -> None:
        """The log has nothing from ``first`` to before ``end`` (any more)."""
        while first < min(end, self.next_offset):
            run = self.runs[self._index(first)]
            last = min(run.last, end - 1)
            if run.is_free:
                self._split(first)
                self._split(last + 1)
                self.runs[self._index(first)].state = RecordState.ARCHIVED
            first = last + 1
        if end > self.next_offset:
            self._append(end - 1, RecordState.ARCHIVED, 0)

    def _lock_until(self, now_ms: int) -> int:
        return now_ms + self.limits.lock_duration_ms

    # Acknowledging

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], *, now_ms: int
    ) -> Transition:
        """All of ``batches``, or nothing of them. They are in order, and of as many types as their module
        says. What lies below the start offset is passed over.

        Raises:
            KafkaError: INVALID_RECORD_STATE: the member does not hold one of the records.
        """
        changes = []
        for batch in batches:
            for first, last, kind in batch.ranges():
                if last >= self.start_offset:
                    first = max(first, self.start_offset)
                    self._check_holds(member_id, first, last)
                    changes.append((first, last, kind))
        transition = Transition()
        for first, last, kind in changes:
            at, end = self._split(first), self._split(last + 1)
            for run in self.runs[at:end]:
                if kind is AcknowledgeType.RENEW:
                    run.lock_until_ms = self._lock_until(now_ms)
                    continue
                cause = DeadLetterCause.REJECTED if kind is AcknowledgeType.REJECT else None
                self._end_lock(run, _OUTCOMES[kind], cause, is_certain=False)
                transition.add(run)
        return transition

    def _check_holds(self, member_id: str, first: int, last: int) -> None:
        if last >= self.next_offset:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, "The request batch offsets are not found in the cache."
            )
        for run in self.runs[self._index(first) : self._index(last) + 1]:
            if run.state is not RecordState.ACQUIRED or run.before is not None:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    "The batch cannot be acknowledged. The batch is not in the acquired state.",
                )
            if run.member_id != member_id:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")

    def _end_lock(
        self, run: Run, state: RecordState, cause: DeadLetterCause | None = None, *, is_certain: bool
    ) -> None:
        """``cause``: why the run is given up, when it is not because of the limit."""
        if not is_certain:
            run.before = _Before(run.state, run.member_id, run.lock_until_ms)
        if state is RecordState.AVAILABLE and run.delivery_count >= self.limits.delivery_count_limit:
            state, cause = RecordState.ARCHIVED, DeadLetterCause.DELIVERED_TOO_OFTEN
        if cause is not None and self.limits.has_dead_letter_queue:
            state, run.cause = RecordState.ARCHIVING, cause
        run.state, run.member_id, run.lock_until_ms = state, None, 0
        self._may_have_free = True

    def complete(self, transition: Transition, *, is_persisted: bool) -> list[Run]:
        """What ``transition`` says is persisted, or is not, as far as is known. Returns what is for the dead
        letter queue now; then ``archive``."""
        dead = []
        for run in transition.runs:
            if run.before is not None:
                if not is_persisted:
                    run.state, run.member_id, run.lock_until_ms = run.before
                    run.cause = None
                run.before = None
            if run.state is RecordState.ARCHIVING:
                dead.append(run)
            elif self.start_offset <= run.first < self.next_offset:
                self._join(self._index(run.first))
        self._may_have_free = True
        self._advance_start()
        return dead

    def resume_archiving(self) -> list[Run]:
        """What was for the dead letter queue when the share partition was written last; then ``archive``."""
        dead = [run for run in self.runs if run.state is RecordState.ARCHIVING]
        for run in dead:  # not persisted; Kafka concludes it in the same way (``maybeResumeDlqArchiving``)
            is_at_limit = run.delivery_count >= self.limits.delivery_count_limit
            run.cause = DeadLetterCause.DELIVERED_TOO_OFTEN if is_at_limit else DeadLetterCause.REJECTED
        return dead

    def archive(self, dead: Iterable[Run]) -> Transition:
        """They are in the dead letter queue, or cannot be written to it: it is over with them, at once."""
        transition = Transition()
        for run in dead:
            if run.state is RecordState.ARCHIVING and run.last >= self.start_offset:
                run.state, run.cause = RecordState.ARCHIVED, None
                transition.add(run)
        self._join_all()
        self._advance_start()
        return transition

    def release(self, member_id: str) -> bool:
        """The member's session is over: what it holds was not delivered, and is available at once. What is
        persisted of these records stays as it is. Returns whether it held any."""
        held = [run for run in self.runs if run.state is RecordState.ACQUIRED and run.member_id == member_id]
        for run in held:
            run.state, run.member_id, run.lock_until_ms = RecordState.AVAILABLE, None, 0
            run.delivery_count -= 1
            self._may_have_free = True
        self._join_all()
        return bool(held)

    def next_lock_end_ms(self) -> int | None:
        """When the first lock is over; None when there is none."""
        return min(
            (run.lock_until_ms for run in self.runs if run.state is RecordState.ACQUIRED), default=None
        )

    def expire_locks(self, now_ms: int) -> Transition:
        """What is over by ``now_ms`` is available again, or archived, at once. The start offset moves past
        what is archived when that is persisted: a late acknowledgement of what lies below is passed over."""
        transition = Transition()
        for run in self.runs:
            if run.state is RecordState.ACQUIRED and run.lock_until_ms <= now_ms:
                self._end_lock(run, RecordState.AVAILABLE, is_certain=True)
                if run.is_over:
                    run.before = _Before(run.state, None, 0)  # the start offset stays before it until then
                transition.add(run)
        self._join_all()
        self._advance_start()
        return transition

    def delivery_complete_count(self) -> int:
        """Records from the start offset on that are acknowledged or archived, or will be when all is
        persisted."""
        return sum(run.count for run in self.runs if run.state in TERMINAL)

    # The start of the log

    def move_start(self, log_start_offset: int) -> None:
        """Records below were deleted from the log, held by a member or not. Nothing, when that is known."""
        if log_start_offset <= self.start_offset:
            return
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        kept = bisect_right(self.runs, log_start_offset, key=_first) - 1
        if kept >= 0:
            del self.runs[: kept if self.runs[kept].last >= log_start_offset else kept + 1]
        if self.runs:
            self.runs[0].first = max(self.runs[0].first, log_start_offset)
        self._advance_start()

    # The runs

    def _index(self, offset: int) -> int:
        """Of the run with ``offset``, which is in flight."""
        return bisect_right(self.runs, offset, key=_first) - 1

    def _append(self, last: int, state: RecordState, delivery_count: int) -> None:
        run = Run(self.next_offset, last, state, delivery_count)
        self.runs.append(run)
        self.next_offset = last + 1
        self._join(len(self.runs) - 1)

    def _split(self, offset: int) -> int:
        """Have a run begin at ``offset``. Returns its index; the number of runs for the end."""
        if offset >= self.next_offset:
            return len(self.runs)
        at = self._index(offset)
        run = self.runs[at]
        if run.first == offset:
            return at
        if run.before is not None:
            raise InvariantError(f"{run} is in a transition, and cannot be split at {offset}")
        rest = Run(offset, run.last, run.state, run.delivery_count, run.member_id, run.lock_until_ms)
        rest.batch_count, rest.cause = run.batch_count, run.cause
        run.last = offset - 1
        self.runs.insert(at + 1, rest)
        return at + 1

    def _join(self, at: int) -> None:
        """Make one run of the one at ``at`` and its neighbours, where they are alike."""
        for left in (at, at - 1):
            if 0 <= left < len(self.runs) - 1 and self.runs[left + 1].continues(self.runs[left]):
                self.runs[left].extend(self.runs[left + 1])
                del self.runs[left + 1]

    def _join_all(self) -> None:
        joined: list[Run] = []
        for run in self.runs:
            if joined and run.continues(joined[-1]):
                joined[-1].extend(run)
            else:
                joined.append(run)
        self.runs = joined

    def _advance_start(self) -> None:
        over = 0
        for run in self.runs:
            if not run.is_over:
                break
            over += 1
            self.start_offset = run.last + 1
        del self.runs[:over]

    def validate(self) -> None:
        """Raises InvariantError."""
        at = self.start_offset
        for run in self.runs:
            if run.first != at or run.last < run.first:
                raise InvariantError(f"{run} does not begin at {at}: {self.runs}")
            if run.cause is not None and run.state is not RecordState.ARCHIVING:
                raise InvariantError(f"{run} is not archiving, and has a cause: {run.cause}")
            if (run.state is RecordState.ACQUIRED) != (run.member_id is not None):
                raise InvariantError(f"{run} is held by {run.member_id}")
            at = run.last + 1
        if at != self.next_offset:
            raise InvariantError(f"the runs end at {at}, not {self.next_offset}")
        if self.runs and self.runs[0].is_over:
            raise InvariantError(f"{self.runs[0]} is over and still there")


class _Taking:
    """The records that one call of ``acquire`` gives to a member."""

    def __init__(
        self,
        member_id: str,
        batches: Sequence[FetchedBatch],
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        lock_until_ms: int,
    ) -> None:
        self.left = max_records
        self.acquired: list[AcquiredRecords] = []
        self._member_id = member_id
        self._batches = batches
        self._batch_size = max(batch_size, 1)
        self._mode = mode
        self._lock_until_ms = lock_until_ms

    def take(self, first: int, last: int, delivery_count: int) -> list[Run]:
        """Runs from ``first`` on, which no member has, until as many as wanted are taken or all up to
        ``last``: acquired ones, and archived ones where nothing is to be delivered."""
        runs: list[Run] = []
        at = first
        begin = max(bisect_right(self._batches, first, key=_first_offset) - 1, 0)
        for number in range(begin, len(self._batches)):
            batch = self._batches[number]
            if at > last or self.left <= 0:
                break
            if batch.last_offset < at:
                continue
            if batch.first_offset > at:  # compacted
                end = min(batch.first_offset - 1, last)
                runs.append(Run(at, end, RecordState.ARCHIVED, delivery_count))
                at = end + 1
                if at > last:
                    break
            end = min(batch.last_offset, last)
            if batch.is_hidden:
                runs.append(Run(at, end, RecordState.ARCHIVED, delivery_count))
            else:
                if self._mode is AcquireMode.RECORD_LIMIT:
                    end = min(end, at + self.left - 1)
                self.left -= end - at + 1
                self._acquire(runs, at, end, delivery_count + 1)
            at = end + 1
        self.acquired += [
            AcquiredRecords(run.first, run.last, run.delivery_count)
            for run in runs
            if run.state is RecordState.ACQUIRED
        ]
        return runs

    def _acquire(self, runs: list[Run], first: int, last: int, delivery_count: int) -> None:
        if runs and runs[-1].state is RecordState.ACQUIRED and runs[-1].count < self._batch_size:
            runs[-1].last = last
        else:
            runs.append(
                Run(first, last, RecordState.ACQUIRED, delivery_count, self._member_id, self._lock_until_ms)
            )


def _first(run: Run) -> int:
    return run.first


def _first_offset(batch: FetchedBatch) -> int:
    return batch.first_offset
