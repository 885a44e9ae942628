"""R17: a disk that fails under an append."""

from __future__ import annotations

import errno

import pytest

from minikafka.errors import ErrorCode
from minikafka.testing.simulation.disk import failing_once
from tests.scenarios.support import A, B, C, Cluster, play


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
