"""Replicas from one status to another, and what their brokers are told on the way.

Kafka: ``ZkReplicaStateMachine``; the statuses and their valid predecessors are in ``context``.

    to NEW                   LeaderAndIsr to the replica, if its partition has a leader
    NEW to ONLINE            nothing: the election that created the partition has told it
    others to ONLINE         LeaderAndIsr to the replica, if its partition ever had a leader
    to OFFLINE               StopReplica (no deletion) to the replica, which leaves the ISR; LeaderAndIsr to
                             the other replicas if that changed something
    to DELETION_STARTED      StopReplica with deletion
    to DELETION_SUCCESSFUL   nothing
    to DELETION_INELIGIBLE   nothing
    to NON_EXISTENT          nothing

A replica that a reassignment has removed takes the way of a deleted one, while its partition's assignment
names it no more (``reassignment``).

Invariants: as for partitions (``partition_state_machine``). A replica goes OFFLINE even when its ISR cannot
be written: that it is away does not depend on the store.

Where it differs from Kafka: a replica that was NEW or ONLINE and outside of the ISR when it goes OFFLINE
raises the leader epoch too. An expansion of the ISR that names it and is on its way from the leader to the
store then loses the race against this write, and what the replica fetched before is of an old epoch (KIP-903;
Kafka's controllers under ZooKeeper leave this gap). And where nothing in a state would change, it is not
written, and LeaderAndIsr is not sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import assert_never

import msgspec

from minikafka.controller.context import (
    REPLICA_PREDECESSORS,
    ControllerContext,
    Replicas,
    ReplicaStatus,
    StateChangeFailed,
    log_failures,
)
from minikafka.controller.effects import (
    Step,
    VersionedState,
    read_election_configs,
    read_states,
    write_states,
)
from minikafka.controller.partition_state_machine import same_leader, without_replica
from minikafka.controller.request_batch import ControllerBrokerRequestBatch
from minikafka.protocol.control import keep_eligible
from minikafka.types import NO_LEADER, BrokerId, PartitionState, TopicPartition


class ReplicaStateMachine:
    """See the module header."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"ReplicaStateMachine({self._context!r})"

    def startup(self) -> Step[None]:
        """Tell every broker what it has to do, and take those that are away out of the ISRs.

        A replica that is away starts as DELETION_INELIGIBLE, as in Kafka: if its topic is being deleted,
        nothing else would hold the deletion up.
        """
        context = self._context
        online, offline = context.split_by_online(context.replica_status)
        for replicas, status in (
            (online, ReplicaStatus.ONLINE),
            (offline, ReplicaStatus.DELETION_INELIGIBLE),
        ):
            for broker, partitions in replicas.items():
                context.replica_status[broker].update(dict.fromkeys(partitions, status))
        yield from self.change(online, ReplicaStatus.ONLINE, full_for=context.brokers)
        yield from self.change(offline, ReplicaStatus.OFFLINE)

    def change(
        self,
        replicas: Replicas,
        target: ReplicaStatus,
        *,
        full_for: Collection[BrokerId] = (),
        just_elected: Collection[TopicPartition] = (),
    ) -> Step[list[StateChangeFailed]]:
        """Take ``replicas`` to ``target``. Returns what failed.

        ``full_for``: brokers of which ``replicas`` has all; they are told so, even if that is none.
        ``just_elected``: partitions with a leader epoch that is newer than whatever happened to ``replicas``.
        """
        failed: list[StateChangeFailed] = []
        batch = ControllerBrokerRequestBatch(self._context)
        for broker in full_for:
            batch.add_all_leader_and_isr(broker)
        for broker, partitions in replicas.items():
            valid = self._valid(broker, partitions, target, failed)
            match target:
                case ReplicaStatus.NEW:
                    self._to_new(broker, valid, batch)
                case ReplicaStatus.ONLINE:
                    self._to_online(broker, valid, batch)
                case ReplicaStatus.OFFLINE:
                    yield from self._to_offline(broker, valid, batch, failed, just_elected)
                case ReplicaStatus.DELETION_STARTED:
                    for each in valid:
                        batch.add_stop_replica(broker, each, delete=True)
                        self._transition(broker, each, target)
                case (
                    ReplicaStatus.DELETION_SUCCESSFUL
                    | ReplicaStatus.DELETION_INELIGIBLE
                    | ReplicaStatus.NON_EXISTENT
                ):
                    for each in valid:
                        self._transition(broker, each, target)
                case _:
                    assert_never(target)
        log_failures(failed, controller_epoch=self._context.epoch)
        yield from batch.send()
        return failed

    # The table

    def _valid(
        self,
        broker: BrokerId,
        partitions: Iterable[TopicPartition],
        target: ReplicaStatus,
        failed: list[StateChangeFailed],
    ) -> list[TopicPartition]:
        valid = []
        for topic_partition in partitions:
            status = self._context.replica_status[broker][topic_partition]
            if status in REPLICA_PREDECESSORS[target]:
                valid.append(topic_partition)
            else:
                failed.append(_failure(broker, topic_partition, target, f"it is {status.value}"))
        return valid

    def _transition(self, broker: BrokerId, topic_partition: TopicPartition, target: ReplicaStatus) -> None:
        self._context.replica_status[broker][topic_partition] = target

    # To where brokers are told something

    def _to_new(
        self, broker: BrokerId, partitions: list[TopicPartition], batch: ControllerBrokerRequestBatch
    ) -> None:
        for each in partitions:
            if each in self._context.leadership:
                batch.add_leader_and_isr([broker], each, is_new=True)
            self._transition(broker, each, ReplicaStatus.NEW)

    def _to_online(
        self, broker: BrokerId, partitions: list[TopicPartition], batch: ControllerBrokerRequestBatch
    ) -> None:
        statuses = self._context.replica_status.get(broker, {})
        for each in partitions:
            if statuses[each] is not ReplicaStatus.NEW and each in self._context.leadership:
                batch.add_leader_and_isr([broker], each)
            self._transition(broker, each, ReplicaStatus.ONLINE)

    def _to_offline(
        self,
        broker: BrokerId,
        partitions: list[TopicPartition],
        batch: ControllerBrokerRequestBatch,
        failed: list[StateChangeFailed],
        just_elected: Collection[TopicPartition],
    ) -> Step[None]:
        context = self._context
        statuses = context.replica_status.get(broker, {})
        fenced = {
            each
            for each in partitions
            if statuses[each] in (ReplicaStatus.ONLINE, ReplicaStatus.NEW)
            and each not in just_elected
            and not context.is_to_be_deleted(each.topic)
        }
        for each in partitions:
            batch.add_stop_replica(broker, each, delete=False)
            self._transition(broker, each, ReplicaStatus.OFFLINE)
        if leaderless := [each for each in partitions if each not in context.leadership]:
            batch.add_update_metadata(context.brokers, leaderless)
        led = [each for each in partitions if each in context.leadership]
        while led:
            led = yield from self._remove_from_isrs(broker, led, fenced, batch, failed)

    def _remove_from_isrs(
        self,
        broker: BrokerId,
        partitions: Collection[TopicPartition],
        fenced: Collection[TopicPartition],
        batch: ControllerBrokerRequestBatch,
        failed: list[StateChangeFailed],
    ) -> Step[list[TopicPartition]]:
        """``doRemoveReplicasFromIsr``. Returns those whose state another writer has changed meanwhile."""
        context = self._context
        current = yield from read_states(partitions)
        configs = yield from read_election_configs(each.topic for each in current)
        changed: dict[TopicPartition, VersionedState] = {}
        for each in partitions:
            versioned = current.get(each)
            if versioned is None:
                if not context.is_to_be_deleted(each.topic):
                    failed.append(
                        _failure(broker, each, ReplicaStatus.OFFLINE, "it has no state in the store")
                    )
                continue
            if versioned.state.controller_epoch > context.epoch:
                why = f"a later controller has written the partition's state: {versioned.state}"
                failed.append(_failure(broker, each, ReplicaStatus.OFFLINE, why))
                continue
            state = _after_leaving(versioned.state, broker, is_fenced=each in fenced)
            if state is None:
                context.leadership[each] = versioned
                if not context.is_to_be_deleted(each.topic):
                    batch.add_update_metadata(context.brokers, [each])
            else:
                min_isr = context.effective_min_isr(each, configs[each.topic])
                state = keep_eligible(versioned.state, state, min_isr=min_isr)
                state = msgspec.structs.replace(state, controller_epoch=context.epoch)
                changed[each] = VersionedState(state, versioned.version)
        versions = yield from write_states(changed)
        for each, version in versions.items():
            context.leadership[each] = VersionedState(changed[each].state, version)
            if not context.is_to_be_deleted(each.topic):
                others = (replica for replica in context.assignments[each].replicas if replica != broker)
                batch.add_leader_and_isr(others, each)
        return [each for each in changed if each not in versions]


def _after_leaving(state: PartitionState, broker: BrokerId, *, is_fenced: bool) -> PartitionState | None:
    """The state without ``broker`` in the ISR; None when it is without it, and no leader has to be fenced."""
    if broker not in state.isr:
        return same_leader(state) if is_fenced and state.leader != NO_LEADER else None
    if state.isr == (broker,) and state.leader == NO_LEADER:
        return None
    return without_replica(state, broker)


def _failure(
    broker: BrokerId, topic_partition: TopicPartition, target: ReplicaStatus, why: str
) -> StateChangeFailed:
    return StateChangeFailed(f"the replica of {topic_partition} on broker {broker}", target, why)
