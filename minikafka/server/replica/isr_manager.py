"""Writes ISR changes of the partitions that this broker leads, where the controller cannot be asked for them,
and announces them to it (``server.controller.alter_partition_manager`` says when).

Kafka: ``ZkIsrManager`` and ``ReplicationUtils.updateLeaderAndIsr`` of 2.x (KAFKA-2729, KAFKA-9307).

A change is a conditional write of ``/brokers/topics/T/partitions/P/state``: it expects the version that the
leader knows. Changes that come together are written together. What can come of one:

    written                                   IsrWritten
    another broker wrote, at a newer epoch    IsrRefused: a LeaderAndIsr is on its way
    the node says what we wanted              IsrWritten: an earlier try was written, its answer was lost
    the node says something else of our       IsrReread: the leader continues from it
      own leadership
    a broker in it has registered again       the same; nothing is written (KIP-903)
      since it fetched
    the store cannot be reached               tried again, for as long as it takes

Whether a broker has registered again is asked before the write, which must fail if one has since: each
registration raises the version of ``/brokers/ids``, and the write checks it. Kafka has no such check, since
only its KRaft controller compares broker epochs.

Announcements are ``/isr_change_notification/isr_change_N``: one for all partitions that changed, when the
last change is over 5 s old or the last announcement over 60 s, looked at every 2.5 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from minikafka.clock import Clock
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    NodeStat,
    NoNodeError,
    Op,
    SetOp,
    StoreError,
)
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import keep_eligible
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrRefused, IsrReread, IsrWritten
from minikafka.types import BrokerId, PartitionState, TopicPartition, joined

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS = 2_500
"""``IsrChangeNotificationConfig.checkIntervalMs``."""
LINGER_MS = 5_000
"""``lingerMs``: an announcement waits until there are no more changes,"""
DELAY_MS_MAX = 60_000
"""``maxDelayMs``: but not for ever."""
RETRY_PAUSE_MS = 200
"""Between tries while the store cannot be reached."""
CHANGES_PER_WRITE = 500

NO_BROKER_EPOCH = -1

Done = Callable[[IsrOutcome], object]


class _Submitted(NamedTuple):
    change: IsrChange
    done: Done


class IsrManager:
    """ISR changes of one broker. ``write_changes`` and ``announce_changes`` are its two tasks."""

    def __init__(self, store: CoordinationStore, *, node_id: BrokerId, clock: Clock) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._submitted: dict[_Submitted, None] = {}
        """In order. Each stays until its outcome is known and told, also when writing fails in between."""
        self._filled = asyncio.Event()
        self._unannounced: set[TopicPartition] = set()
        self._last_change_ms = 0
        self._last_announcement_ms = clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"IsrManager({len(self._submitted)} to write, {len(self._unannounced)} to announce)"

    def submit(self, change: IsrChange, done: Done) -> None:
        """Write ``change`` soon; ``done`` is called with what came of it. A partition has one under way."""
        self._submitted[_Submitted(change, done)] = None
        self._filled.set()

    async def write_changes(self) -> None:
        """Until cancelled."""
        while True:
            while self._submitted:
                await self._write_all(list(islice(self._submitted, CHANGES_PER_WRITE)))
            self._filled.clear()
            await self._filled.wait()

    async def _write_all(self, submitted: list[_Submitted]) -> None:
        left, is_waiting = submitted, False
        while left:
            try:
                left = await self._write(left)
            except StoreError as error:
                if not is_waiting:
                    logger.warning("ISR changes wait for the coordination store: %s", error)
                is_waiting = True
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)

    async def _write(self, submitted: list[_Submitted]) -> list[_Submitted]:
        """One write of all. Returns those that are to be tried again, without the one that was refused."""
        registrations = (await self._store.get(paths.BROKER_IDS)).stat.version
        submitted = await self._without_declined(submitted)
        if not submitted:
            return []
        states = [await self._state(change) for change, _ in submitted]
        ops: list[Op] = [CheckOp(paths.BROKER_IDS, registrations)]
        for (change, _), state in zip(submitted, states, strict=True):
            path = paths.partition_state_path(*change.topic_partition)
            ops.append(SetOp(path, paths.encode_partition_state(state), change.expected_version))
        try:
            results = await self._store.multi(ops)
        except (BadVersionError, NoNodeError) as error:
            assert error.operation_index is not None
            if error.operation_index == 0:
                return submitted  # a broker has registered meanwhile: look again at who is who
            refused = submitted[error.operation_index - 1]
            outcome = await self.outcome_of(refused.change)
            self._finish(refused, outcome)
            return [each for each in submitted if each is not refused]
        for each, state, stat in zip(submitted, states, results[1:], strict=True):
            assert isinstance(stat, NodeStat)
            self._finish(each, IsrWritten(stat.version, state.isr, state.eligible))
        return []

    async def _without_declined(self, submitted: list[_Submitted]) -> list[_Submitted]:
        """Those whose members are the same incarnations that fetched (KIP-903); the others are finished."""
        members = {member for change, _ in submitted for member in change.isr if member != self._node_id}
        epochs = {}
        for member in sorted(members):
            stat = await self._store.exists(paths.broker_path(member))
            epochs[member] = None if stat is None else stat.czxid
        going = []
        for each in submitted:
            change = each.change
            restarted = [
                member
                for member, epoch in zip(change.isr, change.broker_epochs, strict=False)
                if member != self._node_id and epoch not in (NO_BROKER_EPOCH, epochs[member])
            ]
            if restarted:
                logger.warning("%s: brokers %s have restarted", change.topic_partition, joined(restarted))
                self._finish(each, await self.outcome_of(change))
            else:
                going.append(each)
        return going

    async def _state(self, change: IsrChange) -> PartitionState:
        """What is to be written. Where the ISR becomes too small, with the eligible replicas, which follow
        from what the node says now; when another writes it in between, nothing is written."""
        state = PartitionState(self._node_id, change.leader_epoch, change.isr, change.controller_epoch)
        topic, partition = change.topic_partition
        if len(change.isr) >= change.min_isr:
            return state
        try:
            node = await self._store.get(paths.partition_state_path(topic, partition))
            before = paths.decode_partition_state(topic, partition, node.data)
        except (NoNodeError, paths.DamagedNodeError):
            return state  # the write will be refused
        return keep_eligible(before, state, min_isr=change.min_isr)

    async def outcome_of(self, change: IsrChange) -> IsrOutcome:
        """What the store says of a change that was refused. Raises StoreError, then it is asked again."""
        topic, partition = change.topic_partition
        try:
            node = await self._store.get(paths.partition_state_path(topic, partition))
            found = paths.decode_partition_state(topic, partition, node.data)
        except NoNodeError:
            return IsrRefused(f"{change.topic_partition} has no state in the store any more")
        except paths.DamagedNodeError as error:
            return IsrRefused(str(error))
        if found.leader != self._node_id or found.leader_epoch != change.leader_epoch:
            return IsrRefused(
                f"{change.topic_partition} is led by broker {found.leader} since epoch {found.leader_epoch}"
            )
        is_wanted = set(found.isr) == set(change.isr)
        if is_wanted and not (found.eligible and len(found.isr) >= change.min_isr):
            return IsrWritten(node.stat.version, found.isr, found.eligible)
        return IsrReread(found.isr, node.stat.version, found.eligible)

    def _finish(self, submitted: _Submitted, outcome: IsrOutcome) -> None:
        del self._submitted[submitted]
        change = submitted.change
        match outcome:
            case IsrWritten(version, isr, _):
                logger.info("ISR of %s is %s (version %d)", change.topic_partition, joined(isr), version)
                self._unannounced.add(change.topic_partition)
                self._last_change_ms = self._clock.monotonic_ms()
            case IsrRefused(reason):
                logger.warning("ISR of %s stays: %s", change.topic_partition, reason)
            case IsrReread(isr, version, _):
                logger.warning(
                    "ISR of %s is %s in the store (version %d)", change.topic_partition, joined(isr), version
                )
        submitted.done(outcome)

    async def announce_changes(self) -> None:
        """Until cancelled. A store that cannot be reached raises; the supervisor starts this again."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            now_ms = self._clock.monotonic_ms()
            calm = now_ms - self._last_change_ms > LINGER_MS
            overdue = now_ms - self._last_announcement_ms > DELAY_MS_MAX
            if self._unannounced and (calm or overdue):
                await self._announce()
                self._last_announcement_ms = now_ms

    async def _announce(self) -> None:
        announced, self._unannounced = self._unannounced, set()
        try:
            await self._store.create(
                paths.ISR_CHANGE_PREFIX, paths.encode_partitions(announced), sequential=True
            )
        except StoreError as error:
            logger.warning("ISR changes are not announced yet: %s", error)
            self._unannounced |= announced
