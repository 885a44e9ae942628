"""Share sessions: who may go on, and who has to begin."""

from __future__ import annotations

from uuid import UUID

import pytest

from minikafka.coordinator.share.messages import TopicIdPartition
from minikafka.errors import ErrorCode, KafkaError
from minikafka.share.share_session import SessionKey, ShareSessionCache, next_epoch

ONE, TWO, THREE = (TopicIdPartition(UUID(int=1), number) for number in range(3))
MEMBER = SessionKey("g", "m")


def test_a_session_goes_on_with_the_next_epoch_and_changes_its_partitions() -> None:
    cache = ShareSessionCache(10)
    session = cache.begin(MEMBER, [ONE])
    assert cache.proceed(MEMBER, 1, add=[TWO, THREE], forget=[ONE, THREE]) is session
    assert list(session.partitions) == [TWO]
    for epoch in (1, 3):
        with pytest.raises(KafkaError) as refused:
            cache.proceed(MEMBER, epoch)
        assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert cache.proceed(MEMBER, 2).epoch == 3
    assert next_epoch(2**31 - 1) == 1


def test_a_session_that_has_ended_is_not_found() -> None:
    cache = ShareSessionCache(10)
    session = cache.begin(MEMBER, [ONE])
    assert cache.end(session)
    assert not cache.end(session)
    with pytest.raises(KafkaError) as refused:
        cache.proceed(MEMBER, 1)
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_one_session_more_than_there_may_be_is_refused_but_not_a_new_one_of_the_same_member() -> None:
    cache = ShareSessionCache(1)
    first = cache.begin(MEMBER, [ONE])
    with pytest.raises(KafkaError) as refused:
        cache.begin(SessionKey("g", "other"), [ONE])
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert cache.begin(MEMBER, [ONE, TWO]) is not first
    assert (len(cache), cache.partitions) == (1, 2)
    assert not cache.end(first)


def test_all_partitions_come_first_in_turn() -> None:
    cache = ShareSessionCache(1)
    session = cache.begin(MEMBER, [ONE, TWO, THREE])
    firsts = []
    for epoch in range(1, 4):
        firsts.append(session.in_turn()[0])
        cache.proceed(MEMBER, epoch)
    assert set(firsts) == {ONE, TWO, THREE}
