"""A fetcher whose replication quota is exceeded does not ask for listed partitions that lag, and pauses when
nothing else is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minikafka.config.topic import ALL, NONE
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from tests.unit.server.replication_support import (
    BACKOFF_MS,
    SOON_MS,
    T0,
    T1,
    WAIT_MS,
    Story,
    assert_same,
    fetcher_of,
    story,
)
from tests.unit.server.virtual_time import in_virtual_time, passing

RATE = 1000


def spend(told: Story, seconds: int) -> None:
    """The quota is exceeded for so long."""
    told.quota.record(RATE * seconds, told.clock.monotonic_ms())


def throttled(told: Story, *partitions: Any) -> None:
    told.quota.update_rate(RATE)
    told.quota.mark_throttled("t", frozenset(each.partition for each in partitions))


@in_virtual_time
async def test_while_the_quota_is_exceeded_a_partition_that_lags_is_not_asked_for(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a", "b"), told.hosts()
        throttled(told, T0)
        spend(told, 5)
        told.follows()
        await passing(4900)
        assert told.leader.fetches == [] and follower.log_end_offset == 0
        assert told.quota.held_back == {T0: 5}, "once at each look"
        await passing(BACKOFF_MS + SOON_MS)
        assert_same(leader, follower)
        told.quota.mark_throttled("t", NONE)
        assert told.quota.held_back == {}, "what is not listed any more"


@in_virtual_time
async def test_a_fetcher_with_nothing_to_ask_looks_once_in_a_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        throttled(told, T0)
        looks: list[int] = []

        def look(quota: ReplicationQuotaManager, now_ms: int) -> bool:
            looks.append(now_ms)
            return True

        monkeypatch.setattr(ReplicationQuotaManager, "is_quota_exceeded", look)
        told.follows()
        start_ms = told.clock.monotonic_ms()
        await passing(5 * BACKOFF_MS - SOON_MS)
        assert [at_ms - start_ms for at_ms in looks] == [BACKOFF_MS * number for number in range(5)]


@in_virtual_time
async def test_others_of_the_same_leader_are_fetched_meanwhile(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        held = told.hosts()
        leader, free = told.leads("a", at=T1), told.hosts(at=T1)
        throttled(told, T0)
        spend(told, 5)
        told.follows(T0, T1)
        await passing(SOON_MS)
        told.leader.write(T1, "b")
        await passing(SOON_MS)
        assert_same(leader, free)
        assert held.log_end_offset == 0
        await passing(5000 + WAIT_MS)
        assert held.log_end_offset == 1


@in_virtual_time
async def test_a_partition_that_is_in_sync_is_fetched_and_its_bytes_count(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        throttled(told, T0)
        told.follows()
        await passing(2 * WAIT_MS)
        assert told.state().is_in_sync
        spend(told, 5)
        told.leader.write(T0, "x" * 20_000)
        await passing(SOON_MS)
        told.leader.write(T0, "asked for with the quota exceeded")
        await passing(SOON_MS)
        assert_same(leader, follower)
        assert told.quota.is_quota_exceeded(told.clock.monotonic_ms() + 9000), "20 s of the rate have come"


@in_virtual_time
async def test_partitions_that_wait_for_room_in_an_answer_are_held_back_too(tmp_path: Path) -> None:
    """What the first brings exceeds the quota; the others were asked for already, in the session."""
    async with story(tmp_path, replica_fetch_response_max_bytes=1) as told:
        for each in (T0, T1):
            told.leads("x" * 5000, "y" * 5000, at=each).update_high_watermark(2)
            told.hosts(at=each)
        throttled(told, T0, T1)
        told.follows(T0, T1)
        await passing(1000)
        ends = [told.replicas.partitions[each].log.log_end_offset for each in (T0, T1)]
        assert sum(ends) == 1, "one batch, and it is paid for until 5 s are over"
        forgotten = [
            partition
            for request in told.leader.fetches
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]
        assert sorted(forgotten) == [0, 1], "the leader was told once"
        await passing(5 * 5000 + 4 * BACKOFF_MS)
        ends = [told.replicas.partitions[each].log.log_end_offset for each in (T0, T1)]
        assert ends == [2, 2]


@in_virtual_time
async def test_a_throttle_that_is_removed_lets_go_within_a_backoff(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.quota.mark_throttled("t", ALL)
        told.quota.update_rate(1)
        spend(told, 1000)
        told.follows()
        await passing(3 * BACKOFF_MS)
        assert follower.log_end_offset == 0
        told.quota.mark_throttled("t", NONE)
        await passing(BACKOFF_MS + SOON_MS)
        assert_same(leader, follower)


@in_virtual_time
async def test_a_partition_that_leaves_while_it_is_held_back_leaves_nothing_behind(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        throttled(told, T0)
        spend(told, 5)
        told.follows()
        await passing(SOON_MS)
        fetcher = fetcher_of(told.fetchers, T0)
        assert fetcher is not None and fetcher.partitions.next_due_ms is not None
        told.fetchers.remove([T0])
        assert fetcher.partitions.next_due_ms is None, "or an empty fetcher would look again without a pause"
        await passing(5 * BACKOFF_MS)
        assert told.leader.fetches == []
