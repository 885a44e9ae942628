"""A follower copies what its leader has: what it asks, and what each kind of answer does to its log."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.fast_paths import EpochEndOffset
from minikafka.server.replica.replica_fetcher import EXPECTED_ERRORS, INITIAL_BACKOFF_MS
from minikafka.testing.simulation.disk import failing
from minikafka.types import TopicPartition
from tests.unit.server.replication_support import (
    BACKOFF_MS,
    BROKER_EPOCH,
    SOON_MS,
    T0,
    T1,
    T2,
    TOPIC_ID,
    WAIT_MS,
    assert_same,
    content,
    story,
    write,
)
from tests.unit.server.virtual_time import in_virtual_time, passing

# ---- copying


@in_virtual_time
async def test_a_follower_copies_its_leader_byte_by_byte_and_follows_its_high_watermark(
    tmp_path: Path,
) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", "b", "c"), told.hosts()
        told.follows()
        await passing(SOON_MS)
        assert_same(leader, follower)
        assert told.state().lag == 0
        await passing(WAIT_MS)
        assert follower.high_watermark == leader.high_watermark == 3
        told.leader.write(T0, "d")
        await passing(SOON_MS)
        assert_same(leader, follower)
        appended = [info.last_offset for _, info in told.replicas.appended if info is not None]
        assert appended == [2, 3]
        assert (T0, None) in told.replicas.appended, "a high watermark that moved alone is told too"


@in_virtual_time
async def test_a_fetch_names_the_follower_and_where_it_is(tmp_path: Path) -> None:
    async with story(tmp_path, replica_fetch_max_bytes=777, replica_fetch_response_max_bytes=8888) as told:
        told.leads("a", "b", epoch=3)
        follower = told.hosts("a", epoch=3)
        follower.update_high_watermark(1)
        told.follows(epoch=3)
        await passing(SOON_MS)
        first = told.leader.fetches[0]
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, BROKER_EPOCH)
        assert (first.max_wait, first.min_bytes, first.max_bytes) == (WAIT_MS, 1, 8888)
        assert (first.isolation_level, first.rack_id) == (0, "")
        assert first.topics[0].topic_id == TOPIC_ID
        asked = first.topics[0].partitions[0]
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (1, 3, 3)
        assert (asked.log_start_offset, asked.high_watermark, asked.partition_max_bytes) == (0, 1, 777)
        assert told.leader.connections[0].client_id == "broker-2-fetcher-0"


@in_virtual_time
async def test_an_idle_round_names_nothing_and_looks_at_no_partition(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        partitions = [TopicPartition("t", number) for number in range(20)]
        for each in partitions:
            told.leads("a", at=each)
            told.hosts(at=each)
        told.follows(*partitions)
        await passing(2 * WAIT_MS)
        looks, rounds = told.replicas.hosted_count, len(told.leader.fetches)
        await passing(10 * WAIT_MS)
        assert told.replicas.hosted_count == looks
        idle = told.leader.fetches[rounds:]
        assert len(idle) == 10
        assert all(not request.topics and not request.forgotten_topics_data for request in idle)
        assert {request.session_id for request in idle} == {idle[0].session_id} != {0}


@in_virtual_time
async def test_a_leaders_log_start_is_followed(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", "b", "c"), told.hosts()
        told.follows()
        await passing(2 * WAIT_MS)
        leader.increment_log_start_offset(2)
        await passing(2 * WAIT_MS)
        assert follower.log_start_offset == 2
        assert told.leader.fetches[-1].topics == ()
        named = [request for request in told.leader.fetches if request.topics]
        assert named[-1].topics[0].partitions[0].log_start_offset == 2, "the leader is told that it followed"


@in_virtual_time
async def test_no_partition_starves_where_an_answer_has_room_for_one(tmp_path: Path) -> None:
    """Without a session the follower's own order says who is read first."""
    async with story(tmp_path, session_slots=0, replica_fetch_response_max_bytes=1) as told:
        for each in (T0, T1, T2):
            told.leads("a", "b", "c", at=each)
            told.hosts(at=each)
        told.follows(T0, T1, T2)
        await passing(SOON_MS)
        order = [at for at, info in told.replicas.appended if info is not None]
        assert order == [T0, T1, T2] * 3


# ---- sessions


@in_virtual_time
async def test_a_leader_that_forgets_the_session_gets_everything_again_at_once(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.follows()
        await passing(2 * WAIT_MS)
        told.leader.sessions.remove(told.leader.fetches[-1].session_id)
        rounds = len(told.leader.fetches)
        await passing(WAIT_MS + SOON_MS)
        told.leader.write(T0, "b")
        await passing(SOON_MS)
        assert_same(leader, follower)
        after = told.leader.fetches[rounds : rounds + 3]
        assert [request.session_epoch for request in after[1:]] == [0, 1], "full, then incremental again"
        assert len(told.leader.connections) == 1, "that is no reason to reconnect"


@in_virtual_time
async def test_a_leader_that_refuses_whole_fetches_is_left_alone_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.leader.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        told.follows()
        await passing(5 * BACKOFF_MS + SOON_MS)
        assert len(told.leader.fetches) == 6
        assert "it answers CLUSTER_AUTHORIZATION_FAILED" in caplog.text
        told.leader.refusal = ErrorCode.NONE
        await passing(BACKOFF_MS)
        assert_same(leader, follower)


@in_virtual_time
async def test_a_removed_partition_is_forgotten_and_the_others_go_on(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        for each in (T0, T1):
            told.leads("a", at=each)
            told.hosts(at=each)
        told.follows(T0, T1)
        await passing(2 * WAIT_MS)
        told.fetchers.remove([T0])
        await passing(WAIT_MS)
        told.leader.write(T0, "b")
        told.leader.write(T1, "b")
        await passing(WAIT_MS)
        forgotten = [request.forgotten_topics_data for request in told.leader.fetches]
        assert [topic.partitions for topics in forgotten for topic in topics] == [(0,)]
        assert told.replicas.partitions[T0].log.log_end_offset == 1
        assert told.replicas.partitions[T1].log.log_end_offset == 2


# ---- errors of one partition


def tries(told: Any) -> int:
    """How many fetches have asked for the first partition."""
    return sum(
        any(one.partition == 0 for one in topic.partitions)
        for request in told.leader.fetches
        for topic in request.topics
    )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@in_virtual_time
async def test_an_error_delays_its_partition_and_no_other(
    code: ErrorCode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "minikafka.server.replica.replica_fetcher")
    async with story(tmp_path) as told:
        for each in (T0, T1):
            told.leads("a", at=each)
            told.hosts(at=each)
        told.leader.errors[T0] = code
        told.follows(T0, T1)
        await passing(3 * BACKOFF_MS + SOON_MS)
        assert told.replicas.partitions[T1].log.log_end_offset == 1
        assert told.replicas.partitions[T0].log.log_end_offset == 0
        assert told.state().delayed_until_ms is not None
        assert 3 <= tries(told) <= 4, "one every second"
        assert len([line for line in caplog.messages if code.name in line]) == 1, "and one line in the log"
        del told.leader.errors[T0]
        await passing(2 * BACKOFF_MS)
        assert told.replicas.partitions[T0].log.log_end_offset == 1


@pytest.mark.parametrize("code", EXPECTED_ERRORS)
@in_virtual_time
async def test_a_leader_that_has_not_heard_yet_is_asked_again_soon_and_then_less_and_less(
    code: ErrorCode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "minikafka.server.replica.replica_fetcher")
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        told.leader.errors[T0] = code
        told.follows()
        await passing(4 * INITIAL_BACKOFF_MS)
        assert 3 <= tries(told) <= 4
        await passing(10 * BACKOFF_MS)
        assert tries(told) <= 20
        levels = [each.levelname for each in caplog.records if code.name in each.getMessage()]
        assert levels == ["DEBUG", "WARNING"], "expected at first; what does not end is told once"
        del told.leader.errors[T0]
        await passing(BACKOFF_MS + SOON_MS)
        assert told.replicas.partitions[T0].log.log_end_offset == 1
        told.leader.errors[T0] = code  # another time, it begins with short backoffs again
        told.leader.write(T0, "b")
        asked = tries(told)
        await passing(BACKOFF_MS)
        assert tries(told) - asked >= 4
        assert not told.fetchers.failed_partitions


@in_virtual_time
async def test_a_fenced_partition_waits_for_news_of_its_leadership(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", epoch=5), told.hosts()
        told.follows(epoch=4)
        await passing(5 * BACKOFF_MS)
        assert told.fetchers.failed_partitions == {T0}
        assert told.state() is None
        assert len(told.leader.fetches) <= 2, "no leader is asked in vain"
        told.follows(epoch=5)
        assert told.fetchers.failed_partitions == set()
        await passing(SOON_MS)
        assert_same(leader, follower)


@in_virtual_time
async def test_damaged_records_are_fetched_again(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", "b"), told.hosts()
        other_leader, other = told.leads("x", at=T1), told.hosts(at=T1)

        def flip_a_bit(at: TopicPartition, records: Any) -> Any:
            if at == T1:
                return records
            damaged = bytearray(records)
            damaged[-1] ^= 1
            return damaged

        told.leader.spoil = flip_a_bit
        told.follows(T0, T1)
        await passing(SOON_MS)
        assert follower.log_end_offset == 0
        assert_same(other_leader, other)
        told.leader.spoil = lambda _, records: records
        await passing(2 * BACKOFF_MS)
        assert_same(leader, follower)


@pytest.mark.parametrize("is_longer", [True, False])
@in_virtual_time
async def test_a_log_that_moved_by_itself_is_not_written_to(is_longer: bool, tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a", "b")
        follower = told.hosts()
        told.follows()
        await passing(WAIT_MS)
        if is_longer:
            write(follower, "not the leader's")
        else:
            follower.truncate_to(1)
        before = content(follower)
        told.leader.write(T0, "c")
        await passing(SOON_MS)
        assert content(follower) == before
        assert told.fetchers.failed_partitions == {T0}


@in_virtual_time
async def test_r17_a_failing_disk_ends_the_fetching_of_its_partition_and_is_reported(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        other_leader, other = told.leads("x", at=T1), told.hosts(at=T1)
        told.follows(T0, T1)
        await passing(WAIT_MS)
        told.disk.fault = failing("write", "t-0", errno.EIO)
        told.leader.write(T0, "b")
        told.leader.write(T1, "y")
        await passing(WAIT_MS)
        assert told.fetchers.failed_partitions == {T0}
        assert told.replicas.failures == [(T0, ErrorCode.KAFKA_STORAGE_ERROR)]
        assert_same(other_leader, other)


@in_virtual_time
async def test_a_partition_that_is_not_here_fails_alone(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        other_leader, other = told.leads("x", at=T1), told.hosts(at=T1)
        told.follows(T0, T1)
        del told.replicas.partitions[T0]
        await passing(SOON_MS)
        assert told.fetchers.failed_partitions == {T0}
        assert_same(other_leader, other)


@in_virtual_time
async def test_a_divergence_that_cannot_be_followed_is_not_asked_for_without_end(tmp_path: Path) -> None:
    """KAFKA-10706: the same question, and the same answer, for ever."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", "b"), told.hosts("a")
        told.leader.diverging[T0] = EpochEndOffset(0, 100)
        told.follows()
        await passing(3 * BACKOFF_MS + SOON_MS)
        assert 3 <= len(told.leader.fetches) <= 8
        assert follower.log_end_offset == 1
        told.leader.diverging.clear()
        await passing(2 * BACKOFF_MS)
        assert_same(leader, follower)


# ---- out of range


@in_virtual_time
async def test_a_follower_with_more_than_an_unclean_leader_has_is_cut(tmp_path: Path) -> None:
    """Its epochs cannot say so, for all its records were deleted."""
    async with story(tmp_path) as told:
        told.leads("a", "b")
        follower = told.hosts()
        follower.truncate_fully_and_start_at(9)
        told.follows()
        await passing(SOON_MS)
        assert [key for key, _ in told.leader.asked].count(ApiKey.LIST_OFFSETS) == 2
        assert (follower.log_start_offset, follower.log_end_offset) == (2, 2)
        told.leader.write(T0, "c")
        await passing(SOON_MS)
        assert follower.log_end_offset == 3


@in_virtual_time
async def test_a_follower_that_is_behind_its_leaders_start_restarts_its_log_there(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader = told.leads("a", "b", "c", "d")
        follower = told.hosts()
        write(follower, "a")
        leader.update_high_watermark(4)
        leader.increment_log_start_offset(3)
        told.follows()
        await passing(SOON_MS)
        assert (follower.log_start_offset, follower.log_end_offset) == (3, 4)
        assert content(follower) == content(leader)[-len(content(follower)) :]


@in_virtual_time
async def test_a_follower_that_came_into_range_meanwhile_keeps_its_log_and_backs_off(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", "b"), told.hosts("a")
        told.leader.errors[T0] = ErrorCode.OFFSET_OUT_OF_RANGE
        told.follows()
        await passing(2 * BACKOFF_MS + SOON_MS)
        assert follower.log_end_offset == 1
        assert [key for key, _ in told.leader.asked].count(ApiKey.LIST_OFFSETS) == 6, "once a second"
        told.leader.errors.clear()
        await passing(2 * BACKOFF_MS)
        assert_same(leader, follower)


@pytest.mark.parametrize("leader_epoch", [2, 0])
@in_virtual_time
async def test_the_leaders_bounds_are_asked_for_at_the_same_epoch(leader_epoch: int, tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a", epoch=1)
        follower = told.hosts()
        follower.truncate_fully_and_start_at(9)

        async def elect(key: int, request: Any) -> None:
            if key == ApiKey.LIST_OFFSETS:
                told.leader.epochs[T0] = leader_epoch

        told.leader.meanwhile = elect
        told.follows(epoch=1)
        await passing(SOON_MS)
        assert follower.log_end_offset == 9
        fenced = leader_epoch > 1
        assert told.fetchers.failed_partitions == ({T0} if fenced else set())
        assert fenced or told.state().delayed_until_ms is not None
