"""R7, R8 and R9: followers and leaders that are not in the same epoch, and answers that come too late."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.replica.replica_fetcher_manager import ReplicaFetcherManager
from tests.scenarios.support import PARTITION, A, B, C, Cluster, D, play
from tests.unit.server.replication_support import fetcher_of


async def _fetch_as(cluster: Cluster, follower: int, *, at: int, epoch: int, offset: int) -> Any:
    """A follower's fetch of one partition, made by hand. Returns what the leader answers for it."""
    partition = cluster.partition(at)
    wanted = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    broker_epoch = cluster.broker(follower).server.services.broker_epoch
    body = {
        "replica_state": {"replica_id": follower, "replica_epoch": broker_epoch},
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": partition.topic_id, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = await cluster.client.request(cluster.broker(at).address, ApiKey.FETCH, body)
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize(
    ("ahead", "code"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_r07_a_fetch_of_another_epoch_is_refused_and_moves_nothing(ahead: int, code: ErrorCode) -> None:
    """KIP-320: what a follower of another epoch says that it has may be other records."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        await cluster.bounce(C)
        await cluster.until_isr(A, B, C)
        cluster.part(A, B)
        cluster.part(A, C)
        await cluster.produce(3, at=A, acks=1)
        epoch = cluster.state.leader_epoch
        for follower in (B, C):
            answer = await _fetch_as(cluster, follower, at=A, epoch=epoch + ahead, offset=8)
            assert answer.error_code is code
            assert not answer.records
        cluster.expect("A: e0[0..4] e1[5..7] HW 5")
        cluster.checker.checks_members = False
        for follower in (B, C):  # the same words of the right epoch do
            answer = await _fetch_as(cluster, follower, at=A, epoch=epoch, offset=8)
            assert answer.error_code is ErrorCode.NONE
        cluster.expect("A: e0[0..4] e1[5..7] HW 8")

    play(story)


def test_r07_a_follower_that_hears_late_of_an_epoch_is_fenced_until_it_does() -> None:
    """KIP-320, with a real follower, whose controller cannot reach it for a while."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        cluster.cut(D, B)
        await cluster.bounce(C)
        await cluster.until_isr(A, B, C)
        await cluster.produce(3, at=A, acks=1)
        fetchers = cluster.broker(B).server.services.replica_manager.fetchers
        assert isinstance(fetchers, ReplicaFetcherManager)
        await cluster.until(lambda: PARTITION in fetchers.failed_partitions, "B's fetch is fenced")
        await cluster.pause(100)
        cluster.expect("A: e0[0..4] e1[5..7] HW 5\nB: e0[0..4]\nC: e0[0..4] e1[5..7]")
        cluster.heal(D, B)
        await cluster.until_logs("B: e0[0..4] e1[5..7] HW 8")
        cluster.expect_same_logs(A, B, C)

    play(story)


async def _an_unreplicated_tail(cluster: Cluster) -> None:
    """A has led 15 records, of which 10 are committed; B leads now; A is back and has not heard of it."""
    await cluster.produce(10, at=A)
    await cluster.until_logs("A: e0[0..9] HW 10\nB: e0[0..9] HW 10\nC: e0[0..9] HW 10")
    cluster.part(A, B, C, D)
    await cluster.produce(5, at=A, acks=1)
    cluster.expect("A: e0[0..14] HW 10")
    cluster.expire(A)
    await cluster.until_leads(B)


def test_r08_an_answer_that_was_under_way_when_the_epoch_rose_is_ignored() -> None:
    """KAFKA-7786: B's answer, that A's log parts from its own at 10, is of the epoch before. The next one
    says the same, and only that is followed."""

    async def story(cluster: Cluster) -> None:
        await _an_unreplicated_tail(cluster)
        epoch = cluster.state.leader_epoch
        cluster.delay(B, A, 400)
        cluster.join(A, B, C, D)
        await cluster.until(lambda: _has_asked(cluster, A), "A asks B")
        await cluster.pause(10)  # B has answered
        await cluster.bounce(C)
        await cluster.until_follows(A, B, epoch_min=epoch + 1)
        await cluster.pause(450)  # the answer has come
        cluster.expect("A: e0[0..14] HW 10")
        await cluster.until_logs("A: e0[0..9] HW 10", within_ms=500)
        await cluster.produce(1, at=B, acks=1)
        await cluster.until_logs(f"A: e0[0..9] e{epoch + 1}[10..10] HW 11")
        cluster.expect_same_logs(A, B, C)

    play(story)


def _has_asked(cluster: Cluster, follower: int) -> bool:
    """Whether its fetcher has sent a fetch request since it began."""
    fetchers = cluster.broker(follower).server.services.replica_manager.fetchers
    assert isinstance(fetchers, ReplicaFetcherManager)
    fetcher = fetcher_of(fetchers, PARTITION)
    key = (cluster.partition(follower).topic_id, PARTITION.partition)
    return fetcher is not None and fetcher.partitions.session.sent(key) is not None


def test_r09_an_ex_leader_cuts_its_tail_before_it_believes_a_higher_high_watermark() -> None:
    """KAFKA-14704: the answer that says where A's log parts from B's also says that 20 records are committed.
    Of A's own 15 that is not true."""

    async def story(cluster: Cluster) -> None:
        await _an_unreplicated_tail(cluster)
        epoch = cluster.state.leader_epoch
        await cluster.produce(10, at=B)
        cluster.expect(f"B: e0[0..9] e{epoch}[10..19] HW 20")
        at_the_cut: list[str] = []

        def look(operation: str, path: str) -> None:
            if operation == "truncate" and path.endswith(".log"):
                at_the_cut.append(cluster.history(A))

        cluster.broker(A).disk.fault = look
        cluster.delay(B, A, 100)
        cluster.join(A, B, C, D)
        await cluster.until_logs("A: e0[0..9]")
        await cluster.pause(50)  # the next answer is under way
        cluster.expect("A: e0[0..9] HW 10")
        assert at_the_cut == ["e0[0..14] HW 10"]
        await cluster.until_logs(f"A: e0[0..9] e{epoch}[10..19] HW 20")
        cluster.expect_same_logs(A, B, C)

    play(story)
