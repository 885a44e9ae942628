"""Transactional producers of the swarm: those that write to some partitions, and those that copy.

``Transactor`` commits or aborts what it wrote to one or more partitions of ``TOPIC``; a rival with its
transactional id may take over in the middle. ``Copier`` consumes, transforms and produces (KIP-98): what it
reads of ``TOPIC`` it writes to ``COPIES``, and where it is it commits in the same transaction, in the name of
a group.

Checked (I10), beside what a history shows: a producer that has a successor ends nothing. Of copies each is
there once, and below the position of the group no record is left out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.history.recorder import RecordedTransactionalProducer
from minikafka.testing.simulation.client import OFFSETS_VERSION, SimulatedClient, check
from minikafka.testing.simulation.scenarios import plan as plans
from minikafka.testing.simulation.scenarios.plan import COPIES, TOPIC, TRANSACTORS_FROM
from minikafka.testing.simulation.scenarios.transactions import (
    FENCED,
    RETRY_PAUSE_MS,
    TRANSACTION_TIMEOUT_MS,
    TransactionalProducer,
)

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.swarm import SwarmRun

COMMIT_SHARE = 0.7
RIVAL_SHARE = 0.1
PARTITIONS_MAX = 3
"""Of one transaction."""
COPIED_MAX = 5
"""Records in one transaction of a copier."""
COPIERS = "copiers"
"""The group whose positions a copier commits."""


class Transactor:
    """One of them, until the run stops."""

    def __init__(self, run: SwarmRun, number: int, plan: plans.Transactor) -> None:
        self._run = run
        self._plan = plan
        self._number = TRANSACTORS_FROM + number
        self._name = f"transactor-{number}"
        self._rng = run.simulation.rng(self._name)
        self._lives = 0

    async def check(self) -> None:
        """When it has stopped: a history shows the rest."""

    def _new(self, topic: str, partitions: int) -> RecordedTransactionalProducer:
        """The same transactional id, in another life."""
        self._lives += 1
        process = f"{self._name}.{self._lives}"
        client = SimulatedClient(self._run.addresses, client_id=self._name)
        producer = TransactionalProducer(client, self._name, partitions=partitions, topic=topic)
        return self._run.recorder.transactional(process, producer, topic=topic)

    async def work(self) -> None:
        """Raises KafkaError: an answer that no transaction has; AssertionError."""
        run = self._run
        producer = self._new(TOPIC, run.plan.partitions)
        await producer.begin()
        count = 0
        while not run.is_stopping:
            value = b"%d-%d" % (self._number, count)
            count += 1
            producer = await self._transaction(producer, value)
            await run.rest(self._rng, self._plan.pause_ms)

    async def _transaction(
        self, producer: RecordedTransactionalProducer, value: bytes
    ) -> RecordedTransactionalProducer:
        """One. Returns who begins the next."""
        run, rng = self._run, self._rng
        commit = rng.random() < COMMIT_SHARE
        count = min(run.plan.partitions, rng.randint(1, PARTITIONS_MAX))
        began_s = run.simulation.loop.time()
        rival: RecordedTransactionalProducer | None = None
        has_asked = False
        try:
            for partition in rng.sample(range(run.plan.partitions), count):
                await producer.send(partition, value)
                await asyncio.sleep(rng.uniform(0, 0.05))
            if self._plan.has_rivals and rng.random() < RIVAL_SHARE:
                rival = self._new(TOPIC, run.plan.partitions)
                await rival.begin()
            has_asked = True
            await producer.end(commit=commit)
        except KafkaError as error:
            lasted_ms = (run.simulation.loop.time() - began_s) * 1000
            if not has_asked:
                producer.give_up()
            if rival is not None:
                assert error.code in FENCED, f"I10: a producer with a successor is told {error}"
                return rival
            if not is_of_late(error, lasted_ms, has_asked=has_asked):
                raise
            await producer.begin()
            return producer
        assert rival is None, f"I10: {self._name} has a successor, and ended {value!r}"
        return producer


def is_of_late(error: KafkaError, lasted_ms: float, *, has_asked: bool) -> bool:
    """Whether that is what is told to a producer whose coordinator has given its transaction up. An end that
    comes after the abort for the time-out, and before any other epoch, is told by the state that the abort
    has left (``TransactionCoordinator.endTransaction``)."""
    is_late = has_asked and lasted_ms >= TRANSACTION_TIMEOUT_MS
    return error.code in FENCED or (is_late and error.code is ErrorCode.INVALID_TXN_STATE)


class Copier(Transactor):
    """Reads what is committed in ``TOPIC``, one partition after the other."""

    def __init__(self, run: SwarmRun, number: int, plan: plans.Transactor) -> None:
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
        began_s = self._run.simulation.loop.time()
        has_asked = False
        behind = records[-1].offset + 1
        self._positions[partition] = behind
        try:
            for record in records:
                # A value is sent once: what is copied again, after an abort, is another one.
                self._count += 1
                value = b"%d-%d-%d-%d" % (self._number, self._count, partition, record.offset)
                await producer.send(0, value)
            await producer.send_offsets(self._group, {partition: behind})
            has_asked = True
            await producer.end(commit=commit)
        except KafkaError as error:
            lasted_ms = (self._run.simulation.loop.time() - began_s) * 1000
            if not has_asked:
                producer.give_up()
            if not is_of_late(error, lasted_ms, has_asked=has_asked):
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
        metadata = await self._client.metadata([])
        wanted = {"key_type": 0, "coordinator_keys": [self._group], "key": self._group}
        broker = self._rng.choice(metadata.brokers)
        answer = await self._client.request((broker.host, broker.port), ApiKey.FIND_COORDINATOR, wanted)
        (found,) = answer.coordinators
        check(found.error_code)
        partitions = list(range(self._run.plan.partitions))
        group = {
            "group_id": self._group, "member_id": None, "member_epoch": -1,
            "topics": [{"name": TOPIC, "partition_indexes": partitions}],
        }  # fmt: skip
        body = {"groups": [group], "require_stable": True}
        answer = await self._client.request(
            (found.host, found.port), ApiKey.OFFSET_FETCH, body, version=OFFSETS_VERSION
        )
        (of_group,) = answer.groups
        check(of_group.error_code)
        positions = {}
        for each in of_group.topics[0].partitions:
            check(each.error_code)
            positions[each.partition_index] = max(each.committed_offset, 0)
        return positions

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
