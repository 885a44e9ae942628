"""Fetch sessions (KIP-227): what a reader is told, and which sessions live."""

from __future__ import annotations

import random
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode
from minikafka.replication.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchSessionCache,
    FullFetchContext,
    IncrementalFetchContext,
    PartitionKey,
    next_epoch,
)

EVICTION_MS = 1000
A, B, C = ("a", 0), ("b", 0), ("c", 0)


class Answer(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    high_watermark: int = 10
    last_stable_offset: int = 10
    log_start_offset: int = 0
    diverging_epoch: object | None = None
    preferred_read_replica: int = -1


class Sessions:
    """A cache and a clock, driven as the Fetch API drives them."""

    def __init__(self, max_slots: int = 10) -> None:
        self.clock = ManualClock()
        self.cache: FetchSessionCache[str] = FetchSessionCache(
            max_slots=max_slots, rng=random.Random(7), clock=self.clock, min_eviction_ms=EVICTION_MS
        )

    def context(
        self,
        session_id: int,
        epoch: int,
        *keys: PartitionKey,
        forgotten: tuple[PartitionKey, ...] = (),
        ids: bool = False,
        follower: bool = False,
    ) -> FetchContext[str]:
        return self.cache.new_context(
            session_id=session_id,
            session_epoch=epoch,
            uses_topic_ids=ids,
            is_follower=follower,
            partitions={key: f"{key}@{epoch}" for key in keys},
            forgotten=forgotten,
        )

    def open(self, *keys: PartitionKey, ids: bool = False, follower: bool = False) -> int:
        """A new session's id; 0 when there was no room."""
        context = self.context(0, INITIAL_EPOCH, *keys, ids=ids, follower=follower)
        return context.respond([(key, Answer()) for key, _ in context.partitions()]).session_id

    def open_sized(self, size: int, *, follower: bool = False) -> int:
        return self.open(*[("t", partition) for partition in range(size)], follower=follower)


def keys_of(context: FetchContext[str]) -> list[PartitionKey]:
    return [key for key, _ in context.partitions()]


def test_a_reader_opens_a_session_and_then_hears_only_news() -> None:
    sessions = Sessions()
    full = sessions.context(0, INITIAL_EPOCH, A, B)
    assert isinstance(full, FullFetchContext)
    told = full.respond([(A, Answer()), (B, Answer(high_watermark=5))])
    assert told.error is ErrorCode.NONE
    assert told.session_id > 0
    assert [key for key, _ in told.answers] == [A, B]

    context = sessions.context(told.session_id, 1)
    assert keys_of(context) == [A, B], "partitions that the request does not name are still read"
    news = context.respond([(A, Answer()), (B, Answer(high_watermark=6))])
    assert news == (ErrorCode.NONE, told.session_id, [(B, Answer(high_watermark=6))])

    quiet = sessions.context(told.session_id, 2).respond([(A, Answer()), (B, Answer(high_watermark=6))])
    assert quiet.answers == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(records=b"x"),
        Answer(high_watermark=11),
        Answer(last_stable_offset=9),
        Answer(log_start_offset=1),
        Answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(diverging_epoch=(1, 2)),
        Answer(preferred_read_replica=0),
    ],
)
def test_each_kind_of_news_is_told(answer: Answer) -> None:
    sessions = Sessions()
    session_id = sessions.open(A, B)
    context = sessions.context(session_id, 1)
    answers = [(A, answer), (B, Answer())]
    assert context.selected(answers) == [(A, answer)]
    assert context.selected(answers) == [(A, answer)], "looking at the selection changes nothing"
    assert context.respond(answers).answers == [(A, answer)]


def test_an_error_is_told_every_time_and_its_end_once() -> None:
    sessions = Sessions()
    session_id = sessions.open(A)
    failed = Answer(error=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=-1)
    rounds = [failed, failed, Answer(), Answer()]
    told = [
        len(sessions.context(session_id, epoch).respond([(A, answer)]).answers)
        for epoch, answer in enumerate(rounds, start=1)
    ]
    assert told == [1, 1, 1, 0]


def test_an_error_that_carries_offsets_does_not_hide_its_end() -> None:
    sessions = Sessions()
    context = sessions.context(0, INITIAL_EPOCH, A)
    failed = Answer(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    session_id = context.respond([(A, failed)]).session_id
    assert sessions.context(session_id, 1).respond([(A, Answer())]).answers == [(A, Answer())]


def test_after_a_diverging_epoch_everything_is_news_again() -> None:
    """The reader cuts its log and takes nothing else of that answer (KAFKA-14704)."""
    sessions = Sessions()
    session_id = sessions.open(A)
    diverging = Answer(high_watermark=12, diverging_epoch=(1, 2))
    told = [
        len(sessions.context(session_id, epoch).respond([(A, answer)]).answers)
        for epoch, answer in enumerate([diverging, Answer(high_watermark=12), Answer(high_watermark=12)], 1)
    ]
    assert told == [1, 1, 0]


def test_requests_add_change_and_forget_partitions() -> None:
    sessions = Sessions()
    session_id = sessions.open(A, B)
    context = sessions.context(session_id, 1, C, A, forgotten=(B, ("unknown", 3)))
    assert context.partitions() == [(A, f"{A}@1"), (C, f"{C}@1")]
    assert context.respond([(A, Answer()), (C, Answer())]).answers == [(C, Answer())], "a new one is news"
    assert sessions.context(session_id, 2).partitions() == [(A, f"{A}@1"), (C, f"{C}@1")]
    assert sessions.cache.total_partitions == 2


def test_a_session_whose_last_partition_is_forgotten_is_closed() -> None:
    sessions = Sessions()
    session_id = sessions.open(A)
    context = sessions.context(session_id, 1, forgotten=(A,))
    assert type(context) is FetchContext
    assert context.respond([]).session_id == 0
    assert len(sessions.cache) == 0
    assert sessions.context(session_id, 2).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_with_records_take_their_turn_at_the_end() -> None:
    sessions = Sessions()
    session_id = sessions.open(A, B, C)
    sessions.context(session_id, 1).respond([(A, Answer(records=b"x")), (B, Answer(high_watermark=11))])
    assert keys_of(sessions.context(session_id, 2)) == [B, C, A], "news without records moves none"


def test_answers_may_come_in_any_order() -> None:
    sessions = Sessions()
    session_id = sessions.open(A, B, C)
    context = sessions.context(session_id, 1)
    news = context.respond([(C, Answer(records=b"c")), (A, Answer()), (B, Answer(records=b"b"))]).answers
    assert [key for key, _ in news] == [C, B]
    assert keys_of(sessions.context(session_id, 2)) == [A, C, B]


def test_wrong_ids_and_epochs_are_refused() -> None:
    sessions = Sessions()
    session_id = sessions.open(A)
    for context, code in (
        (sessions.context(session_id + 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (sessions.context(0, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (sessions.context(session_id, 2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (sessions.context(session_id, -2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (sessions.context(session_id, 1, ids=True), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        assert context.error is code
        assert context.partitions() == []
        assert context.selected([(A, Answer(records=b"x"))]) == []
        assert context.respond([]) == (code, 0, [])
    assert isinstance(sessions.context(session_id, 1), IncrementalFetchContext), "nothing of this did harm"


def test_sessions_by_topic_id_and_by_name_do_not_mix() -> None:
    sessions = Sessions()
    key = (UUID(int=5), 0)
    by_id = sessions.open(key, ids=True)
    assert sessions.context(by_id, 1).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    context = sessions.context(by_id, 1, ids=True)
    context.remember(key, "now it has a name")
    assert sessions.context(by_id, 2, ids=True).partitions() == [(key, "now it has a name")]


def test_a_full_request_closes_the_session_it_names() -> None:
    sessions = Sessions()
    first = sessions.open(A)
    renewed = sessions.context(first, INITIAL_EPOCH, B)
    assert len(sessions.cache) == 0
    second = renewed.respond([(B, Answer())]).session_id
    assert second not in (0, first)
    final = sessions.context(second, FINAL_EPOCH, A)
    assert len(sessions.cache) == 0
    assert final.respond([(A, Answer())]) == (ErrorCode.NONE, 0, [(A, Answer())])


def test_a_request_overtaken_by_the_next_one_is_an_error() -> None:
    sessions = Sessions()
    session_id = sessions.open(A)
    parked = sessions.context(session_id, 1)
    later = sessions.context(session_id, 2)
    overtaken = (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, [])
    assert parked.throttled() == overtaken
    assert parked.respond([(A, Answer(records=b"x"))]) == overtaken
    assert later.throttled() == (ErrorCode.NONE, session_id, [])
    assert later.respond([(A, Answer(records=b"x"))]).answers == [(A, Answer(records=b"x"))]


def test_throttling_forgets_no_news() -> None:
    sessions = Sessions()
    session_id = sessions.open(A)
    assert sessions.context(session_id, 1).throttled().answers == []
    news = [(A, Answer(high_watermark=99))]
    assert sessions.context(session_id, 2).respond(news).answers == news


def test_epochs_wrap_past_the_two_that_mean_something_else() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, EPOCH_MAX, -1)] == [1, 2, 1, -1]
    sessions = Sessions()
    session_id = sessions.open(A)
    session = sessions.cache.get(session_id)
    assert session is not None
    session.epoch = EPOCH_MAX
    assert sessions.context(session_id, EPOCH_MAX).error is ErrorCode.NONE
    assert sessions.context(session_id, 1).error is ErrorCode.NONE


# Who stays when the slots are full.


def test_without_slots_there_are_no_sessions() -> None:
    sessions = Sessions(max_slots=0)
    assert sessions.open(A) == 0
    assert len(sessions.cache) == 0


def test_a_stale_session_makes_room() -> None:
    sessions = Sessions(max_slots=2)
    first, second = sessions.open_sized(5), sessions.open_sized(5)
    sessions.clock.advance(EVICTION_MS)
    sessions.context(first, 1)
    assert sessions.open_sized(1) == 0, "exactly at the limit none is stale, and both are larger"
    sessions.clock.advance(1)
    third = sessions.open_sized(1)
    assert third
    assert sessions.cache.get(second) is None
    assert sessions.cache.get(first) is not None
    assert len(sessions.cache) == 2


def test_a_larger_consumer_evicts_a_smaller_one_that_is_not_young() -> None:
    sessions = Sessions(max_slots=2)
    small, large = sessions.open_sized(2), sessions.open_sized(9)
    assert sessions.open_sized(5) == 0, "both are young"
    for epoch in range(1, 4):
        sessions.clock.advance(EVICTION_MS // 2)
        for session_id in (small, large):
            sessions.context(session_id, epoch)
    assert sessions.open_sized(2) == 0, "as large is not larger"
    assert sessions.open_sized(3)
    assert sessions.cache.get(small) is None
    assert sessions.cache.get(large) is not None


def test_followers_displace_consumers_and_never_the_other_way_round() -> None:
    sessions = Sessions(max_slots=2)
    consumer, follower = sessions.open_sized(100), sessions.open_sized(1, follower=True)
    assert sessions.open_sized(1, follower=True)
    assert sessions.cache.get(consumer) is None
    for epoch in range(1, 4):
        sessions.clock.advance(EVICTION_MS // 2)
        sessions.context(follower, epoch)
        for session in list(sessions.cache._sessions.values()):
            sessions.cache._touch(session, sessions.clock.monotonic_ms())
    assert sessions.open_sized(1000) == 0
    assert sessions.open_sized(2, follower=True), "an old follower gives way to a larger one"
    assert len(sessions.cache) == 2


def test_a_session_is_ranked_by_its_present_size() -> None:
    sessions = Sessions(max_slots=2)
    grown, other = sessions.open_sized(1), sessions.open_sized(3)
    sessions.clock.advance(EVICTION_MS)
    sessions.context(grown, 1, *[("t", partition) for partition in range(10)])
    sessions.context(other, 1)
    sessions.clock.advance(1)
    sessions.context(grown, 2)
    sessions.context(other, 2)
    assert sessions.cache.total_partitions == 13
    assert sessions.open_sized(4)
    assert sessions.cache.get(other) is None
    assert sessions.cache.total_partitions == 14


# A session tells what full fetches would tell.

states = st.builds(
    Answer,
    records=st.just(b""),
    diverging_epoch=st.none(),
    preferred_read_replica=st.just(-1),
    error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    high_watermark=st.integers(0, 3),
    last_stable_offset=st.integers(0, 3),
    log_start_offset=st.integers(0, 1),
)
partition_keys = st.sampled_from([("t", partition) for partition in range(4)])


class Step(NamedTuple):
    named: set[PartitionKey]
    forgotten: set[PartitionKey]
    changed: dict[PartitionKey, Answer]
    with_records: set[PartitionKey]
    throttled: bool


steps = st.builds(
    Step,
    st.sets(partition_keys),
    st.sets(partition_keys),
    st.dictionaries(partition_keys, states),
    st.sets(partition_keys),
    st.booleans(),
)


@given(first=st.sets(partition_keys, min_size=1), story=st.lists(steps, max_size=12))
def test_an_incremental_session_equals_the_full_view(first: set[PartitionKey], story: list[Step]) -> None:
    sessions = Sessions()
    broker: dict[PartitionKey, Answer] = {("t", partition): Answer() for partition in range(4)}
    full = sessions.context(0, INITIAL_EPOCH, *first)
    response = full.respond([(key, broker[key]) for key in keys_of(full)])
    reader = {key: answer._replace(records=b"") for key, answer in response.answers}
    asked = set(first)
    epoch = 1
    for step in story:
        broker |= step.changed
        context = sessions.context(
            response.session_id, epoch, *step.named, forgotten=tuple(step.forgotten - step.named)
        )
        epoch += 1
        asked = (asked | step.named) - (step.forgotten - step.named)
        assert set(keys_of(context)) == asked
        reader = {key: known for key, known in reader.items() if key in asked}
        if step.throttled and asked:
            context.throttled()
            continue
        answers = [
            (key, broker[key]._replace(records=b"x" if key in step.with_records else b""))
            for key in keys_of(context)
        ]
        told = context.respond(answers)
        assert {key for key, answer in answers if answer.records} <= {key for key, _ in told.answers}
        reader |= {key: answer._replace(records=b"") for key, answer in told.answers}
        assert reader == {key: broker[key] for key in asked}
        if not asked:
            assert told.session_id == 0
            return


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.integers(0, 700)), max_size=40))
def test_slots_and_counts_hold_whatever_comes(arrivals: list[tuple[int, bool, int]]) -> None:
    sessions = Sessions(max_slots=3)
    epochs: dict[int, int] = {}
    for size, follower, pause_ms in arrivals:
        sessions.clock.advance(pause_ms)
        session_id = sessions.open_sized(size, follower=follower)
        if session_id:
            epochs[session_id] = 1
        for known in list(epochs):
            if sessions.cache.get(known) is None:
                del epochs[known]
            elif known % 2:
                assert sessions.context(known, epochs[known]).error is ErrorCode.NONE
                epochs[known] += 1
        assert len(sessions.cache) == len(epochs) <= 3
        alive = [sessions.cache.get(known) for known in epochs]
        assert sessions.cache.total_partitions == sum(len(one.partitions) for one in alive if one)
