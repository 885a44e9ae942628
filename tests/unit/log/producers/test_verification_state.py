"""KIP-890: a transaction begins in a partition only with the guard of a check that still counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import AppendOrigin, VerificationGuard
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import ControlRecordType
from tests.unit.log.log_helpers import NOW_MS, append, append_marker, idempotent, open_log

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> UnifiedLog:
    log = open_log(tmp_path / "t-0", clock=clock)
    log.producers.verifies_transactions = True
    return log


def begin(
    log: UnifiedLog, sequence: int = 0, *, epoch: int = 0, supports_epoch_bump: bool = False
) -> VerificationGuard | None:
    return log.producers.begin_verification(
        7, sequence=sequence, epoch=epoch, supports_epoch_bump=supports_epoch_bump
    )


def write(log: UnifiedLog, sequence: int, guard: VerificationGuard | None = None, **options: Any) -> int:
    batch = idempotent(sequence, transactional=True, **options)
    return append(log, batch, verification_guard=guard).first_offset


def refusal(log: UnifiedLog, sequence: int, guard: VerificationGuard | None, **options: Any) -> ErrorCode:
    """The code, and that nothing has changed."""
    before = (log.log_end_offset, dict(log.producers.active_producers()))
    with pytest.raises(KafkaError) as error:
        write(log, sequence, guard, **options)
    assert (log.log_end_offset, dict(log.producers.active_producers())) == before
    return error.value.code


def test_an_unconfirmed_transaction_does_not_begin(log: UnifiedLog) -> None:
    assert refusal(log, 0, None) is ErrorCode.INVALID_TXN_STATE
    begin(log)
    assert refusal(log, 0, VerificationGuard()) is ErrorCode.INVALID_TXN_STATE  # another request's


def test_its_first_batch_shows_the_guard_and_the_next_ones_need_none(log: UnifiedLog) -> None:
    guard = begin(log)
    assert guard is not None
    assert write(log, 0, guard) == 0
    assert begin(log, 1) is None  # the transaction is open here: no coordinator need be asked
    assert write(log, 1) == 1


def test_batches_that_wait_together_share_a_guard_and_the_first_to_append_uses_it(log: UnifiedLog) -> None:
    first, second = begin(log, 0), begin(log, 1)
    assert first is second
    write(log, 0, first)
    assert write(log, 1, second) == 1  # the transaction is open by now


def test_an_answer_from_before_the_marker_is_about_nothing(log: UnifiedLog) -> None:
    guard = begin(log)
    append_marker(log, ControlRecordType.ABORT)  # the coordinator has given the transaction up meanwhile
    assert refusal(log, 0, guard) is ErrorCode.INVALID_TXN_STATE
    again = begin(log)
    assert again is not guard
    assert refusal(log, 0, guard) is ErrorCode.INVALID_TXN_STATE
    assert write(log, 0, again) == 1


def test_each_transaction_is_confirmed_again(log: UnifiedLog) -> None:
    guard = begin(log)
    write(log, 0, guard)
    append_marker(log, ControlRecordType.COMMIT)
    assert refusal(log, 1, guard) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, 1, None) is ErrorCode.INVALID_TXN_STATE
    assert write(log, 1, begin(log, 1)) == 2


def test_an_open_transaction_of_an_older_epoch_says_nothing_about_this_one(log: UnifiedLog) -> None:
    write(log, 0, begin(log))
    assert refusal(log, 0, None, epoch=1) is ErrorCode.INVALID_TXN_STATE
    assert begin(log, 0, epoch=1) is not None


def test_a_stale_epoch_is_told_before_anything_is_asked(log: UnifiedLog) -> None:
    write(log, 0, begin(log, epoch=3), epoch=3)
    with pytest.raises(KafkaError) as error:
        begin(log, epoch=2)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    append_marker(log, ControlRecordType.COMMIT, epoch=4)
    assert refusal(log, 0, None, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_does_not_overtake_one_whose_check_has_failed(log: UnifiedLog) -> None:
    begin(log, 0)  # and the coordinator could not be asked
    guard = begin(log, 5)
    assert refusal(log, 5, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 0, guard, count=5) == 0
    assert write(log, 5) == 5


def test_a_new_epoch_forgets_what_the_old_one_has_tried(log: UnifiedLog) -> None:
    begin(log, 0)
    guard = begin(log, 0, epoch=1)
    assert refusal(log, 1, guard, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 0, guard, epoch=1) == 0


@pytest.mark.parametrize(("supports_epoch_bump", "is_refused"), [(True, True), (False, False)])
def test_whose_epoch_rises_with_each_transaction_begins_at_sequence_0(
    log: UnifiedLog, supports_epoch_bump: bool, is_refused: bool
) -> None:
    """Else its records before this one are lost without notice."""
    guard = begin(log, 4, supports_epoch_bump=supports_epoch_bump)
    if is_refused:
        assert refusal(log, 4, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    else:
        assert write(log, 4, guard) == 0


def test_a_coordinators_batch_is_checked_too_but_has_no_sequence(log: UnifiedLog) -> None:
    options: dict[str, Any] = {"transactional": True}
    with pytest.raises(KafkaError) as error:
        append(log, idempotent(-1, **options), origin=AppendOrigin.COORDINATOR)
    assert error.value.code is ErrorCode.INVALID_TXN_STATE
    guard = begin(log, -1)
    append(log, idempotent(-1, **options), origin=AppendOrigin.COORDINATOR, verification_guard=guard)
    append(log, idempotent(-1, **options), origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 2


def test_what_a_leader_took_its_follower_takes_without_a_guard(log: UnifiedLog) -> None:
    log.append_as_follower(idempotent(0, transactional=True))
    assert log.producers.first_undecided_offset == 0


def test_a_duplicate_is_answered_though_its_transaction_is_over(log: UnifiedLog) -> None:
    write(log, 0, begin(log))
    append_marker(log, ControlRecordType.COMMIT)
    assert append(log, idempotent(0, transactional=True)).duplicate


def test_checks_that_never_came_to_an_append_are_forgotten(log: UnifiedLog, clock: ManualClock) -> None:
    guard = begin(log)
    clock.advance(DAY_MS - 1)
    log.remove_expired_producers()
    assert begin(log) is guard
    clock.advance(1)
    log.remove_expired_producers()
    assert len(log.producers.verifications) == 0
    assert begin(log) is not guard


def test_without_the_verification_no_guard_is_needed(log: UnifiedLog) -> None:
    log.producers.verifies_transactions = False
    assert write(log, 0) == 0
