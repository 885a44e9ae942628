"""R17, R18: a disk that fails under an append; what may be deleted, compacted and trusted, and when."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.simulation.disk import Survival, failing_once
from minikafka.testing.simulation.simulation import START_MS
from tests.scenarios.support import TOPIC, A, B, C, Cluster, D, play


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_r17_after_a_failed_append_the_log_takes_no_other(code: int) -> None:
    """KAFKA-10778: what is in the file after the error is unknown. The requests follow each other on one
    connection; the disk works again at once, and must not be trusted with the second."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        cluster.broker(A).disk.fault = failing_once("write", ".log", code)
        answers = [cluster.send(at=A, acks=1) for _ in range(3)]
        assert await answers[0] is ErrorCode.KAFKA_STORAGE_ERROR
        for answer in answers[1:]:
            assert await answer is not ErrorCode.NONE
        await cluster.until_leads(B)
        await cluster.until(lambda: not cluster.broker(A).is_running, "A has no other log directory")
        await cluster.produce(5, at=B)
        await cluster.start(A)
        await cluster.until_isr(A, B, C)
        cluster.expect_same_logs(A, B, C)
        assert len(cluster.records(A)) == 10

    play(story)


SHORT: Mapping[str, Property] = {
    "log.roll.ms": 300,
    "log.roll.jitter.ms": 0,
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": "0.01",
}
"""Segments that are closed, looked at and noted down all the time."""
ROLL_MS = 400


async def _a_tail_that_no_other_has(cluster: Cluster, *, key: bytes) -> None:
    """A leads, with five records that are committed, and five that are not, each in a segment of its own.
    Nothing is written elsewhere meanwhile."""
    for number in range(10):
        if number == 5:
            await cluster.until_fetch_waits(B, C)
            cluster.part(A, B, C)
        now_ms = START_MS + round(cluster.simulation.loop.time() * 1000)
        batch = build_batch([Record(0, now_ms, key, b"%d" % number)])
        offset = await cluster.produce_batch(batch, at=A, acks=1)
        if number < 5:
            cluster.acked[offset] = b"%d" % number
        await cluster.pause(ROLL_MS)


def _only_what_is_committed_is_deleted(cluster: Cluster) -> None:
    log = cluster.log(A)
    assert log.log_start_offset <= log.high_watermark, "A has deleted what is not committed"


def test_retention_waits_for_the_high_watermark() -> None:
    """What is old and not committed may yet be the only copy of a record that its producer is told of."""

    async def story(cluster: Cluster) -> None:
        cluster.always(lambda: _only_what_is_committed_is_deleted(cluster))
        await _a_tail_that_no_other_has(cluster, key=b"k")
        await cluster.pause(1_000)
        cluster.acked.clear()  # retention has deleted it by now
        assert cluster.log(A).log_start_offset == cluster.log(A).high_watermark == 5
        cluster.join(A, B, C)
        await cluster.until_isr(A, B, C)
        assert cluster.log(C).log_end_offset == 10

    # With two as the minimum nothing is committed by A alone.
    play(story, min_isr=2, config={**SHORT, "log.retention.ms": 500, "log.cleaner.enable": "false"})


def test_records_are_deleted_up_to_the_high_watermark_and_no_further() -> None:
    async def story(cluster: Cluster) -> None:
        await _a_tail_that_no_other_has(cluster, key=b"k")
        assert await _delete_below(cluster, 6) is ErrorCode.OFFSET_OUT_OF_RANGE
        cluster.expect("A: e0[0..9] HW 5")
        assert cluster.log(A).log_start_offset == 0

    play(story, min_isr=2)


async def _delete_below(cluster: Cluster, offset: int) -> ErrorCode:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}]
    body = {"topics": topics, "timeout": 1_000}
    answer = await cluster.client.request(cluster.broker(A).address, ApiKey.DELETE_RECORDS, body)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_r18_what_is_not_committed_replaces_nothing() -> None:
    """A compacts its log while it is cut off. B leads, and A cuts its tail off: what that had replaced would
    be gone."""

    async def story(cluster: Cluster) -> None:
        await _a_tail_that_no_other_has(cluster, key=b"k")
        await cluster.pause(1_000)
        cluster.part(A, D)
        cluster.expire(A)
        await cluster.until_leads(B)
        cluster.join(A, B, C, D)
        await cluster.until_isr(A, B, C)
        await cluster.until(lambda: cluster.log(A).log_end_offset == 5, "A has cut its tail")
        cluster.kill(B)
        await cluster.until_leads(A)
        fetched = await cluster.client.read_all(TOPIC)
        assert (4, b"4") in fetched, "the newest value of the key that is committed"
        cluster.acked.clear()  # older ones are compacted

    config = {**SHORT, "log.cleanup.policy": "compact"}
    play(story, min_isr=2, config=config)


def test_what_is_flushed_has_a_name_on_the_disk_too() -> None:
    """A alone has the partition, and flushes each record. The file of a new segment is found after a power
    cut when its directory was synced as well."""

    async def story(cluster: Cluster) -> None:
        for _ in range(3):
            await cluster.produce(2, at=A)
            await cluster.pause(ROLL_MS)
        cluster.power_off(A, Survival.NOTHING)
        cluster.expire(A)
        await cluster.start(A)
        await cluster.until_leads(A, epoch_min=1)

    play(story, replicas=(A,), config={"log.roll.ms": 300, "log.flush.interval.messages": 1})
