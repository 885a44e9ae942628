"""One change of the ISR at a time, and until its outcome is known the worse of both holds."""

from __future__ import annotations

from uuid import UUID

import pytest

from minikafka.errors import InvariantError
from minikafka.replication.partition_replicas import (
    IsrChange,
    IsrPhase,
    IsrRefused,
    IsrReread,
    IsrState,
    IsrWritten,
)
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def change(*isr: int, version: int = 5) -> IsrChange:
    return IsrChange(TopicPartition("t", 0), UUID(int=1), LeaderEpoch(3), ids(*isr), version, 1, 2)


@pytest.fixture
def state() -> IsrState:
    made = IsrState()
    made.begin(ids(1, 2), 5)
    return made


def test_an_added_member_counts_at_once_but_is_committed_later(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    assert (state.phase, state.committed, state.maximal) == (IsrPhase.PENDING_EXPAND, ids(1, 2), ids(1, 2, 3))
    assert state.resolve(change(1, 2, 3), IsrWritten(6, ids(1, 2, 3)))
    assert (state.phase, state.committed, state.version) == (IsrPhase.COMMITTED, ids(1, 2, 3), 6)
    state.validate()


def test_a_removed_member_counts_until_it_is_gone(state: IsrState) -> None:
    state.propose(change(1))
    assert (state.phase, state.maximal) == (IsrPhase.PENDING_SHRINK, ids(1, 2))
    assert state.resolve(change(1), IsrWritten(6, ids(1)))
    assert state.maximal == state.committed == ids(1)


def test_one_change_is_in_flight(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    for other in (change(1), change(1, 2, 4)):
        with pytest.raises(InvariantError):
            state.propose(other)
    state.validate()


@pytest.mark.parametrize("wrong", [change(1, 2), change(1, 3), change(1, 2, 3, version=4)])
def test_a_change_is_of_one_kind_and_of_the_known_version(state: IsrState, wrong: IsrChange) -> None:
    with pytest.raises(InvariantError):
        state.propose(wrong)


def test_a_refused_change_stays_in_flight_until_the_controller_speaks(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    assert not state.resolve(change(1, 2, 3), IsrRefused("leader epoch 4 is in the store"))
    assert state.maximal == ids(1, 2, 3)
    state.begin(ids(2, 3), 7)
    assert (state.phase, state.maximal) == (IsrPhase.COMMITTED, ids(2, 3))


def test_what_the_store_has_instead_is_adopted(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    assert state.resolve(change(1, 2, 3), IsrReread(ids(1), 8))
    assert (state.maximal, state.version) == (ids(1), 8)


def test_a_change_that_was_declined_leaves_everything_as_it_was(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    assert state.resolve(change(1, 2, 3), IsrReread(ids(1, 2), 5))
    assert (state.phase, state.maximal, state.version) == (IsrPhase.COMMITTED, ids(1, 2), 5)


def test_an_answer_that_leader_and_isr_has_overtaken_is_ignored(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    state.begin(ids(1), 9)
    for outcome in (IsrWritten(6, ids(1, 2, 3)), IsrReread(ids(1, 2), 5)):
        assert not state.resolve(change(1, 2, 3), outcome)
    assert (state.committed, state.version) == (ids(1), 9)


def test_the_same_leadership_told_again_does_not_forget_the_change_in_flight(state: IsrState) -> None:
    """R10: it may be written already; the high watermark must go on waiting for 3."""
    state.propose(change(1, 2, 3))
    state.adopt(ids(1, 2), 5)
    assert state.maximal == ids(1, 2, 3)
    assert state.resolve(change(1, 2, 3), IsrWritten(6, ids(1, 2, 3)))


def test_a_newer_version_of_the_same_leadership_settles_the_change_in_flight(state: IsrState) -> None:
    state.propose(change(1, 2, 3))
    state.adopt(ids(1), 6)
    assert (state.phase, state.maximal, state.version) == (IsrPhase.COMMITTED, ids(1), 6)


def test_who_is_eligible_without_need_is_cleared_and_nothing_is_committed_meanwhile() -> None:
    state = IsrState()
    state.begin(ids(1, 2), 5, ids(3))
    assert state.has_outdated_eligible(2) and not state.may_commit(2)
    assert not state.has_outdated_eligible(3)
    state.propose(change(1, 2))
    assert (state.phase, state.maximal) == (IsrPhase.PENDING_CLEAR, ids(1, 2))
    assert not state.may_commit(2)
    assert state.resolve(change(1, 2), IsrWritten(6, ids(1, 2)))
    assert state.may_commit(2) and state.version == 6
    state.validate()


def test_a_change_that_changes_nothing_is_refused() -> None:
    state = IsrState()
    state.begin(ids(1), 5, ids(3))
    with pytest.raises(InvariantError):
        state.propose(change(1))  # its minimum is 2: 3 is eligible rightly
