"""Share partitions: what is given to whom, what comes again, and what never does."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minikafka.coordinator.share.messages import StateBatch
from minikafka.coordinator.share.shard import combine_batches
from minikafka.errors import ErrorCode, KafkaError
from minikafka.share.share_partition import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    DeadLetterCause,
    FetchedBatch,
    RecordState,
    Run,
    ShareLimits,
    SharePartition,
    Transition,
)

LIMITS = ShareLimits(delivery_count_limit=5, record_locks_max=2_000, lock_duration_ms=30_000)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def partition(start_offset: int = 0, *batches: StateBatch, limits: ShareLimits = LIMITS) -> SharePartition:
    return SharePartition(start_offset, batches, limits)


def acquire(
    shared: SharePartition,
    member_id: str,
    *ranges: tuple[int, int],
    max_records: int = 500,
    batch_size: int = 500,
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    now_ms: int = 0,
) -> list[AcquiredRecords]:
    """Of record batches with these offsets, fetched from where the partition wants to go on."""
    found = shared.acquire(
        member_id,
        shared.next_fetch_offset(),
        [FetchedBatch(*each) for each in ranges],
        max_records=max_records,
        batch_size=batch_size,
        mode=mode,
        now_ms=now_ms,
    )
    shared.validate()
    return found


def acknowledge(
    shared: SharePartition, member_id: str, first: int, last: int, kind: int = ACCEPT, *, now_ms: int = 0
) -> Transition:
    found = shared.acknowledge(member_id, [AcknowledgementBatch(first, last, (kind,))], now_ms=now_ms)
    shared.validate()
    return found


def complete(shared: SharePartition, transition: Transition, *, is_persisted: bool = True) -> None:
    shared.complete(transition, is_persisted=is_persisted)
    shared.validate()


def test_what_one_member_holds_no_other_gets() -> None:
    shared = partition()
    assert acquire(shared, "a", (0, 9)) == [AcquiredRecords(0, 9, 1)]
    assert acquire(shared, "b", (0, 9)) == []
    assert shared.next_fetch_offset() == 10


def release_times(shared: SharePartition, times: int, *ranges: tuple[int, int]) -> None:
    """All of ``ranges`` is delivered together and given back so many times."""
    for _ in range(times):
        for found in acquire(shared, "a", *ranges):
            complete(shared, acknowledge(shared, "a", found.first_offset, found.last_offset, RELEASE))


def test_what_was_delivered_often_comes_in_smaller_parts_and_for_the_last_time_alone() -> None:
    shared = partition()  # 5 deliveries: throttled from the fourth on
    release_times(shared, 3, (0, 9))
    assert acquire(shared, "a", (0, 9), (10, 19)) == [AcquiredRecords(0, 4, 4)]
    assert acquire(shared, "b", (0, 9), (10, 19)) == [AcquiredRecords(5, 9, 4)]
    assert acquire(shared, "b", (10, 19)) == [AcquiredRecords(10, 19, 1)]
    complete(shared, acknowledge(shared, "a", 0, 4, RELEASE))
    assert acquire(shared, "a", (0, 9)) == [AcquiredRecords(0, 0, 5)]
    assert acquire(shared, "a", (0, 9)) == [AcquiredRecords(1, 1, 5)]


def test_each_delivery_above_half_of_the_limit_halves_the_part() -> None:
    shared = partition(limits=LIMITS._replace(delivery_count_limit=8))  # throttled from the fifth on
    release_times(shared, 4, (0, 15))
    parts = []
    for _ in range(4):
        (found,) = acquire(shared, "a", (0, 15))
        parts.append(found)
        complete(shared, acknowledge(shared, "a", found.first_offset, found.last_offset, RELEASE))
    assert parts == [
        AcquiredRecords(0, 7, 5),
        AcquiredRecords(0, 3, 6),
        AcquiredRecords(0, 1, 7),
        AcquiredRecords(0, 0, 8),
    ]


def test_what_is_throttled_is_never_given_out_with_other_records() -> None:
    shared = partition(0, StateBatch(4, 7, RecordState.AVAILABLE, 4))
    assert acquire(shared, "a", (0, 3), (4, 7), (8, 11)) == [AcquiredRecords(0, 3, 1)]
    assert acquire(shared, "a", (4, 7), (8, 11)) == [AcquiredRecords(4, 4, 5)]


def test_the_limit_of_the_group_says_what_is_throttled() -> None:
    shared = partition(0, StateBatch(0, 7, RecordState.AVAILABLE, 4))
    shared.limits = LIMITS._replace(delivery_count_limit=10)
    assert acquire(shared, "a", (0, 7), (8, 11)) == [AcquiredRecords(0, 7, 5), AcquiredRecords(8, 11, 1)]


def test_with_a_limit_of_two_nothing_is_throttled() -> None:
    shared = partition(limits=LIMITS._replace(delivery_count_limit=2))
    release_times(shared, 1, (0, 9))
    assert acquire(shared, "a", (0, 9)) == [AcquiredRecords(0, 9, 2)]


def test_records_that_are_hidden_now_do_not_hold_up_what_is_behind_them() -> None:
    shared = partition(0, StateBatch(0, 3, RecordState.AVAILABLE, 4))
    found = shared.acquire(
        "a",
        0,
        [FetchedBatch(0, 3, is_hidden=True), FetchedBatch(4, 5)],
        max_records=500,
        batch_size=500,
        mode=AcquireMode.BATCH_OPTIMIZED,
        now_ms=0,
    )
    shared.validate()
    assert found == [AcquiredRecords(4, 5, 1)]


def test_what_is_accepted_moves_the_start_when_it_is_persisted() -> None:
    shared = partition()
    acquire(shared, "a", (0, 9))
    transition = acknowledge(shared, "a", 0, 9)
    assert transition.batches == [StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1)]
    assert shared.start_offset == 0
    complete(shared, transition)
    assert (shared.start_offset, shared.runs) == (10, [])


def test_what_could_not_be_persisted_is_still_held() -> None:
    shared = partition()
    acquire(shared, "a", (0, 9))
    complete(shared, acknowledge(shared, "a", 3, 5), is_persisted=False)
    complete(shared, acknowledge(shared, "a", 0, 9))
    assert shared.start_offset == 10


def test_records_whose_acknowledgement_is_being_persisted_are_not_given_or_acknowledged_again() -> None:
    shared = partition()
    acquire(shared, "a", (0, 9))
    transition = acknowledge(shared, "a", 0, 9, RELEASE)
    assert acquire(shared, "b", (0, 9)) == []
    with pytest.raises(KafkaError) as refused:
        acknowledge(shared, "a", 0, 9)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    complete(shared, transition)
    assert acquire(shared, "b", (0, 9)) == [AcquiredRecords(0, 9, 2)]


@pytest.mark.parametrize(("member_id", "first", "last"), [("b", 0, 9), ("a", 5, 10), ("a", 20, 21)])
def test_only_what_a_member_holds_it_may_acknowledge(member_id: str, first: int, last: int) -> None:
    shared = partition()
    acquire(shared, "a", (0, 9))
    with pytest.raises(KafkaError) as refused:
        acknowledge(shared, member_id, first, last)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert acknowledge(shared, "a", 0, 9).batches


def test_a_lock_that_is_over_gives_records_to_others_until_the_delivery_limit() -> None:
    shared = partition(limits=LIMITS._replace(delivery_count_limit=2))
    acquire(shared, "a", (0, 4), now_ms=0)
    assert shared.next_lock_end_ms() == 30_000
    assert not shared.expire_locks(29_999).batches
    assert shared.expire_locks(30_000).batches == [StateBatch(0, 4, RecordState.AVAILABLE, 1)]
    assert acquire(shared, "b", (0, 4), now_ms=30_000) == [AcquiredRecords(0, 4, 2)]
    with pytest.raises(KafkaError):
        acknowledge(shared, "a", 0, 4)
    over = shared.expire_locks(60_000)
    assert over.batches == [StateBatch(0, 4, RecordState.ARCHIVED, 2)]
    assert not acquire(shared, "a", (0, 4), now_ms=60_000)
    shared.complete(over, is_persisted=True)
    assert shared.start_offset == 5


@pytest.mark.parametrize("is_persisted", [True, False])
def test_a_late_acknowledgement_of_what_is_given_up_is_refused_until_that_is_persisted(
    is_persisted: bool,
) -> None:
    """Passed over, it would be answered as if it counted; and the next leader may not know of it."""
    shared = partition(limits=LIMITS._replace(delivery_count_limit=1))
    acquire(shared, "a", (0, 4), now_ms=0)
    over = shared.expire_locks(30_000)
    with pytest.raises(KafkaError) as refused:
        acknowledge(shared, "a", 0, 4)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    shared.complete(over, is_persisted=is_persisted)
    assert shared.start_offset == 5


def test_a_renewed_lock_begins_again() -> None:
    shared = partition()
    acquire(shared, "a", (0, 4), now_ms=0)
    assert not acknowledge(shared, "a", 1, 2, AcknowledgeType.RENEW, now_ms=10_000).batches
    assert shared.expire_locks(30_000).batches == [
        StateBatch(0, 0, RecordState.AVAILABLE, 1),
        StateBatch(3, 4, RecordState.AVAILABLE, 1),
    ]
    assert shared.next_lock_end_ms() == 40_000


def test_a_session_that_ends_gives_its_records_back_uncounted() -> None:
    shared = partition(limits=LIMITS._replace(delivery_count_limit=1))
    acquire(shared, "a", (0, 4))
    assert shared.release("a")
    assert not shared.release("a")
    assert acquire(shared, "b", (0, 4)) == [AcquiredRecords(0, 4, 1)]


def test_each_offset_may_have_a_type_of_its_own() -> None:
    shared = partition()
    acquire(shared, "a", (0, 4))
    types = (ACCEPT, ACCEPT, RELEASE, REJECT, AcknowledgeType.GAP)
    transition = shared.acknowledge("a", [AcknowledgementBatch(0, 4, types)], now_ms=0)
    complete(shared, transition)
    assert transition.batches == [
        StateBatch(0, 1, RecordState.ACKNOWLEDGED, 1),
        StateBatch(2, 2, RecordState.AVAILABLE, 1),
        StateBatch(3, 4, RecordState.ARCHIVED, 1),
    ]
    assert (shared.start_offset, shared.next_fetch_offset()) == (2, 2)
    assert shared.delivery_complete_count() == 2


def test_whole_batches_are_given_unless_the_limit_is_strict() -> None:
    batches = ((0, 9), (10, 19), (20, 29))
    shared = partition()
    assert acquire(shared, "a", *batches, max_records=12, batch_size=10) == [
        AcquiredRecords(0, 9, 1),
        AcquiredRecords(10, 19, 1),
    ]
    strict = partition()
    mode = AcquireMode.RECORD_LIMIT
    assert acquire(strict, "a", *batches, max_records=12, mode=mode) == [AcquiredRecords(0, 11, 1)]
    assert acquire(strict, "b", *batches, max_records=12, mode=mode) == [AcquiredRecords(12, 23, 1)]


def test_no_more_records_than_locks_are_read_from_the_log() -> None:
    shared = partition(limits=LIMITS._replace(record_locks_max=10))
    acquire(shared, "a", (0, 9), (10, 19))
    assert shared.next_offset == 10
    assert not shared.can_acquire()
    complete(shared, acknowledge(shared, "a", 5, 6, RELEASE))
    assert shared.can_acquire()
    assert acquire(shared, "b", (0, 9), (10, 19)) == [AcquiredRecords(5, 6, 2)]


def test_what_is_compacted_or_aborted_is_passed_over() -> None:
    shared = partition()
    found = shared.acquire(
        "a",
        0,
        [FetchedBatch(5, 9), FetchedBatch(10, 14, is_hidden=True), FetchedBatch(20, 24)],
        max_records=100,
        batch_size=100,
        mode=AcquireMode.BATCH_OPTIMIZED,
        now_ms=0,
    )
    shared.validate()
    assert found == [AcquiredRecords(5, 9, 1), AcquiredRecords(20, 24, 1)]
    assert shared.start_offset == 5
    complete(shared, acknowledge(shared, "a", 5, 9))
    assert shared.start_offset == 20


def test_released_records_that_were_compacted_meanwhile_end() -> None:
    shared = partition()
    acquire(shared, "a", (0, 9))
    shared.release("a")
    assert acquire(shared, "b", (15, 19)) == [AcquiredRecords(15, 19, 1)]
    assert shared.start_offset == 15


def test_what_is_deleted_from_the_log_needs_no_acknowledgement() -> None:
    shared = partition()
    acquire(shared, "a", (0, 9))
    transition = acknowledge(shared, "a", 0, 4)
    shared.move_start(7)
    shared.validate()
    complete(shared, transition)
    complete(shared, acknowledge(shared, "a", 0, 9))
    assert shared.start_offset == 10
    shared.move_start(20)
    assert (shared.start_offset, shared.next_fetch_offset()) == (20, 20)


def test_a_new_leader_gives_what_was_not_acknowledged() -> None:
    shared = partition(
        3,
        StateBatch(3, 4, RecordState.ACKNOWLEDGED, 1),
        StateBatch(7, 8, RecordState.AVAILABLE, 2),
        StateBatch(9, 9, RecordState.ARCHIVED, 5),
    )
    shared.validate()
    assert (shared.start_offset, shared.next_offset, shared.next_fetch_offset()) == (5, 10, 5)
    assert acquire(shared, "a", (0, 12)) == [
        AcquiredRecords(5, 6, 1),
        AcquiredRecords(7, 8, 3),
        AcquiredRecords(10, 12, 1),
    ]


# Dead letter queues

WITH_QUEUE = LIMITS._replace(has_dead_letter_queue=True)
REJECTED, TOO_OFTEN = DeadLetterCause.REJECTED, DeadLetterCause.DELIVERED_TOO_OFTEN


def test_what_is_rejected_is_archived_when_it_is_in_the_dead_letter_queue() -> None:
    shared = partition(limits=WITH_QUEUE)
    acquire(shared, "a", (0, 9))
    rejection = acknowledge(shared, "a", 0, 4, REJECT)
    assert rejection.batches == [StateBatch(0, 4, RecordState.ARCHIVING, 1)]
    dead = shared.complete(rejection, is_persisted=True)
    assert [(run.first, run.last, run.cause) for run in dead] == [(0, 4, REJECTED)]
    assert (shared.start_offset, shared.delivery_complete_count()) == (0, 0)
    assert shared.archive(dead).batches == [StateBatch(0, 4, RecordState.ARCHIVED, 1)]
    assert shared.start_offset == 5
    assert not shared.archive(dead).batches
    shared.validate()


def test_a_rejection_that_could_not_be_persisted_is_not_for_the_queue() -> None:
    shared = partition(limits=WITH_QUEUE)
    acquire(shared, "a", (0, 4))
    assert not shared.complete(acknowledge(shared, "a", 0, 4, REJECT), is_persisted=False)
    accepted = acknowledge(shared, "a", 0, 4, ACCEPT)
    assert not shared.complete(accepted, is_persisted=True)
    assert shared.start_offset == 5


@pytest.mark.parametrize("is_persisted", [True, False])
def test_what_was_delivered_too_often_is_for_the_queue(is_persisted: bool) -> None:
    shared = partition(limits=WITH_QUEUE._replace(delivery_count_limit=2))
    acquire(shared, "a", (0, 4))
    complete(shared, acknowledge(shared, "a", 0, 4, RELEASE))
    acquire(shared, "a", (0, 4))
    released = acknowledge(shared, "a", 0, 1, RELEASE)
    (run,) = shared.complete(released, is_persisted=True)
    assert (run.first, run.last, run.cause) == (0, 1, TOO_OFTEN)
    expired = shared.expire_locks(30_000)
    assert expired.batches == [StateBatch(2, 4, RecordState.ARCHIVING, 2)]
    (other,) = shared.complete(expired, is_persisted=is_persisted)  # the lock is over all the same
    assert (other.first, other.last, other.cause) == (2, 4, TOO_OFTEN)
    assert shared.archive([run, other]).batches == [StateBatch(0, 4, RecordState.ARCHIVED, 2)]
    assert shared.start_offset == 5


def test_a_gap_is_never_for_the_queue() -> None:
    shared = partition(limits=WITH_QUEUE)
    acquire(shared, "a", (0, 4))
    gap = acknowledge(shared, "a", 0, 4, AcknowledgeType.GAP)
    assert not shared.complete(gap, is_persisted=True)
    assert shared.start_offset == 5


def test_a_new_leader_writes_to_the_queue_what_the_last_may_not_have() -> None:
    shared = partition(
        0,
        StateBatch(0, 1, RecordState.ARCHIVING, 1),
        StateBatch(2, 2, RecordState.ARCHIVING, 1),
        StateBatch(3, 3, RecordState.ARCHIVING, 5),
        StateBatch(4, 4, RecordState.AVAILABLE, 1),
        limits=WITH_QUEUE,
    )
    assert shared.next_fetch_offset() == 4
    dead = shared.resume_archiving()
    assert [(run.first, run.last, run.cause) for run in dead] == [
        (0, 1, REJECTED),
        (2, 2, REJECTED),
        (3, 3, TOO_OFTEN),
    ]
    shared.move_start(1)
    shared.archive(dead)
    shared.validate()
    assert shared.start_offset == 4


@pytest.mark.parametrize(
    "batches", [(StateBatch(5, 9, 2, 1), StateBatch(8, 9, 0, 1)), (StateBatch(0, 1, 1, 1),)]
)
def test_a_damaged_state_is_refused(batches: tuple[StateBatch, ...]) -> None:
    with pytest.raises(KafkaError):
        partition(0, *batches)


RECORDS = 40
MEMBERS = ("a", "b", "c")


class SharedByThree(RuleBasedStateMachine):
    """Three members, persisting that fails now and then, and leaders that fail: against a model that knows of
    each record who holds it and whether it was acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.limits = ShareLimits(3, record_locks_max=25, lock_duration_ms=100, has_dead_letter_queue=True)
        self.shared = SharePartition(0, (), self.limits)
        self.persisted: tuple[StateBatch, ...] = ()
        self.persisted_start = 0
        self.holders: dict[int, tuple[str, int]] = {}
        self.done: set[int] = set()
        self.writing: list[Transition] = []
        self.dead: list[Run] = []
        """For the dead letter queue."""

    @rule(
        member=st.sampled_from(MEMBERS),
        max_records=st.integers(1, 12),
        mode=st.sampled_from(AcquireMode),
        size=st.sampled_from((1, 3, 5)),
    )
    def fetch(self, member: str, max_records: int, mode: AcquireMode, size: int) -> None:
        offset = self.shared.next_fetch_offset()
        if offset >= RECORDS or not self.shared.can_acquire():
            return
        begin = offset - offset % size
        batches = [FetchedBatch(at, min(at + size, RECORDS) - 1) for at in range(begin, RECORDS, size)]
        found = self.shared.acquire(
            member, offset, batches, max_records=max_records, batch_size=4, mode=mode, now_ms=self.now_ms
        )
        for first, last, count in found:
            assert 1 <= count <= self.limits.delivery_count_limit
            for each in range(first, last + 1):
                assert each not in self.holders, f"{each} was given to two members"
                assert each not in self.done, f"{each} came again"
                self.holders[each] = (member, self.now_ms + self.limits.lock_duration_ms)
        if mode is AcquireMode.RECORD_LIMIT:
            assert sum(each.record_count for each in found) <= max_records

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, RECORDS),
        size=st.integers(1, 10),
        kind=st.sampled_from(AcknowledgeType),
    )
    def acknowledges(self, member: str, first: int, size: int, kind: AcknowledgeType) -> None:
        wanted = [each for each in range(first, first + size) if each >= self.shared.start_offset]
        may = all(self.holders.get(each, ("", 0))[0] == member for each in wanted)
        try:
            transition = self.shared.acknowledge(
                member, [AcknowledgementBatch(first, first + size - 1, (kind,))], now_ms=self.now_ms
            )
        except KafkaError:
            assert not may
            return
        assert may
        for each in wanted:
            if kind is AcknowledgeType.RENEW:
                self.holders[each] = (member, self.now_ms + self.limits.lock_duration_ms)
            else:
                del self.holders[each]
        if transition.runs:
            self.writing.append(transition)

    @precondition(lambda self: self.writing)
    @rule(is_persisted=st.booleans())
    def persisted_or_not(self, is_persisted: bool) -> None:
        transition = self.writing.pop(0)
        locks = {
            each: (run.before.member_id or "", run.before.lock_until_ms)
            for run in transition.runs
            if run.before is not None
            for each in range(run.first, run.last + 1)
        }
        if is_persisted:
            self._persist(transition)
        self.dead += self.shared.complete(transition, is_persisted=is_persisted)
        if not is_persisted:
            self.holders |= locks
            return
        for batch in transition.batches:
            if batch.delivery_state != RecordState.AVAILABLE:
                self.done |= set(range(batch.first_offset, batch.last_offset + 1))

    def _persist(self, transition: Transition) -> None:
        self.persisted_start = max(self.persisted_start, self.shared.start_offset)
        self.persisted = combine_batches(self.persisted, transition.batches, self.persisted_start)

    @rule(duration_ms=st.sampled_from((10, 60, 100)))
    def time_passes(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        transition = self.shared.expire_locks(self.now_ms)
        self.holders = {at: held for at, held in self.holders.items() if held[1] > self.now_ms}
        self._persist(transition)
        self.dead += self.shared.complete(transition, is_persisted=True)

    @precondition(lambda self: self.dead)
    @rule()
    def the_dead_letter_queue_is_written(self) -> None:
        dead, self.dead = self.dead, []
        transition = self.shared.archive(dead)
        self._persist(transition)
        assert not self.shared.complete(transition, is_persisted=True)

    @rule(member=st.sampled_from(MEMBERS))
    def session_ends(self, member: str) -> None:
        self.shared.release(member)
        self.holders = {at: held for at, held in self.holders.items() if held[0] != member}

    @rule()
    def leader_fails(self) -> None:
        self.shared = SharePartition(self.persisted_start, self.persisted, self.limits)
        self.holders.clear()
        self.writing.clear()
        self.dead = self.shared.resume_archiving()

    @invariant()
    def what_is_archiving_waits_for_the_queue(self) -> None:
        archiving = [
            run for run in self.shared.runs if run.state is RecordState.ARCHIVING and run.before is None
        ]
        assert set(archiving) == set(self.dead), "a dead letter is forgotten"

    @invariant()
    def is_valid(self) -> None:
        self.shared.validate()


TestSharedByThree = SharedByThree.TestCase
TestSharedByThree.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
