"""The ISR changes of the partitions that this broker leads: asked of the controller, by AlterPartition.

Kafka: ``DefaultAlterPartitionManager`` (KIP-497). What is submitted while a request is under way goes with
the next one. What can come of a change:

    the state is what was wanted                   IsrWritten
    the state is another of our own leadership     IsrReread: the leader continues from it
    another leads, or at a newer epoch             IsrRefused: a LeaderAndIsr is on its way
    the partition has an error                     what the store says decides which of these it is
    the controller has moved, does not answer,     asked again, for as long as it takes
      or does not reach the store

A controller carries out one request after the other, each in the term in which it came. So when a leader has
its answer, nothing that it asked before can be written any more: it may continue from the answer.

The leader writes the state itself (``replica.isr_manager``) where the controller cannot:
- a broker of minikafka 0.2.0 does not know AlterPartition;
- Apache Kafka's does not know of eligible replicas (KIP-966), so it sees no change where they are the change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final
from uuid import UUID

from minikafka.coordination.store import StoreError
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrRefused, IsrReread, IsrWritten
from minikafka.server.cluster.broker_connection import ControllerConnection, OlderController
from minikafka.server.controller.alter_partition import NO_BROKER_EPOCH, CurrentState, Outcome, ProposedIsr
from minikafka.server.controller.loop import ControllerLoop
from minikafka.server.replica.isr_manager import IsrManager
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, joined

logger = logging.getLogger(__name__)

CHANGES_PER_REQUEST: Final = 500
NO_CONTROLLER_EPOCH: Final = -1
"""AlterPartition does not tell it."""
RETRY_BACKOFF_MS: Final = 50
"""``DefaultAlterPartitionManager``'s; twice as long with each try, until"""
RETRY_BACKOFF_MS_MAX: Final = 1_000

Done = Callable[[IsrOutcome], object]


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
