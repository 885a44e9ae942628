"""A produce with acks=all waits for the replicas, for its leadership to end, or for its time to run out."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minikafka.errors import ErrorCode
from minikafka.network.connection import PendingResponse
from minikafka.replication.partition_replicas import IsrWritten
from minikafka.server.replica.delayed_operations import DelayedProduce, UncommittedAppend
from minikafka.types import Offset, TopicPartition
from tests.unit.server.replicas import LAG_MS, OTHER, TP, Replicas, code, run

TIMEOUT_MS = 5000


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    for at in (TP, OTHER):
        made.lead(at)
    yield made
    made.close()


class Produce:
    """One record for each of ``partitions``, with acks=all."""

    def __init__(self, replicas: Replicas, *partitions: TopicPartition, timeout_ms: int = TIMEOUT_MS) -> None:
        self.appends = [UncommittedAppend(at, replicas.append(at=at, acks=-1)) for at in partitions or (TP,)]
        self.answers = 0
        self.pending = PendingResponse()
        DelayedProduce(replicas.manager, self.appends, self.answer, timeout_ms=timeout_ms).park(self.pending)

    def answer(self) -> None:
        self.answers += 1
        self.pending.complete((b"answer",))

    @property
    def is_waiting(self) -> bool:
        assert self.answers == (0 if self.pending.is_waiting else 1)
        return self.pending.is_waiting

    @property
    def errors(self) -> list[ErrorCode]:
        return [ErrorCode.NONE if each.error is None else each.error.code for each in self.appends]


def fetch(replicas: Replicas, offset: int, at: TopicPartition = TP, *, by: tuple[int, ...] = (2, 3)) -> None:
    for follower in by:
        replicas.follower_fetch(follower, offset, at)


def test_it_is_answered_when_every_in_sync_replica_has_every_partition(replicas: Replicas) -> None:
    produce = Produce(replicas, TP, OTHER)
    fetch(replicas, 1, TP)
    assert produce.is_waiting
    fetch(replicas, 1, OTHER, by=(2,))
    assert produce.is_waiting
    fetch(replicas, 1, OTHER, by=(3,))
    assert not produce.is_waiting and produce.errors == [ErrorCode.NONE] * 2
    assert replicas.manager.parked.produce.delayed == 0


def test_who_looks_sees_what_it_waits_for(replicas: Replicas) -> None:
    Produce(replicas, TP, OTHER)
    (waiting,) = replicas.manager.parked.produce.waiting()
    assert repr(waiting) == (
        f"DelayedProduce(UncommittedAppend({TP} to 1: pending), UncommittedAppend({OTHER} to 1: pending))"
    )
    many = [UncommittedAppend(TP, Offset(5)) for _ in range(10)]
    operation = DelayedProduce(replicas.manager, many, lambda: None, timeout_ms=TIMEOUT_MS)
    assert repr(operation).count("UncommittedAppend") == 3 and repr(operation).endswith(" and 7 more)")


def test_each_waits_for_its_own_records(replicas: Replicas) -> None:
    first, second = Produce(replicas), Produce(replicas)
    fetch(replicas, 1)
    assert (first.is_waiting, second.is_waiting) == (False, True)
    fetch(replicas, 2)
    assert not second.is_waiting


def test_what_is_committed_already_is_answered_at_once(replicas: Replicas) -> None:
    replicas.lead(epoch=1, isr=[1])
    produce = Produce(replicas)
    assert not produce.is_waiting and produce.errors == [ErrorCode.NONE]
    assert replicas.manager.parked.produce.watched == 0


def test_it_is_answered_when_the_laggard_leaves_the_isr(replicas: Replicas) -> None:
    produce = Produce(replicas, timeout_ms=100_000)
    fetch(replicas, 1, by=(2,))
    replicas.pass_time(LAG_MS + 1)
    run(replicas.manager.shrink_isrs())
    assert produce.is_waiting
    (change, done) = replicas.store.submitted[0]
    assert change.isr == (1, 2)
    done(IsrWritten(1, change.isr))
    assert not produce.is_waiting and produce.errors == [ErrorCode.NONE]


def test_when_its_time_is_up_only_what_is_not_committed_has_timed_out(replicas: Replicas) -> None:
    produce = Produce(replicas, TP, OTHER)
    fetch(replicas, 1, OTHER)
    replicas.pass_time(TIMEOUT_MS - 1)
    assert produce.is_waiting
    replicas.pass_time(2)
    assert not produce.is_waiting
    assert produce.errors == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


def test_without_a_timeout_it_does_not_wait(replicas: Replicas) -> None:
    produce = Produce(replicas, timeout_ms=0)
    assert not produce.is_waiting and produce.errors == [ErrorCode.REQUEST_TIMED_OUT]


def test_i7_a_deposed_leader_acknowledges_nothing(replicas: Replicas) -> None:
    """Its successor may not have the records, even if some replica fetched them."""
    produce, other = Produce(replicas), Produce(replicas, OTHER)
    fetch(replicas, 1, by=(2,))
    read = replicas.follower_fetch(3, 1, epoch=1)  # 3 has heard of its new leader already
    assert read.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert produce.is_waiting
    replicas.follow(epoch=1)
    assert not produce.is_waiting and produce.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert other.is_waiting


def test_a_leader_that_is_elected_again_goes_on_waiting(replicas: Replicas) -> None:
    produce = Produce(replicas)
    replicas.lead(epoch=1)
    assert produce.is_waiting
    fetch(replicas, 1)
    assert not produce.is_waiting and produce.errors == [ErrorCode.NONE]


def test_a_partition_that_goes_away_ends_it(replicas: Replicas, tmp_path: Path) -> None:
    deleted, offline = Produce(replicas), Produce(replicas, OTHER)
    replicas.stop_replica(TP, delete=True)
    assert deleted.errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    replicas.manager.take_directory_offline(str(tmp_path), reason="smoke")
    assert offline.errors == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_an_isr_that_became_too_small_is_told_although_the_records_are_committed(replicas: Replicas) -> None:
    partition = replicas.partition()
    end = replicas.append(acks=-1)
    fetch(replicas, 1)
    assert partition.is_committed(end)
    replicas.lead(epoch=1, isr=[1, 2])
    partition.log.update_config(msgspec.structs.replace(replicas.config, min_insync_replicas=3))
    assert code(partition.is_committed, end) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert not partition.is_committed(Offset(end + 1))


def test_a_closed_connection_leaves_nothing_behind(replicas: Replicas) -> None:
    produce = Produce(replicas)
    produce.pending.connection_closed()
    assert replicas.manager.parked.produce.delayed == 0
    fetch(replicas, 1)
    assert produce.answers == 0


def test_an_answered_produce_does_not_refer_to_itself(replicas: Replicas) -> None:
    """It would be left to the garbage collector, a million times a minute."""
    produce = Produce(replicas)
    assert produce.pending.on_closed is not None
    fetch(replicas, 1)
    assert produce.pending.on_closed is None


def test_what_is_over_keeps_nothing_alive_until_the_purge(replicas: Replicas) -> None:
    """Thousands of objects would wait there, and the garbage collector would look at all of them again."""
    produce = Produce(replicas, TP, OTHER)
    left = weakref.ref(produce)
    fetch(replicas, 1, TP)
    fetch(replicas, 1, OTHER)
    assert not produce.is_waiting
    assert replicas.manager.parked.produce.watched, "the list of the partition that was first has it still"
    del produce
    assert left() is None


def test_one_that_cannot_be_looked_at_is_answered_that_the_outcome_is_unknown(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, healthy = Produce(replicas), Produce(replicas)

    def fails(replicas: object) -> bool:
        raise OSError("a bad block")

    (append,) = broken.appends
    monkeypatch.setattr(UncommittedAppend, "try_settle", _unless(append, fails))
    fetch(replicas, 2)
    assert broken.errors == [ErrorCode.UNKNOWN_SERVER_ERROR] and not broken.is_waiting
    assert healthy.errors == [ErrorCode.NONE] and not healthy.is_waiting


def _unless(broken: UncommittedAppend, fails: Any) -> Any:
    try_settle = UncommittedAppend.try_settle
    return lambda append, replicas: (fails if append is broken else partial(try_settle, append))(replicas)


def test_one_whose_answer_fails_closes_its_connection(
    replicas: Replicas,
) -> None:
    class Broken(Produce):
        def answer(self) -> None:
            raise ValueError("a bug in an answer")

    first, second = Broken(replicas), Produce(replicas)
    fetch(replicas, 2)
    assert first.pending.state.value == "abandoned"
    assert second.errors == [ErrorCode.NONE] and not second.is_waiting


@pytest.mark.parametrize(
    ("fetches", "is_committed", "cause"),
    [
        (True, True, "broker 3 had it last"),
        (False, False, "broker 2 was caught up 5000 ms ago, and has not fetched"),
    ],
)
def test_one_that_waits_long_is_recorded_with_the_replica_that_it_waits_for(
    replicas: Replicas, *, fetches: bool, is_committed: bool, cause: str
) -> None:
    recorded: list[Any] = []
    replicas.manager._record = recorded.append
    Produce(replicas)
    fetch(replicas, 1)
    assert recorded == [], "this one did not wait"
    Produce(replicas, OTHER)
    if fetches:
        replicas.clock.advance(1200)
        fetch(replicas, 1, OTHER, by=(2,))
        replicas.clock.advance(10)
        fetch(replicas, 1, OTHER, by=(3,))
    else:
        replicas.pass_time(TIMEOUT_MS)
    (event,) = recorded
    assert (event.topic, event.partition) == OTHER
    assert event.waited_ms == (1210 if fetches else TIMEOUT_MS)
    assert event.is_committed is is_committed
    assert cause in event.cause
