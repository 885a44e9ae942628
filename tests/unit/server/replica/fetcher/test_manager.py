"""Fetchers come, go, lose their leaders and find them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from minikafka.network.broker_client import BrokerClient
from minikafka.network.connection import Connection, PendingResponse, Result
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import read_request_header
from minikafka.server.replica.replica_fetcher_manager import LeaderEndpoint, ReplicaFetcherManager, fetcher_id
from minikafka.system_clock import SystemClock
from minikafka.types import BrokerId, Buffer, TopicPartition
from tests.support.codec import decode_request, encode_response
from tests.unit.network.support import serving, until
from tests.unit.server.replication_support import (
    BACKOFF_MS,
    LEADER,
    SOON_MS,
    T0,
    T1,
    T2,
    WAIT_MS,
    Leader,
    Story,
    assert_same,
    fetcher_of,
    story,
)
from tests.unit.server.virtual_time import in_virtual_time, passing

SOCKET_TIMEOUT_MS = 30_000
OTHER = LeaderEndpoint(BrokerId(3), "other", 9092)


@pytest.mark.parametrize(
    ("topic", "partition", "count", "expected"),
    [
        ("t", 0, 10, 6),  # "t".hashCode() is 116
        ("t", 5, 10, 1),
        ("hello", 0, 4, 2),  # 99162322, and 31 times that overflows
        ("polygenelubricants", 0, 7, 0),  # Integer.MIN_VALUE, whose absolute value Kafka takes for 0
        ("polygenelubricants", 1, 3, 1),
        ("anything", 12, 1, 0),
    ],
)
def test_a_partitions_fetcher_is_kafkas(topic: str, partition: int, count: int, expected: int) -> None:
    assert fetcher_id(TopicPartition(topic, partition), count) == expected


@in_virtual_time
async def test_partitions_are_spread_over_fetchers_each_with_its_connection(tmp_path: Path) -> None:
    async with story(tmp_path, num_replica_fetchers=2) as told:
        for each in (T0, T1, T2):
            told.leads("a", at=each)
            told.hosts(at=each)
        told.follows(T0, T1, T2)
        await passing(SOON_MS)
        assert fetcher_of(told.fetchers, T0) is fetcher_of(told.fetchers, T2)
        assert fetcher_of(told.fetchers, T0) is not fetcher_of(told.fetchers, T1)
        assert {each.client_id for each in told.leader.connections} == {
            "broker-2-fetcher-0",
            "broker-2-fetcher-1",
        }
        assert all(told.replicas.partitions[each].log.log_end_offset == 1 for each in (T0, T1, T2))


@in_virtual_time
async def test_a_fetcher_counts_its_requests_and_what_it_appended(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a", "b")
        follower = told.hosts()
        told.follows()
        await passing(60_000)
        (stats,) = told.fetchers.stats()
        assert (stats.client_id, stats.leader) == ("ReplicaFetcherThread-0-1", LEADER)
        assert stats.bytes == follower.size_bytes > 0
        assert stats.requests == len(told.leader.fetches) > 60_000 / WAIT_MS
        assert stats.requests_per_s == pytest.approx(1000 / WAIT_MS, rel=0.05)
        assert not stats.is_dead


@in_virtual_time
async def test_a_partition_moves_to_another_leader(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        follower = told.hosts()
        told.follows()
        await passing(2 * WAIT_MS)
        before = fetcher_of(told.fetchers, T0)
        told.leader.epochs[T0] = 1
        told.follows(epoch=1, leader=OTHER)
        after = fetcher_of(told.fetchers, T0)
        assert after is not before
        assert before is not None and len(before.partitions) == 0
        await passing(SOON_MS)
        assert told.leader.connections[-1].address == ("other", 9092)
        assert follower.log_end_offset == 1
        told.fetchers.end_idle()
        await passing(0)
        assert told.leader.connections[0].is_closed
        assert not told.leader.connections[1].is_closed


@in_virtual_time
async def test_a_leader_at_another_address_takes_all_its_partitions_along(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        for each in (T0, T1):
            told.leads("a", at=each)
            told.hosts(at=each)
        told.follows(T0, T1)
        await passing(2 * WAIT_MS)
        told.leader.epochs[T0] = 1
        moved = LEADER._replace(host="moved")
        told.follows(T0, epoch=1, leader=moved)
        await passing(SOON_MS)
        assert [each.address[0] for each in told.leader.connections] == ["leader", "moved"]
        assert told.leader.connections[0].is_closed
        for each in (T0, T1):
            told.leader.write(each, "b")
        await passing(SOON_MS)
        assert {told.replicas.partitions[each].log.log_end_offset for each in (T0, T1)} == {2}
        told.follows(T0, epoch=1, leader=moved)
        assert len(told.leader.connections) == 2, "the same address again changes nothing"


@in_virtual_time
async def test_idle_fetchers_end_and_begin_again(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.follows()
        await passing(SOON_MS)
        told.fetchers.end_idle()
        assert fetcher_of(told.fetchers, T0) is not None, "it is not idle"
        told.fetchers.remove([T0, T1])
        told.fetchers.end_idle()
        await passing(2 * WAIT_MS)
        assert told.leader.connections[0].is_closed
        assert "1 fetchers" not in repr(told.fetchers)
        told.leader.write(T0, "b")
        told.follows()
        await passing(SOON_MS)
        assert_same(leader, follower)


@in_virtual_time
async def test_an_idle_fetcher_that_gets_a_partition_wakes_at_once(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        follower = told.hosts()
        told.follows()
        await passing(SOON_MS)
        told.fetchers.remove([T0])
        await passing(10 * WAIT_MS)
        told.leader.write(T0, "b")
        told.follows()
        await passing(1)
        assert follower.log_end_offset == 2
        assert len(told.leader.connections) == 1


@in_virtual_time
async def test_a_removed_partition_is_not_failed_any_more(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a", epoch=5)
        told.hosts()
        told.follows(epoch=4)
        await passing(SOON_MS)
        assert told.fetchers.failed_partitions == {T0}
        told.fetchers.remove([T0])
        assert told.fetchers.failed_partitions == set()


# ---- leaders that are lost


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("minikafka") and record.levelno >= logging.INFO
    ]


@in_virtual_time
async def test_a_leader_that_is_not_there_is_tried_for_ever_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.leader.is_up = False
        told.follows()
        await passing(100 * BACKOFF_MS)
        assert len(warnings_of(caplog)) == 1 and "refused" in warnings_of(caplog)[0]
        told.leader.is_up = True
        await passing(BACKOFF_MS)
        assert_same(leader, follower)
        assert "again" in warnings_of(caplog)[1]
        assert not told.fetchers.failed_partitions


@in_virtual_time
async def test_a_leader_that_restarts_knows_no_session_and_gets_a_new_one(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.follows()
        await passing(WAIT_MS + SOON_MS)
        told.leader.go_down()
        for session_id in {request.session_id for request in told.leader.fetches}:
            told.leader.sessions.remove(session_id)
        await passing(3 * BACKOFF_MS)
        told.leader.is_up = True
        rounds = len(told.leader.fetches)
        told.leader.write(T0, "b")
        await passing(BACKOFF_MS + SOON_MS)
        assert_same(leader, follower)
        assert [request.session_epoch for request in told.leader.fetches[rounds : rounds + 2]] == [0, 1]


@in_virtual_time
async def test_a_leader_that_does_not_answer_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.leader.is_silent = True
        told.follows()
        await passing(WAIT_MS + SOCKET_TIMEOUT_MS - SOON_MS)
        assert not told.leader.connections[0].is_closed
        told.leader.is_silent = False
        await passing(2 * SOON_MS + BACKOFF_MS)
        assert told.leader.connections[0].is_closed
        assert_same(leader, follower)


@in_virtual_time
async def test_a_connection_that_the_leader_closed_while_idle_is_reopened_at_once(
    tmp_path: Path,
) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        follower = told.hosts()
        told.follows()
        await passing(SOON_MS)
        told.fetchers.remove([T0])
        await passing(WAIT_MS)
        told.leader.connections[0].lose("idle for too long")
        told.leader.write(T0, "b")
        told.follows()
        await passing(SOON_MS)
        assert follower.log_end_offset == 2


@in_virtual_time
async def test_a_leader_that_cannot_hear_a_followers_broker_epoch_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        told.leader.fetch_version_max = 14
        told.follows()
        await passing(3 * BACKOFF_MS)
        assert told.leader.asked == []
        assert len(warnings_of(caplog)) == 1 and "Fetch 14" in warnings_of(caplog)[0]
        assert all(each.is_closed for each in told.leader.connections)


# ---- ending


async def waiting_for_work(told: Story) -> None:
    told.fetchers.remove([T0])
    await passing(WAIT_MS)


async def connecting(told: Story) -> None:
    told.leader.go_down()
    told.leader.connect = hanging  # type: ignore[method-assign, assignment]
    told.fetchers._connect = hanging  # type: ignore[assignment]
    told.follows(leader=OTHER, epoch=1)
    await passing(SOON_MS)


async def hanging(*args: object, **options: object) -> Any:
    await asyncio.Event().wait()


async def fetching(told: Story) -> None:
    await passing(SOON_MS)


async def asking_for_bounds(told: Story) -> None:
    async def hang(key: int, request: Any) -> None:
        if key == ApiKey.LIST_OFFSETS:
            await hanging()

    told.leader.meanwhile = hang
    told.replicas.partitions[T0].log.truncate_fully_and_start_at(9)  # type: ignore[arg-type]
    told.fetchers.remove([T0])
    told.follows()
    await passing(WAIT_MS + SOON_MS)
    assert told.leader.asked[-1][0] == ApiKey.LIST_OFFSETS


async def paused(told: Story) -> None:
    told.leader.go_down()
    await passing(SOON_MS)


@pytest.mark.parametrize(
    "until_it_waits", [waiting_for_work, connecting, fetching, asking_for_bounds, paused]
)
@in_virtual_time
async def test_wherever_a_fetcher_waits_it_ends_at_once(
    until_it_waits: Callable[[Story], Awaitable[None]], tmp_path: Path
) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        told.follows()
        await passing(SOON_MS)
        await until_it_waits(told)
        began = told.clock.monotonic_ms()
        await told.fetchers.close()
        assert told.clock.monotonic_ms() == began
        assert all(each.is_closed for each in told.leader.connections)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        told.follows()
        assert fetcher_of(told.fetchers, T0) is None, "nothing begins after the end"


@in_virtual_time
async def test_a_fetcher_that_ends_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("a")
        told.hosts()
        told.follows()
        await told.fetchers.close()
        assert told.leader.connections == []


@in_virtual_time
async def test_a_fault_in_the_loop_is_logged_and_the_loop_restarts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.follows()
        await passing(2 * WAIT_MS)
        fetcher = fetcher_of(told.fetchers, T0)
        assert fetcher is not None
        fetch = fetcher.leader.fetch

        async def broken(request: Any) -> Any:
            fetcher.leader.fetch = fetch  # type: ignore[method-assign]
            raise ZeroDivisionError

        fetcher.leader.fetch = broken  # type: ignore[method-assign]
        await passing(WAIT_MS + SOON_MS)
        told.leader.write(T0, "b")
        await passing(2 * BACKOFF_MS)
        assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
            "task failed"
        ]
        assert_same(leader, follower)


# ---- over a network


async def test_over_a_real_connection_a_follower_copies_its_leader(tmp_path: Path) -> None:
    told = Story(tmp_path, clock=SystemClock(), replica_fetch_backoff_ms=10)
    leader, follower = told.leads(*map(str, range(500))), told.hosts()
    told.leads("other", at=T1)
    told.hosts(at=T1)
    async with serving(over_the_network(told.leader)) as server:
        fetchers: ReplicaFetcherManager[Any] = ReplicaFetcherManager(
            node_id=BrokerId(2),
            replicas=told.replicas,
            clock=told.clock,
            supervisor=told.supervisor,
            config=lambda: told.config,
            broker_epoch=lambda: 1,
            quota=told.quota,
            connect=BrokerClient.connect,
        )
        told.fetchers = fetchers
        told.follows(T0, T1, leader=LeaderEndpoint(BrokerId(1), "127.0.0.1", server.port))
        await until(lambda: follower.log_end_offset == 500)
        told.leader.write(T0, "one more")
        await until(lambda: follower.log_end_offset == 501)
        await until(lambda: told.replicas.partitions[T1].log.log_end_offset == 1)
        assert_same(leader, follower)
        await fetchers.close()
    await told.supervisor.stop()


def over_the_network(leader: Leader) -> Callable[[Connection, Buffer], Result]:
    """A ``Leader`` behind a socket server."""

    def handle(connection: Connection, frame: Buffer) -> Result:
        header = read_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            keys = [
                {"api_key": int(key), "min_version": versions.min, "max_version": versions.max}
                for key, versions in SUPPORTED.items()
            ]
            body = {"error_code": 0, "api_keys": keys, "throttle_time": 0}
            return (
                encode_response(
                    api_key=header.api_key,
                    api_version=header.api_version,
                    correlation_id=header.correlation_id,
                    body=body,
                ),
            )
        pending = PendingResponse()

        async def answer() -> None:
            frames: Sequence[Buffer] = [await leader.answer(header, decode_request(header, frame))]
            if pending.is_waiting:
                pending.complete(frames)

        task = asyncio.get_running_loop().create_task(answer())
        pending.on_closed = task.cancel
        return pending

    return handle
