"""Transactional producers: those that write to some partitions, and those that copy. Each transaction is
whole or not there (I10), also when brokers fail.

``TransactionalClient`` commits or aborts what it wrote to one or more partitions of ``TOPIC``; a rival with
its transactional id may take over in the middle, it may pause until its transaction has timed out, and at the
end be gone in the middle of one. ``Copier`` consumes, transforms and produces (KIP-98): what it
reads of ``TOPIC`` it writes to ``COPIES``, and where it is it commits in the same transaction, in the name of
a group.

Checked (I10), beside what a history shows: a producer that has a successor ends nothing. Of copies each is
there once, and below the position of the group no record is left out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.history_recorder import RecordedTransactionalProducer
from minikafka.testing.simulation.client import (
    OF_GROUPS,
    OF_TRANSACTIONS,
    TRANSACTIONAL_OFFSETS_VERSION,
    SimulatedClient,
    check,
    make_batch,
    positions_body,
)
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios import plan as plans
from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.scenarios.plan import COPIES, TOPIC, TRANSACTORS_FROM

TRANSACTION_TIMEOUT_MS = 10_000
RETRY_PAUSE_MS = 100
CONFIG: dict[str, Property] = {
    "log.cleaner.enable": "false",
    "transaction.state.log.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
_AGAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

FENCED = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
)
"""What a transaction may fail with, once its coordinator has given it up for its time-out."""

COMMIT_SHARE = 0.7
RIVAL_SHARE = 0.1
OVERRUN_SHARE = 0.05
TIMEOUTS_MS = (3_000, TRANSACTION_TIMEOUT_MS)
PARTITIONS_MAX = 3
"""Of one transaction."""
COPIED_MAX = 5
"""Records in one transaction of a copier."""
COPIERS = "copiers"
"""The group whose positions a copier commits."""


class TransactionalProducer:
    """Speaks the second version of the protocol. Several may ``send`` at the same time, each to a partition
    of its own."""

    def __init__(
        self,
        client: SimulatedClient,
        transactional_id: str,
        *,
        partitions: int,
        topic: str = TOPIC,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._topic = topic
        self._id = transactional_id
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._producer_id = self._epoch = -1
        self._sequences = [0] * partitions

    async def _ask(self, key: ApiKey, body: dict[str, Any], *, group: str = "", **options: Any) -> Any:
        """Ask the coordinator, of ``group`` where one is given, until it answers with something that does not
        pass."""
        at = (OF_GROUPS, group) if group else (OF_TRANSACTIONS, self._id)
        while True:
            try:
                if at not in self._coordinators:
                    self._coordinators[at] = await self._client.find_coordinator(at[1], at[0])
                answer = await self._client.request(self._coordinators[at], key, body, **options)
                for code in _error_codes(answer):
                    check(code)
                return answer
            except (BrokerUnavailable, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _AGAIN:
                    raise
                self._coordinators.pop(at, None)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)

    @property
    def producer(self) -> tuple[int, int]:
        """Its producer id and epoch."""
        return self._producer_id, self._epoch

    async def begin(self) -> None:
        body = {
            "transactional_id": self._id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, body)
        self._take(answer)

    def _take(self, answer: Any) -> None:
        if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences = [0] * len(self._sequences)

    async def send(self, partition: int, value: bytes) -> None:
        batch = make_batch(
            [value],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        while True:
            try:
                await self._client.produce(self._topic, partition, batch, transactional_id=self._id)
                break
            except (BrokerUnavailable, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in _AGAIN:
                    raise
                self._client.forget_leader(self._topic, partition)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
        self._sequences[partition] += 1

    async def send_offsets(self, group: str, positions: dict[int, int], *, topic: str = TOPIC) -> None:
        """``sendOffsetsToTransaction``: how far ``group`` has read ``topic``, by partition."""
        body = {
            "transactional_id": self._id,
            "group_id": group,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": positions_body(positions)}],
        }
        version = TRANSACTIONAL_OFFSETS_VERSION
        await self._ask(ApiKey.TXN_OFFSET_COMMIT, body, group=group, version=version)

    async def end(self, *, commit: bool) -> None:
        body = {
            "transactional_id": self._id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "committed": commit,
        }
        self._take(await self._ask(ApiKey.END_TXN, body))


def _error_codes(answer: Any) -> list[int]:
    """Of an answer as a whole, or of its partitions."""
    if hasattr(answer, "error_code"):
        return [answer.error_code]
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def until_ended(run: ClusterRun, topics: Collection[str]) -> None:
    """Until every transaction in ``topics`` is committed or aborted, also those that no producer ends.

    Raises TimeoutError.
    """

    def is_so() -> bool:
        return all(
            partition.log.last_stable_offset == partition.log.log_end_offset
            for broker in run.simulation.brokers.values()
            for partition in hosted_partitions(broker)
            if partition.is_leader and partition.topic_partition.topic in topics
        )

    await until(is_so, "every transaction is ended", within_ms=TRANSACTION_TIMEOUT_MS * 3)


class TransactionRun(ClusterRun):
    """Transactional producers."""

    def produce(self) -> None:
        for number, plan in enumerate(self.plan.transactors):
            self._producers.append(asyncio.create_task(TransactionalClient(self, number, plan).work()))

    @property
    def acked_at_the_end(self) -> int:
        return 4

    async def check_history(self) -> None:
        """And before, every transaction comes to its end."""
        await until_ended(self, (TOPIC,))
        await super().check_history()


def draw_transactor(rng: random.Random, *, copies: bool = False, pause_ms: int = 50) -> plans.Transactor:
    """Which of the ways it has to be in the way of others."""
    return plans.Transactor(
        copies=copies, pause_ms=pause_ms, timeout_ms=rng.choice(TIMEOUTS_MS), overruns=rng.random() < 0.5,
        has_rivals=rng.random() < 0.4, leaves=rng.random() < 0.5,
    )  # fmt: skip


class TransactionalClient:
    """One of them, until the run stops."""

    def __init__(self, run: ClusterRun, number: int, plan: plans.Transactor) -> None:
        self._run = run
        self._plan = plan
        self._number = TRANSACTORS_FROM + number
        self._name = f"transactor-{number}"
        self._rng = run.simulation.rng(self._name)
        self._lives = 0
        self._began_s = 0.0
        self._has_asked = False
        """Whether the end of the transaction was asked for."""

    async def check(self) -> None:
        """When it has stopped: a history shows the rest."""

    def _new(self, topic: str, partitions: int) -> RecordedTransactionalProducer:
        """The same transactional id, in another life."""
        self._lives += 1
        process = f"{self._name}.{self._lives}"
        client = SimulatedClient(self._run.addresses, client_id=self._name)
        producer = TransactionalProducer(
            client, self._name, partitions=partitions, topic=topic, timeout_ms=self._plan.timeout_ms
        )
        return self._run.recorder.transactional(process, producer, topic=topic)

    async def work(self) -> None:
        """Raises KafkaError: an answer that no transaction has; AssertionError."""
        run = self._run
        producer = self._new(TOPIC, run.plan.partitions)
        await producer.begin()
        count = 0
        while not run.is_stopping:
            producer = await self._transaction(producer, b"%d-%d" % (self._number, count))
            count += 1
            await run.rest(self._rng, self._plan.pause_ms)
        if self._plan.leaves:
            try:
                await producer.send(0, b"%d-%d" % (self._number, count))
            except KafkaError as error:
                if error.code not in FENCED:
                    raise

    async def _transaction(
        self, producer: RecordedTransactionalProducer, value: bytes
    ) -> RecordedTransactionalProducer:
        """One. Returns who begins the next."""
        run, rng = self._run, self._rng
        commit = rng.random() < COMMIT_SHARE
        partitions = rng.sample(
            range(run.plan.partitions), min(run.plan.partitions, rng.randint(1, PARTITIONS_MAX))
        )
        self._begin()
        rival: RecordedTransactionalProducer | None = None
        try:
            for partition in partitions:
                await producer.send(partition, value)
                await self._linger()
            if self._plan.has_rivals and rng.random() < RIVAL_SHARE:
                rival = self._new(TOPIC, run.plan.partitions)
                await rival.begin()
                if rng.random() < 0.5:
                    await producer.send(partitions[-1], value + b"/late")
                    raise AssertionError(f"I10: {self._name} has a successor, and wrote after {value!r}")
            self._has_asked = True
            await producer.end(commit=commit)
        except KafkaError as error:
            if not self._has_asked:
                producer.give_up()
            if rival is not None:
                assert error.code in FENCED, f"I10: a producer with a successor is told {error}"
                return rival
            if not self._is_of_late(error):
                raise
            await producer.begin()
            return producer
        assert rival is None, f"I10: {self._name} has a successor, and ended {value!r}"
        return producer

    def _begin(self) -> None:
        self._began_s, self._has_asked = self._run.simulation.loop.time(), False

    async def _linger(self) -> None:
        """Between two records: mostly short, sometimes until the transaction has timed out."""
        pause_s = self._rng.uniform(0, 0.05)
        if self._plan.overruns and self._rng.random() < OVERRUN_SHARE:
            pause_s = self._plan.timeout_ms / 1000 + self._rng.uniform(0, 2)
        await asyncio.sleep(pause_s)

    def _is_of_late(self, error: KafkaError) -> bool:
        """Whether that is what is told to a producer whose coordinator has given its transaction up. An end
        that comes after the abort for the time-out, and before any other epoch, is told by the state that the
        abort has left (``TransactionCoordinator.endTransaction``)."""
        lasted_ms = (self._run.simulation.loop.time() - self._began_s) * 1000
        is_late = self._has_asked and lasted_ms >= self._plan.timeout_ms
        return error.code in FENCED or (is_late and error.code is ErrorCode.INVALID_TXN_STATE)


class Copier(TransactionalClient):
    """Reads what is committed in ``TOPIC``, one partition after the other."""

    def __init__(self, run: ClusterRun, number: int, plan: plans.Transactor) -> None:
        super().__init__(run, number, plan)
        self._client = SimulatedClient(run.addresses, client_id=f"{self._name} reads")
        self._group = f"{COPIERS}-{number}"
        self._count = 0
        self._positions: dict[int, int] = {}
        self._skipped: dict[int, list[range]] = {}
        """By partition: what was deleted before it was read."""

    async def work(self) -> None:
        """Raises KafkaError: an answer that no transaction has."""
        run = self._run
        producer = self._new(COPIES, 1)
        await producer.begin()
        while not run.is_stopping:
            try:
                if not self._positions:
                    self._positions = await self._committed()
                for partition in range(run.plan.partitions):
                    if partition in self._positions:  # else they are asked for again
                        await self._copy(producer, partition)
            except BrokerUnavailable:
                continue
            except KafkaError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._skip()
                for partition in range(run.plan.partitions):
                    self._client.forget_leader(TOPIC, partition)
            await run.rest(self._rng, self._plan.pause_ms)

    async def _copy(self, producer: RecordedTransactionalProducer, partition: int) -> None:
        """Up to ``COPIED_MAX`` records of one partition, with the position behind them."""
        position = self._positions[partition]
        fetched = await self._client.fetch(TOPIC, partition, position, read_committed=True)
        records = fetched.records[:COPIED_MAX]
        if not records:
            self._positions[partition] = fetched.next_offset
            return
        commit = self._rng.random() < COMMIT_SHARE
        self._begin()
        behind = records[-1].offset + 1
        self._positions[partition] = behind
        try:
            for record in records:
                # A value is sent once: what is copied again, after an abort, is another one.
                self._count += 1
                value = b"%d-%d-%d-%d" % (self._number, self._count, partition, record.offset)
                await producer.send(0, value)
            await self._linger()
            await producer.send_offsets(self._group, {partition: behind})
            self._has_asked = True
            await producer.end(commit=commit)
        except KafkaError as error:
            if not self._has_asked:
                producer.give_up()
            if not self._is_of_late(error):
                raise AssertionError(f"{self._name}: {error}") from error
            self._positions = {}
            await producer.begin()
        else:
            if not commit:
                self._positions = {}

    async def _skip(self) -> None:
        """What was deleted before it was read is not copied."""
        for partition, position in self._positions.items():
            try:
                start = await self._client.log_start(TOPIC, partition)
            except (KafkaError, BrokerUnavailable):
                return
            if start > position:
                self._skipped.setdefault(partition, []).append(range(position, start))
                self._positions[partition] = start

    async def _committed(self) -> dict[int, int]:
        """The group's positions, when no transaction may still change them."""
        coordinator = await self._client.find_coordinator(self._group)
        partitions = range(self._run.plan.partitions)
        found = await self._client.fetch_positions(coordinator, self._group, TOPIC, partitions)
        return {partition: max(offset, 0) for partition, offset in found.items()}

    async def check(self) -> None:
        """When it has stopped. Raises AssertionError: a record was copied twice, or left out."""
        positions = await self._committed_at_last()
        copied: dict[int, list[int]] = {}
        for _, value in await self._client.read_all(COPIES, 0, read_committed=True):
            number, _, partition, offset = map(int, (value or b"").split(b"-"))
            if number == self._number:
                copied.setdefault(partition, []).append(offset)
        for partition, position in positions.items():
            offsets = copied.get(partition, [])
            assert len(set(offsets)) == len(offsets), (
                f"I10: {self._name}: a copy of {partition} is twice there"
            )
            assert all(offset < position for offset in offsets), (
                f"I10: {self._name} copied {max(offsets)} of partition {partition}, and is at {position}"
            )
            there = await self._client.read_all(TOPIC, partition, read_committed=True)
            skipped = [gap for gap in self._skipped.get(partition, ()) if gap]
            left_out = {
                offset for offset, _ in there
                if offset < position and not any(offset in gap for gap in skipped)
            } - set(offsets)  # fmt: skip
            assert not left_out, f"I10: {self._name} has left out {sorted(left_out)} of partition {partition}"

    async def _committed_at_last(self) -> dict[int, int]:
        while True:
            try:
                return await self._committed()
            except (KafkaError, BrokerUnavailable):
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
