"""How far a follower is with each partition, and which may be fetched now."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import InvariantError
from minikafka.replication.fetch_state import (
    TRANSITIONS,
    FetchEvent,
    FetchStates,
    PartitionFetchState,
    ReplicaState,
)
from minikafka.types import NO_EPOCH, LeaderEpoch, Offset, TopicPartition

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
TOPIC_ID = UUID(int=1)


def following(*, offset: int = 10, epoch: int = 3, latest: int = 2) -> PartitionFetchState:
    return PartitionFetchState.initial(
        TOPIC_ID,
        fetch_offset=Offset(offset),
        current_leader_epoch=LeaderEpoch(epoch),
        latest_epoch=LeaderEpoch(latest),
    )


def after(state: PartitionFetchState, event: FetchEvent) -> PartitionFetchState:
    offset, epoch = Offset(7), LeaderEpoch(1)
    if event is FetchEvent.TRUNCATED:
        return state.truncated(fetch_offset=offset, last_fetched_epoch=epoch)
    return state.fetched(fetch_offset=offset, last_fetched_epoch=epoch, lag=5)


def test_a_log_with_an_epoch_is_fetched_at_once_and_one_without_is_cut_first() -> None:
    with_epoch, without = following(), following(latest=NO_EPOCH)
    assert (with_epoch.is_ready_for_fetch, with_epoch.is_truncating) == (True, False)
    assert (without.is_ready_for_fetch, without.is_truncating) == (False, True)
    assert with_epoch.lag is None


@pytest.mark.parametrize("event", FetchEvent)
@pytest.mark.parametrize("state", ReplicaState)
def test_the_table_of_transitions_is_what_happens(state: ReplicaState, event: FetchEvent) -> None:
    before = following()._replace(state=state)
    expected = TRANSITIONS.get((state, event))
    if expected is None:
        with pytest.raises(InvariantError):
            after(before, event)
        return
    moved = after(before, event)
    assert moved.state is expected
    assert (moved.fetch_offset, moved.last_fetched_epoch) == (7, 1)
    assert (moved.topic_id, moved.current_leader_epoch) == (TOPIC_ID, 3)


@pytest.mark.parametrize("event", FetchEvent)
def test_nothing_happens_to_a_partition_that_is_paused(event: FetchEvent) -> None:
    paused = following()._replace(delayed_until_ms=1)
    assert not paused.is_ready_for_fetch and not paused.is_truncating
    with pytest.raises(InvariantError):
        after(paused, event)


def test_a_cut_keeps_the_lag_and_an_answer_sets_it() -> None:
    fetched = after(following(), FetchEvent.FETCHED)
    assert fetched.lag == 5
    assert after(fetched, FetchEvent.TRUNCATED).lag == 5


def test_only_what_changed_is_looked_at() -> None:
    states = FetchStates()
    states.put(A, following())
    states.put(B, following())
    assert [each for each, _ in states.take_changed(0)] == [A, B]
    assert states.take_changed(0) == []
    moved = after(following(), FetchEvent.FETCHED)
    states.put(B, moved)
    assert states.take_changed(0) == [(B, moved)]


def test_a_partition_is_paused_until_its_time_and_resumes_where_it_was() -> None:
    states = FetchStates()
    states.put(A, following())
    states.put(B, following())
    states.take_changed(0)
    states.delay(A, 100)
    states.delay(B, 150)
    assert states.next_due_ms == 100
    assert [state.is_ready_for_fetch for _, state in states.take_changed(99)] == [False, False]
    assert states.take_changed(100) == [(A, following())]
    assert states.next_due_ms == 150
    states.remove(B)
    assert states.next_due_ms is None


def test_a_second_error_does_not_prolong_the_rest() -> None:
    states = FetchStates()
    states.put(A, following())
    states.delay(A, 100)
    states.delay(A, 500)
    states.delay(C, 500)  # not there
    assert states.next_due_ms == 100
    assert len(states) == 1


def test_a_partition_that_came_back_is_not_paused_any_more() -> None:
    states = FetchStates()
    states.put(A, following())
    states.delay(A, 100)
    states.put(A, following(epoch=4))
    assert states.next_due_ms is None
    assert states.take_changed(0) == [(A, following(epoch=4))]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "remove", "delay", "take"]),
            st.sampled_from([A, B, C]),
            st.integers(0, 50),
        ),
        max_size=40,
    )
)
def test_whatever_comes_the_parts_agree_and_no_change_is_missed(
    story: list[tuple[str, TopicPartition, int]],
) -> None:
    states = FetchStates()
    now_ms = 0
    told: dict[TopicPartition, PartitionFetchState] = {}
    for action, each, number in story:
        now_ms += number
        match action:
            case "put":
                states.put(each, following(offset=number))
            case "remove":
                states.remove(each)
            case "delay":
                states.delay(each, now_ms + 20)
            case "take":
                told |= dict(states.take_changed(now_ms))
                there = dict(states.items())
                assert {key: state for key, state in told.items() if key in there} == there
                assert all(
                    state.delayed_until_ms is None or state.delayed_until_ms > now_ms
                    for state in there.values()
                )
        states.validate()
