"""The follower's side of a fetch session, alone and against the leader's side."""

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
    FetchSessionCache,
    FetchSessionHandler,
    SessionRequest,
    TopicIdPartition,
)

ID, OTHER_ID = UUID(int=1), UUID(int=2)
A, B, C = (ID, 0), (ID, 1), (ID, 2)
SESSION = 99


def asked(request: SessionRequest[str] | None) -> tuple[int, int, dict[TopicIdPartition, str], list[object]]:
    assert request is not None
    return request.session_id, request.session_epoch, dict(request.to_send), list(request.to_forget)


def in_session(*keys: TopicIdPartition) -> FetchSessionHandler[str]:
    """A handler in a session with these partitions, of which it wants "x"."""
    handler: FetchSessionHandler[str] = FetchSessionHandler()
    for key in keys:
        handler.want(key, "x")
    assert asked(handler.next_request()) == (0, 0, dict.fromkeys(keys, "x"), [])
    assert handler.answered(error=ErrorCode.NONE, session_id=SESSION, keys=keys)
    return handler


def answer(
    handler: FetchSessionHandler[str],
    *keys: TopicIdPartition,
    error: ErrorCode = ErrorCode.NONE,
    session_id: int = SESSION,
) -> bool:
    return handler.answered(error=error, session_id=session_id, keys=keys)


def test_with_nothing_to_fetch_there_is_nothing_to_ask() -> None:
    handler: FetchSessionHandler[str] = FetchSessionHandler()
    assert handler.next_request() is None
    handler.want(A, "x")
    handler.drop(A)
    assert handler.next_request() is None


def test_a_round_without_changes_names_nothing() -> None:
    handler = in_session(A, B)
    assert asked(handler.next_request()) == (SESSION, 1, {}, [])
    assert answer(handler)
    assert asked(handler.next_request()) == (SESSION, 2, {}, [])


def test_what_is_added_changed_and_dropped_is_named_once() -> None:
    handler = in_session(A, B)
    handler.want(C, "new")
    handler.want(A, "y")
    handler.drop(B)
    assert asked(handler.next_request()) == (SESSION, 1, {C: "new", A: "y"}, [B])
    assert (handler.sent(A), handler.sent(B), handler.sent(C)) == ("y", None, "new")
    assert answer(handler)
    assert asked(handler.next_request()) == (SESSION, 2, {}, [])


def test_wanting_the_same_again_is_no_change() -> None:
    handler = in_session(A)
    handler.want(A, "y")
    handler.want(A, "x")
    assert asked(handler.next_request()) == (SESSION, 1, {}, [])


def test_a_topic_that_was_created_again_replaces_the_old_one() -> None:
    handler = in_session(A)
    handler.drop(A)
    handler.want((OTHER_ID, 0), "x")
    assert asked(handler.next_request()) == (SESSION, 1, {(OTHER_ID, 0): "x"}, [A])


def test_a_partition_that_left_and_came_back_unheard_makes_the_leader_say_everything_again() -> None:
    handler = in_session(A, B)
    handler.drop(A)
    handler.want(A, "x")
    assert asked(handler.next_request()) == (SESSION, 0, {B: "x", A: "x"}, [])


def test_forgetting_the_last_partition_ends_the_session() -> None:
    handler = in_session(A)
    handler.drop(A)
    assert asked(handler.next_request()) == (SESSION, 1, {}, [A])
    assert answer(handler, session_id=0)
    assert handler.next_request() is None
    handler.want(B, "x")
    assert asked(handler.next_request()) == (0, 0, {B: "x"}, [])


@pytest.mark.parametrize(
    ("error", "next_session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, SESSION),
        (ErrorCode.UNKNOWN_SERVER_ERROR, SESSION),
    ],
)
def test_an_error_starts_over_and_closes_a_session_that_may_be_open(
    error: ErrorCode, next_session_id: int
) -> None:
    handler = in_session(A, B)
    handler.want(A, "y")
    handler.next_request()
    assert not answer(handler, error=error, session_id=0)
    assert asked(handler.next_request()) == (next_session_id, 0, {A: "y", B: "x"}, [])
    assert answer(handler, A, B, session_id=7)
    assert asked(handler.next_request()) == (7, 1, {}, [])


def test_a_lost_connection_starts_over_too() -> None:
    handler = in_session(A)
    handler.next_request()
    handler.reset()
    assert asked(handler.next_request()) == (SESSION, 0, {A: "x"}, [])


def test_without_a_session_every_request_is_full() -> None:
    handler: FetchSessionHandler[str] = FetchSessionHandler()
    handler.want(A, "x")
    handler.want(B, "x")
    for _ in range(2):
        request = handler.next_request()
        assert request is not None and request.is_full
        assert asked(request)[2] == {A: "x", B: "x"}
        assert answer(handler, A, B, session_id=0)
    handler.move_to_end(A)
    handler.move_to_end(C)  # not there
    request = handler.next_request()
    assert request is not None and list(request.to_send) == [B, A]


@pytest.mark.parametrize("keys", [(A,), (A, B, C), ()])
def test_a_full_answer_has_exactly_what_was_asked_for(keys: tuple[TopicIdPartition, ...]) -> None:
    handler: FetchSessionHandler[str] = FetchSessionHandler()
    handler.want(A, "x")
    handler.want(B, "x")
    handler.next_request()
    assert not answer(handler, *keys)
    assert asked(handler.next_request()) == (SESSION, 0, {A: "x", B: "x"}, []), "the new session is closed"


def test_an_incremental_answer_has_nothing_that_was_not_asked_for() -> None:
    handler = in_session(A, B)
    handler.next_request()
    assert answer(handler, B)
    handler.next_request()
    assert not answer(handler, C)
    assert asked(handler.next_request()) == (SESSION, 0, {A: "x", B: "x"}, [])


class Told(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_start_offset: int = 0
    diverging_epoch: object | None = None
    preferred_read_replica: int = -1


KEYS = [A, B, C, (OTHER_ID, 0)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(KEYS), st.sampled_from("xyz")),
        st.tuples(st.sampled_from(["drop", "drop and want"]), st.sampled_from(KEYS), st.just("x")),
        st.tuples(
            st.sampled_from(["round", "round", "round", "lost", "forgotten", "full house", "news"]),
            st.sampled_from(KEYS),
            st.just(""),
        ),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_leader_always_knows_what_the_follower_wants_and_the_follower_what_the_leader_has(
    steps: list[tuple[str, TopicIdPartition, str]],
) -> None:
    cache: FetchSessionCache[str] = FetchSessionCache(
        max_slots=1, rng=random.Random(3), clock=ManualClock(), min_eviction_ms=1000
    )
    handler: FetchSessionHandler[str] = FetchSessionHandler()
    wanted: dict[TopicIdPartition, str] = {}
    marks = dict.fromkeys(KEYS, 0)
    heard: dict[TopicIdPartition, int] = {}
    for action, key, value in steps:
        match action:
            case "want":
                handler.want(key, value)
                wanted[key] = value
            case "drop" | "drop and want":
                handler.drop(key)
                wanted.pop(key, None)
                heard.pop(key, None)  # a side that drops a partition keeps nothing of what it was told
                if action == "drop and want":
                    handler.want(key, value)
                    wanted[key] = value
            case "news":
                marks[key] += 1
            case "forgotten" | "full house":
                for session_id in list(cache._sessions):
                    cache.remove(session_id)
                if action == "full house":
                    cache.new_context(
                        session_id=0,
                        session_epoch=0,
                        uses_topic_ids=True,
                        is_follower=True,
                        partitions=dict.fromkeys(KEYS, ""),
                    ).respond([(each, Told()) for each in KEYS])
        if action not in ("round", "lost"):
            continue
        for _ in range(3):  # a session that is gone costs one round more
            request = handler.next_request()
            if request is None:
                assert not wanted
                break
            context = cache.new_context(
                session_id=request.session_id,
                session_epoch=request.session_epoch,
                uses_topic_ids=True,
                is_follower=True,
                partitions=dict(request.to_send),
                forgotten=request.to_forget,
            )
            known = dict(context.partitions())
            response = context.respond([(each, Told(high_watermark=marks[each])) for each in known])
            if action == "lost":
                handler.reset()
                break
            if handler.answered(
                error=response.error,
                session_id=response.session_id,
                keys=[each for each, _ in response.answers],
            ):
                assert known == wanted
                heard |= {each: told.high_watermark for each, told in response.answers}
                assert heard == {each: marks[each] for each in wanted}
                break
        else:
            pytest.fail("the session did not recover")
