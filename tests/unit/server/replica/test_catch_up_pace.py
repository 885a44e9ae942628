"""The pace of catching up can be switched off: then a follower gets all that it lacks at once. Either way it
ends with the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.batch import iterate_headers
from minikafka.server.replica import replication_quotas
from minikafka.server.replica.delayed_operations import DelayedProduce, Fetch, UncommittedAppend
from minikafka.server.replica.partition_reads import PartitionRead, WantedPartition
from minikafka.server.runtime.fast_paths import SWITCHED_OFF, FastPath
from minikafka.server.runtime.log_io import LogIo
from minikafka.steps import finish
from minikafka.types import Offset, TopicPartition
from tests.unit.server.replicas import OTHER, THREE, TOPIC_ID, TP, Replicas, batch

BATCH_BYTES = len(batch(1, size=1000))
HALF_A_BATCH = BATCH_BYTES // 2
"""Which is not sent, as only whole batches are."""
EPOCH = 3
TURNS_MAX = 10_000


class Leader:
    """Broker 1. Broker 3 lacks three batches of the first partition, and is in the ISR of the second.

    With the pace it gets two batches of the first at a time; one, while producers wait.
    """

    def __init__(self, directory: Path, *, is_paced: bool) -> None:
        SWITCHED_OFF.update(() if is_paced else (FastPath.CATCH_UP,))
        self.is_paced = is_paced
        self.replicas = Replicas(directory)
        SWITCHED_OFF.clear()
        self.follower: dict[TopicPartition, bytearray] = {TP: bytearray(), OTHER: bytearray()}
        self.is_asked = False
        for at, isr in ((TP, [1, 2]), (OTHER, [1, 2, 3])):
            self.replicas.lead(at, epoch=EPOCH, isr=isr, replicas=[1, 2, 3])
        self.write(TP, 3)

    def write(self, at: TopicPartition, count: int) -> None:
        for _ in range(count):
            self.replicas.append(batch(1, size=1000), at)
        self.replicas.follower_fetch(2, self.end(TP), TP)

    def a_producer_waits(self) -> None:
        """For broker 2 to have a batch of the second partition."""
        appended = UncommittedAppend(OTHER, self.replicas.append(batch(1, size=1000), OTHER, acks=-1))
        DelayedProduce(self.replicas.manager, [appended], lambda: None, timeout_ms=1000).wait()

    def broker_2_fetches(self) -> None:
        """What producers wait for; when broker 3 has it too they wait no more."""
        self.replicas.follower_fetch(2, self.end(OTHER), OTHER)

    def ask(self) -> bool:
        """Broker 3 asks, unless it has asked already. Whether it has its answer at once."""
        if self.is_asked:
            return False
        self.is_asked = True
        finish(
            Fetch(
                replicas=self.replicas.manager,
                log_io=cast(LogIo, self.replicas.log_io),
                clock=self.replicas.clock,
                params=self.replicas.fetch_params(replica_id=THREE),
                wanted=[
                    WantedPartition(at, TOPIC_ID, self.fetched(at), 1 << 20, EPOCH, -1, Offset(0))
                    for at in (TP, OTHER)
                ],
                respond=self._answered,
            ).start()
        )
        return not self.is_asked

    def _answered(self, reads: list[PartitionRead]) -> tuple[bytes]:
        self.is_asked = False
        for read in reads:
            self.follower[read.wanted.topic_partition] += read.records
        return (b"",)

    def fetched(self, at: TopicPartition) -> Offset:
        """Up to where broker 3 has a partition."""
        headers = [header for _, header in iterate_headers(bytes(self.follower[at]))]
        return Offset(headers[-1].next_offset if headers else 0)

    def end(self, at: TopicPartition) -> Offset:
        return self.replicas.partition(at).log.log_end_offset

    @property
    def has_more(self) -> bool:
        return any(self.fetched(at) < self.end(at) for at in self.follower)

    def log(self, at: TopicPartition) -> bytes:
        read = self.replicas.partition(at).log.read(
            Offset(0), max_bytes=1 << 30, min_one_message=True, isolation=FetchIsolation.LOG_END
        )
        return bytes(read.records)


@contextmanager
def both() -> Iterator[tuple[Leader, Leader]]:
    """One with the pace of catching up, one without it."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX", 2 * BATCH_BYTES + HALF_A_BATCH)
        patch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX_UNDER_LOAD", BATCH_BYTES + HALF_A_BATCH)
        made = [Leader(Path(directory, name), is_paced=name == "paced") for name in ("paced", "unpaced")]
        yield made[0], made[1]
        for each in made:
            each.replicas.close()


def test_without_it_all_comes_at_once_while_producers_wait() -> None:
    with both() as (paced, unpaced):
        for each in (paced, unpaced):
            each.a_producer_waits()
            assert each.ask()
        assert paced.fetched(TP) == 1 and unpaced.fetched(TP) == unpaced.end(TP) == 3
        for each in (paced, unpaced):
            each.replicas.pass_time(5)
        assert not paced.ask()
        unpaced.write(TP, 1)
        assert unpaced.ask() and unpaced.fetched(TP) == 4


def catch_up(leader: Leader) -> None:
    """Broker 3 asks until it has everything, and time passes while it waits."""
    for _ in range(TURNS_MAX):
        if not leader.has_more:
            return
        if not leader.ask():
            leader.replicas.pass_time(1)
    raise AssertionError(f"{leader.replicas.manager.catch_up_pace!r} keeps records back for ever")


def asks(leader: Leader) -> None:
    """Without the pace all that there is comes at once."""
    had_more, was_asked = leader.has_more, leader.is_asked
    is_answered = leader.ask()
    if not leader.is_paced:
        assert not (had_more and was_asked)
        assert is_answered == had_more and not leader.has_more


STEPS = st.one_of(
    st.builds(
        lambda at, count: lambda leader: leader.write(at, count),
        st.sampled_from([TP, OTHER]),
        st.sampled_from([1, 5]),
    ),
    st.builds(
        lambda duration_ms: lambda leader: leader.replicas.pass_time(duration_ms),
        st.sampled_from([1, 20, 500]),
    ),
    st.sampled_from([asks, asks, asks, Leader.a_producer_waits, Leader.broker_2_fetches]),
)


@given(steps=st.lists(STEPS, max_size=25))
@settings(max_examples=40, deadline=None)
def test_a_follower_ends_with_the_same_bytes_with_and_without_it(
    steps: list[Callable[[Leader], None]],
) -> None:
    with both() as leaders:
        for step in steps:
            for each in leaders:
                step(each)
        paced, unpaced = leaders
        catch_up(paced)
        asks(unpaced)
        for at in (TP, OTHER):
            assert paced.follower[at] == unpaced.follower[at] == paced.log(at) == unpaced.log(at)
