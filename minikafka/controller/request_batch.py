"""What a change has to tell the brokers, collected, and sent when the change is complete.

Kafka: ``ControllerBrokerRequestBatch``. Per broker one LeaderAndIsr, one UpdateMetadata and one StopReplica
leave, in this order: a broker learns what to do before clients learn where to go.

What is said of a partition is what the context knows of it at the end, so a partition that changed twice goes
out once. Brokers that are not registered are told nothing: they will hear all of it when they come.

Where it differs from Kafka: a LeaderAndIsr or an UpdateMetadata that is complete says so (``is_full``,
KIP-380 and KIP-866; Kafka 3.x has the field and sets it only during its migration to KRaft). A replica on a
broker that shuts down is not called offline in UpdateMetadata before the broker is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from minikafka.controller.context import ControllerContext, ReplicaStatus
from minikafka.controller.effects import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata, Step
from minikafka.protocol.control import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    LeaderAndIsrPartition,
    StopReplicaPartition,
)
from minikafka.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition


class ControllerBrokerRequestBatch:
    """Made for one change, filled, sent once."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = {}
        """For each partition whether it is new."""
        self._full: set[BrokerId] = set()
        self._stop_replica: dict[BrokerId, dict[TopicPartition, bool]] = {}
        """For each partition whether it is deleted."""
        self._update_metadata_to: set[BrokerId] = set()
        self._update_metadata: dict[TopicPartition, None] = {}

    def __repr__(self) -> str:
        return (
            f"ControllerBrokerRequestBatch(LeaderAndIsr to {sorted(self._leader_and_isr)}, "
            f"UpdateMetadata to {sorted(self._update_metadata_to)} of {len(self._update_metadata)} "
            f"partitions, StopReplica to {sorted(self._stop_replica)})"
        )

    def add_leader_and_isr(
        self, brokers: Iterable[BrokerId], topic_partition: TopicPartition, *, is_new: bool = False
    ) -> None:
        """Tell ``brokers`` who leads and follows, and all brokers that clients have to know it."""
        for broker in brokers:
            partitions = self._leader_and_isr.setdefault(broker, {})
            partitions[topic_partition] = is_new or partitions.get(topic_partition, False)
        self._update_metadata_to.update(self._context.brokers)
        self._update_metadata[topic_partition] = None

    def add_all_leader_and_isr(self, broker: BrokerId) -> None:
        """What was added for ``broker`` is all that it has; the request says so, if that is true."""
        self._leader_and_isr.setdefault(broker, {})
        self._full.add(broker)

    def add_update_metadata(
        self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Tell ``brokers`` what clients have to know: who is alive, and what became of ``partitions``."""
        self._update_metadata_to.update(brokers)
        self._update_metadata.update(dict.fromkeys(partitions))

    def add_stop_replica(self, broker: BrokerId, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Tell ``broker`` to fetch a partition no more, and with ``delete`` to delete its log."""
        partitions = self._stop_replica.setdefault(broker, {})
        partitions[topic_partition] = delete or partitions.get(topic_partition, False)

    def send(self) -> Step[None]:
        """Yields the requests."""
        registered = self._context.brokers
        for broker in sorted(self._leader_and_isr.keys() & registered.keys()):
            yield self._leader_and_isr_for(broker)
        if to := tuple(sorted(self._update_metadata_to & registered.keys())):
            yield update_metadata(self._context, to, self._update_metadata)
        for broker in sorted(self._stop_replica.keys() & registered.keys()):
            yield SendStopReplica(
                broker,
                tuple(
                    StopReplicaPartition(*each, leader_epoch=self._epoch_to_stop(each), delete=delete)
                    for each, delete in self._stop_replica[broker].items()
                ),
            )

    def _leader_and_isr_for(self, broker: BrokerId) -> SendLeaderAndIsr:
        context = self._context
        partitions = tuple(
            leader_and_isr(context, each, is_new=is_new)
            for each, is_new in self._leader_and_isr[broker].items()
            if each in context.leadership
        )
        leaders = {partition.leader for partition in partitions}
        return SendLeaderAndIsr(
            broker,
            partitions,
            live_leaders=tuple(live for live in context.live_brokers if live.node_id in leaders),
            is_full=broker in self._full and self._is_all_of(broker, len(partitions)),
        )

    def _is_all_of(self, broker: BrokerId, count: int) -> bool:
        """Whether ``count`` partitions are all that may have a log on ``broker``.

        A partition that never had a leader should have none. But its state may be there and damaged, and a
        log that a full request does not name is a stray: so such a request is not full.
        """
        statuses = self._context.replica_status[broker].values()
        hosted = sum(status is not ReplicaStatus.DELETION_SUCCESSFUL for status in statuses)
        return self._context.is_complete and count == hosted

    def _epoch_to_stop(self, topic_partition: TopicPartition) -> LeaderEpoch:
        if self._context.is_to_be_deleted(topic_partition.topic):
            return EPOCH_DURING_DELETE
        current = self._context.leadership.get(topic_partition)
        return NO_EPOCH if current is None else current.state.leader_epoch


def update_metadata(
    context: ControllerContext,
    to: Iterable[BrokerId],
    partitions: Iterable[TopicPartition] = (),
    *,
    is_full: bool = False,
) -> SendUpdateMetadata:
    """Who is alive, and what clients have to know of those of ``partitions`` that ever had a leader.

    Partitions of topics that are to be deleted go out with ``LEADER_DURING_DELETE``.
    """
    return SendUpdateMetadata(
        tuple(sorted(to)),
        tuple(_metadata_of(context, each) for each in partitions if each in context.leadership),
        context.live_brokers,
        is_full,
    )


def _metadata_of(context: ControllerContext, topic_partition: TopicPartition) -> LeaderAndIsrPartition:
    known = leader_and_isr(context, topic_partition)
    reachable = context.online_or_shutting_down_replicas(topic_partition)
    offline = tuple(replica for replica in known.replicas if replica not in reachable)
    if context.is_to_be_deleted(topic_partition.topic):
        return msgspec.structs.replace(known, leader=LEADER_DURING_DELETE, offline_replicas=offline)
    return msgspec.structs.replace(known, offline_replicas=offline) if offline else known


def leader_and_isr(
    context: ControllerContext, topic_partition: TopicPartition, *, is_new: bool = False
) -> LeaderAndIsrPartition:
    """What is known of a partition that has a state."""
    current = context.leadership[topic_partition]
    assignment = context.assignments[topic_partition]
    state = current.state
    return LeaderAndIsrPartition(
        topic=topic_partition.topic,
        topic_id=context.topics[topic_partition.topic].topic_id,
        partition=topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=current.version,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
        is_new=is_new,
        leader_recovering=state.leader_recovering,
        eligible=state.eligible,
        last_known_leader=state.last_known_leader,
    )
