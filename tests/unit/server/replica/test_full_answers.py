"""An answer that is full tells how the rest of the partitions stand, and reads nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.errors import ErrorCode
from minikafka.log.unified_log import UnifiedLog
from minikafka.server.replica.partition_reads import PartitionRead
from minikafka.types import TopicPartition
from tests.unit.server.replicas import OTHER, TP, Replicas, batch

PLACES = [TP, OTHER, *(TopicPartition(TP.topic, number) for number in range(10, 14))]
SIZES = [(300, 2000), (1500, 100), (100, 100, 100), (), (4000,), (500, 500)]
"""Of the records of each partition, a batch each."""


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    for at, sizes in zip(PLACES, SIZES, strict=True):
        made.lead(at, epoch=3, isr=[1], replicas=[1])
        for size in sizes:
            made.append(batch(1, size=size), at)
    yield made
    made.close()


def fetched(replicas: Replicas, *places: TopicPartition, **fields: Any) -> list[PartitionRead]:
    replicas.answers.clear()
    replicas.fetch(*places, max_wait_ms=0, **fields)
    return replicas.answer


def standing(read: PartitionRead) -> tuple[ErrorCode, int, int, int]:
    return read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset


def test_behind_the_last_byte_nothing_is_read(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    read_of: list[TopicPartition] = []
    read = UnifiedLog.read

    def noted(log: UnifiedLog, *arguments: Any, **fields: Any) -> Any:
        read_of.append(log.topic_partition)
        return read(log, *arguments, **fields)

    monkeypatch.setattr(UnifiedLog, "read", noted)
    first, *others = fetched(replicas, *PLACES, answer_bytes_max=200)
    assert len(first.records) > 300, "one batch always comes (KIP-74)"
    assert [standing(each)[:2] for each in others[:2]] == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 3)]
    assert read_of == [TP]


def test_a_batch_that_does_not_fit_ends_the_answer(replicas: Replicas) -> None:
    small, large = TopicPartition(TP.topic, 13), OTHER
    reads = fetched(replicas, small, large, PLACES[2], answer_bytes_max=2000)
    assert [len(each.records) > 0 for each in reads] == [True, False, False]
    assert sum(len(each.records) for each in reads) < 2000


def test_but_not_before_there_is_what_the_reader_wants_at_least(replicas: Replicas) -> None:
    small, large = TopicPartition(TP.topic, 13), OTHER
    reads = fetched(replicas, small, large, PLACES[2], answer_bytes_max=2000, min_bytes=1500)
    assert [len(each.records) > 0 for each in reads] == [True, False, True]
    assert sum(len(each.records) for each in reads) >= 1500


def test_a_partition_with_a_low_limit_of_its_own_ends_nothing(replicas: Replicas) -> None:
    reads = fetched(replicas, PLACES[2], TP, PLACES[5], max_bytes=250)
    assert [each.first_entry_incomplete for each in reads] == [False, True, True]
    reads = fetched(replicas, PLACES[5], OTHER, PLACES[2], max_bytes=250)
    assert [len(each.records) > 0 for each in reads] == [True, False, True]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    places=st.permutations(PLACES),
    offset=st.integers(0, 2),
    answer_bytes_max=st.integers(1, 12_000),
    max_bytes=st.integers(1, 6_000),
    min_bytes=st.integers(1, 6_000),
)
def test_whatever_is_full_each_partition_says_what_it_says_alone(
    replicas: Replicas,
    places: list[TopicPartition],
    offset: int,
    answer_bytes_max: int,
    max_bytes: int,
    min_bytes: int,
) -> None:
    limits = {"offset": offset, "max_bytes": max_bytes}
    reads = fetched(replicas, *places, answer_bytes_max=answer_bytes_max, min_bytes=min_bytes, **limits)
    alone = [fetched(replicas, at, **limits)[0] for at in places]
    assert [standing(each) for each in reads] == [standing(each) for each in alone]
    assert all(
        bytes(whole.records).startswith(bytes(part.records)) for part, whole in zip(reads, alone, strict=True)
    )
    sizes = [len(each.records) for each in reads]
    assert sum(sizes) <= answer_bytes_max or len([size for size in sizes if size]) == 1
    assert any(sizes) == any(len(each.records) for each in alone), "who can be served is served"
