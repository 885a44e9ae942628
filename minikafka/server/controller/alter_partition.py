"""Changes of ISRs: leaders ask the controller for them by AlterPartition (KIP-497), or write them themselves.

**The leader asks** (``AlterPartitionManager``). Kafka: ``DefaultAlterPartitionManager`` (KIP-497). What is
submitted while a request is under way goes with the next one. What can come of a change:

    the state is what was wanted                   IsrWritten
    the state is another of our own leadership     IsrReread: the leader continues from it
    another leads, or at a newer epoch             IsrRefused: a LeaderAndIsr is on its way
    the partition has an error                     what the store says decides which of these it is
    the controller has moved, does not answer,     asked again, for as long as it takes
      or does not reach the store

A controller carries out one request after the other, each in the term in which it came. So when a leader has
its answer, nothing that it asked before can be written any more: it may continue from the answer.

The leader writes the state itself (``IsrManager``) where the controller cannot:
- a broker of minikafka 0.2.0 does not know AlterPartition;
- Apache Kafka's does not know of eligible replicas (KIP-966), so it sees no change where they are the change.

**The controller decides** (``alter_partitions``). Kafka: ``KafkaController.alterPartitions`` of 3.9. A write
is conditional on the version that the leader knows, on the controller's term, and on no broker having
registered since it was looked who lives.

Where it differs from Kafka: the state in the store decides, not what the controller has in memory. A leader
of this project says what its min.insync.replicas is, and below it those who leave the ISR stay eligible
(KIP-966). A leader of Apache Kafka does not, and moves its high watermark also when the ISR is smaller: so no
replica outside of its ISR is sure to hold what is committed, and none is eligible.

**The leader writes** (``IsrManager``) where the controller cannot be asked, and announces that to it. Kafka:
``ZkIsrManager`` and ``ReplicationUtils.updateLeaderAndIsr`` of 2.x (KAFKA-2729, KAFKA-9307).

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from minikafka.clock import Clock
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    NodeStat,
    NoNodeError,
    Op,
    OpResult,
    SetOp,
    StoreError,
)
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.control import keep_eligible
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrRefused, IsrReread, IsrWritten
from minikafka.server.cluster.broker_connection import ControllerConnection, OlderController
from minikafka.server.cluster.registration import Election
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition, joined

if TYPE_CHECKING:
    from minikafka.server.controller.loop import ControllerLoop

logger = logging.getLogger(__name__)

CHANGES_PER_REQUEST: Final = 500
NO_CONTROLLER_EPOCH: Final = -1
"""AlterPartition does not tell it."""
RETRY_BACKOFF_MS: Final = 50
"""``DefaultAlterPartitionManager``'s; twice as long with each try, until"""
RETRY_BACKOFF_MS_MAX: Final = 1_000

Done = Callable[[IsrOutcome], object]

CHECK_INTERVAL_MS = 2_500
"""``IsrChangeNotificationConfig.checkIntervalMs``."""
LINGER_MS = 5_000
"""``lingerMs``: an announcement waits until there are no more changes,"""
DELAY_MS_MAX = 60_000
"""``maxDelayMs``: but not for ever."""
RETRY_PAUSE_MS = 200
"""Between tries while the store cannot be reached."""

CHANGES_PER_WRITE: Final = 500
NO_BROKER_EPOCH: Final = -1
NO_MIN_ISR: Final = -1


class _Submitted(NamedTuple):
    change: IsrChange
    done: Done


class AlterPartitionManager:
    """All ISR changes of one broker. ``run`` is its task."""

    def __init__(
        self,
        controller: ControllerLoop,
        connection: ControllerConnection,
        isr_manager: IsrManager,
        *,
        node_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        """``controller`` is this broker's own part in being it."""
        self._controller = controller
        self._connection = connection
        self._isr_manager = isr_manager
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._submitted: dict[_Submitted, None] = {}
        """In order. Each stays until its outcome is known and told."""
        self._filled = asyncio.Event()
        self._backoff_ms = RETRY_BACKOFF_MS
        self._last_failure = ""

    def __repr__(self) -> str:
        return f"AlterPartitionManager({len(self._submitted)} to ask for, {self._connection})"

    def submit(self, change: IsrChange, done: Done) -> None:
        """Have ``change`` written soon; ``done`` is called with what came of it. A partition has one under
        way."""
        self._submitted[_Submitted(change, done)] = None
        self._filled.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                while self._submitted:
                    await self._try(list(islice(self._submitted, CHANGES_PER_REQUEST)))
                self._filled.clear()
                await self._filled.wait()
        finally:
            await self._connection.close()

    async def _try(self, submitted: Sequence[_Submitted]) -> None:
        try:
            outcomes = await self._ask([each.change for each in submitted])
            is_moving = [
                await self._take(each, outcome) for each, outcome in zip(submitted, outcomes, strict=True)
            ]
        except OlderController:
            for each in submitted:
                self._leave_to_isr_manager(each)
            return
        except (KafkaError, BrokerUnavailable, PeerProtocolError, StoreError) as error:
            if str(error) != self._last_failure:
                logger.warning("ISR changes wait for the controller: %s", error)
            self._last_failure = str(error)
        else:
            if all(is_moving):
                self._backoff_ms, self._last_failure = RETRY_BACKOFF_MS, ""
                return
        await asyncio.sleep(self._backoff_ms / 1000)
        self._backoff_ms = min(2 * self._backoff_ms, RETRY_BACKOFF_MS_MAX)

    async def _ask(self, changes: Sequence[IsrChange]) -> list[Outcome]:
        """What the controller makes of each. Raises OlderController; all else is to be tried again."""
        if self._controller.is_controller:
            proposed = [self._proposed(each) for each in changes]
            return await self._controller.alter_partitions(self._node_id, proposed)
        body = request_body(changes, node_id=self._node_id, broker_epoch=self._broker_epoch())
        answer = await self._connection.request(ApiKey.ALTER_PARTITION, body)
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, f"the controller answers {code.name} to AlterPartition")
        return list(outcomes_of(answer, changes))

    def _proposed(self, change: IsrChange) -> ProposedIsr:
        return ProposedIsr(
            change.topic_partition,
            change.leader_epoch,
            change.expected_version,
            change.isr,
            broker_epochs=_broker_epochs(change, self._node_id, self._broker_epoch()),
            min_isr=change.min_isr,
        )

    async def _take(self, submitted: _Submitted, outcome: Outcome) -> bool:
        """Returns whether that is the end of it; else it is to be asked again, also after a StoreError."""
        change = submitted.change
        if not isinstance(outcome, CurrentState):
            return await self._take_error(submitted, outcome)
        state, version = outcome
        if state.leader != self._node_id or state.leader_epoch != change.leader_epoch:
            leader = f"broker {state.leader} since epoch {state.leader_epoch}"
            self._finish(submitted, IsrRefused(f"{change.topic_partition} is led by {leader}"))
        elif set(state.isr) != set(change.isr):
            self._finish(submitted, IsrReread(state.isr, version, state.eligible))
        elif version == change.expected_version:
            self._leave_to_isr_manager(submitted)
        else:
            self._finish(submitted, IsrWritten(version, state.isr, state.eligible))
        return True

    async def _take_error(self, submitted: _Submitted, code: ErrorCode) -> bool:
        """As ``_take``. A store that says something older than the controller does is asked again, too."""
        change = submitted.change
        found = await self._isr_manager.outcome_of(change)
        if not isinstance(found, IsrRefused):
            is_newer = found.version > change.expected_version
            is_same = found.version == change.expected_version
            if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.OPERATION_NOT_ATTEMPTED) or not (
                is_newer or (is_same and code is not ErrorCode.INVALID_UPDATE_VERSION)
            ):
                return False
        logger.warning("ISR of %s is not altered: %s", change.topic_partition, code.name)
        self._finish(submitted, found)
        return True

    def _leave_to_isr_manager(self, submitted: _Submitted) -> None:
        del self._submitted[submitted]
        self._isr_manager.submit(submitted.change, submitted.done)

    def _finish(self, submitted: _Submitted, outcome: IsrOutcome) -> None:
        del self._submitted[submitted]
        topic_partition = submitted.change.topic_partition
        match outcome:
            case IsrWritten(version, isr, _):
                logger.info("ISR of %s is %s (version %d)", topic_partition, joined(isr), version)
            case IsrRefused(reason):
                logger.warning("ISR of %s stays: %s", topic_partition, reason)
            case IsrReread(isr, version, _):
                logger.warning(
                    "ISR of %s is %s in the store (version %d)", topic_partition, joined(isr), version
                )
        submitted.done(outcome)


def request_body(changes: Sequence[IsrChange], *, node_id: BrokerId, broker_epoch: int) -> dict[str, Any]:
    """AlterPartition, version 3."""
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for change in changes:
        epochs = _broker_epochs(change, node_id, broker_epoch)
        topics.setdefault(change.topic_id, []).append(
            {
                "partition_index": change.topic_partition.partition,
                "leader_epoch": change.leader_epoch,
                "new_isr_with_epochs": [
                    {"broker_id": member, "broker_epoch": epoch}
                    for member, epoch in zip(change.isr, epochs, strict=True)
                ],
                "leader_recovery_state": 0,
                "partition_epoch": change.expected_version,
                "min_isr": change.min_isr,
            }
        )
    return {
        "broker_id": node_id,
        "broker_epoch": broker_epoch,
        "topics": [{"topic_id": topic_id, "partitions": asked} for topic_id, asked in topics.items()],
    }


def outcomes_of(answer: Any, changes: Sequence[IsrChange]) -> Iterator[Outcome]:
    """What an answer to ``request_body`` says of each change. What it leaves out was not attempted."""
    found: dict[tuple[UUID, int], Outcome] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            found[topic.topic_id, each.partition_index] = (
                ErrorCode(each.error_code)
                if each.error_code
                else CurrentState(
                    PartitionState(
                        BrokerId(each.leader_id),
                        LeaderEpoch(each.leader_epoch),
                        tuple(each.isr),
                        NO_CONTROLLER_EPOCH,
                        leader_recovering=each.leader_recovery_state == 1,
                        eligible=tuple(each.eligible_leader_replicas),
                    ),
                    each.partition_epoch,
                )
            )
    for change in changes:
        place = change.topic_id, change.topic_partition.partition
        yield found.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED)


def _broker_epochs(change: IsrChange, node_id: BrokerId, broker_epoch: int) -> tuple[int, ...]:
    """Of each member; the leader's own is not what it fetched with."""
    known = change.broker_epochs or (NO_BROKER_EPOCH,) * len(change.isr)
    return tuple(
        broker_epoch if member == node_id else epoch for member, epoch in zip(change.isr, known, strict=True)
    )


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


class ProposedIsr(NamedTuple):
    """What a leader wants its partition's state to be."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    """The version of the state that the leader knows."""
    isr: tuple[BrokerId, ...]
    is_recovering: bool = False
    broker_epochs: tuple[int, ...] = ()
    """Of the members, in their order; empty or -1: not said (KIP-903)."""
    min_isr: int = NO_MIN_ISR
    """The effective ``min.insync.replicas`` of a leader that counts on eligible replicas."""


class CurrentState(NamedTuple):
    """The state that is in the store now."""

    state: PartitionState
    partition_epoch: int


Outcome = CurrentState | ErrorCode


async def alter_partitions(
    store: CoordinationStore, election: Election, leader: BrokerId, proposed: Sequence[ProposedIsr]
) -> list[Outcome]:
    """What became of each proposal, in their order, when this broker's term as controller still lasts.

    Raises:
        KafkaError: NOT_CONTROLLER: it does not.
        StoreError: the store's. What was written by then stands; a leader that asks again is told so.
    """
    outcomes: list[Outcome] = []
    for start in range(0, len(proposed), CHANGES_PER_WRITE):
        chunk = proposed[start : start + CHANGES_PER_WRITE]
        outcomes += await _alter(store, election, leader, chunk)
    return outcomes


async def _alter(
    store: CoordinationStore, election: Election, leader: BrokerId, proposed: Sequence[ProposedIsr]
) -> list[Outcome]:
    while True:
        registrations = (await store.get(paths.BROKER_IDS)).stat.version
        epochs = await _registered_epochs(store, (member for each in proposed for member in each.isr))
        decided = [await _decide(store, election, leader, each, epochs) for each in proposed]
        ops: list[Op] = [
            CheckOp(paths.CONTROLLER_EPOCH, election.epoch_version),
            CheckOp(paths.BROKER_IDS, registrations),
        ]
        for each, decision in zip(proposed, decided, strict=True):
            if isinstance(decision, PartitionState):
                path = paths.partition_state_path(*each.topic_partition)
                ops.append(SetOp(path, paths.encode_partition_state(decision), each.partition_epoch))
        try:
            results = iter((await store.multi(ops))[2:])
        except (BadVersionError, NoNodeError) as error:
            if error.operation_index == 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker has become controller") from None
            continue  # another wrote meanwhile, or a broker came: look again
        return [
            CurrentState(each, _version(next(results))) if isinstance(each, PartitionState) else each
            for each in decided
        ]


def _version(result: OpResult) -> int:
    assert isinstance(result, NodeStat)
    return result.version


async def _registered_epochs(
    store: CoordinationStore, members: Iterable[BrokerId]
) -> dict[BrokerId, int | None]:
    """None: it is not alive."""
    found: dict[BrokerId, int | None] = {}
    for member in sorted(set(members)):
        stat = await store.exists(paths.broker_path(member))
        found[member] = None if stat is None else stat.czxid
    return found


async def _decide(
    store: CoordinationStore,
    election: Election,
    leader: BrokerId,
    proposed: ProposedIsr,
    epochs: Mapping[BrokerId, int | None],
) -> Outcome | PartitionState:
    """What is to be written; or why nothing is, or that it is there already."""
    topic, partition = proposed.topic_partition
    try:
        node = await store.get(paths.partition_state_path(topic, partition))
        current = paths.decode_partition_state(topic, partition, node.data)
    except NoNodeError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except paths.DamagedNodeError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    version = node.stat.version
    if proposed.partition_epoch > version or proposed.leader_epoch > current.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows of a later controller than this broker does
    if proposed.leader_epoch < current.leader_epoch or current.leader != leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    state = PartitionState(
        leader, proposed.leader_epoch, proposed.isr, election.controller_epoch, proposed.is_recovering
    )
    if len(proposed.isr) < proposed.min_isr:
        state = keep_eligible(current, state, min_isr=proposed.min_isr)
    is_there = set(proposed.isr) == set(current.isr) and proposed.is_recovering == current.leader_recovering
    if is_there and (proposed.min_isr == NO_MIN_ISR or set(state.eligible) == set(current.eligible)):
        return CurrentState(current, version)
    if proposed.partition_epoch < version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not proposed.isr or (
        proposed.is_recovering and (len(proposed.isr) > 1 or not current.leader_recovering)
    ):
        return ErrorCode.INVALID_REQUEST
    for index, member in enumerate(proposed.isr):
        said = proposed.broker_epochs[index] if proposed.broker_epochs else NO_BROKER_EPOCH
        if epochs[member] is None or said not in (NO_BROKER_EPOCH, epochs[member]):
            return ErrorCode.INELIGIBLE_REPLICA
    return state
