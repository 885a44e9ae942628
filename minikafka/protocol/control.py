"""How a controller and its brokers talk: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown.

Kafka: ``LeaderAndIsrRequest`` and its siblings as of 3.9, the last release that has them. Field names are
Kafka's. Their bytes are ``wire.control_bodies``' matter.

Where it differs: topic ids stand beside topic names everywhere; partitions and brokers have a few fields
more. The requests never appear in ApiVersions.

Each request carries the controller's epoch, by which a broker knows a deposed controller
(STALE_CONTROLLER_EPOCH), and the epoch of the broker it is meant for, by which a request to its earlier
incarnation is known (STALE_BROKER_EPOCH).

**Eligible leader replicas** (KIP-966): those that may lead without a loss although not in the ISR. Kafka:
``PartitionChangeBuilder.maybeUpdateEligibleLeaderReplicas`` of KRaft. While the ISR is smaller than
min.insync.replicas the high watermark stands still. So a replica that was in the ISR when it became too
small, or later, holds everything below it, for as long as it keeps its log: a broker that comes back from an
unclean stop does not count. Both sides that write states keep this rule: leaders that change the ISR, and the
controller.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from minikafka.named_tuple import NamedTuple
from minikafka.types import (
    NO_EPOCH,
    NO_LEADER,
    TOPIC_NAME_PATTERN,
    BrokerId,
    LeaderEpoch,
    PartitionState,
    TopicPartition,
)

LEADER_DURING_DELETE = BrokerId(-2)
"""``LeaderAndIsr.LeaderDuringDelete``: in UpdateMetadata, the partition is being deleted; forget it."""

EPOCH_DURING_DELETE = LeaderEpoch(-2)
"""``LeaderAndIsr.EpochDuringDelete``: in StopReplica, whatever epoch the broker knows."""

UNNAMED_LISTENER = ""
"""Kafka's LeaderAndIsr has one address of each leader: that of the listener which brokers use, nameless."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# A name that is a path, or a number that no such thing has, must not get past the decoder.
TopicName = Annotated[str, Meta(pattern=TOPIC_NAME_PATTERN)]
NodeId = Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)]
Leader = Annotated[BrokerId, Meta(ge=LEADER_DURING_DELETE, le=INT32_MAX)]
Partition = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Epoch = Annotated[int, Meta(ge=-2, le=INT32_MAX)]
PartitionLeaderEpoch = Annotated[LeaderEpoch, Meta(ge=-2, le=INT32_MAX)]
Zxid = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
Port = Annotated[int, Meta(ge=-1, le=65_535)]
Code = Annotated[int, Meta(ge=-1, le=2**15 - 1)]


class ListenerEndpoint(NamedTuple):
    """One listener of a broker, as advertised."""

    listener_name: str
    host: str
    port: Port
    security_protocol: str = "PLAINTEXT"


class LiveBroker(msgspec.Struct, frozen=True, array_like=True):
    """A registered broker. ``epoch`` is the czxid of its registration (KIP-380)."""

    node_id: NodeId
    epoch: Zxid
    endpoints: tuple[ListenerEndpoint, ...]
    rack: str | None = None
    clean_start: bool = True
    """False: its last stop was not clean, so its logs may have lost their ends (KIP-966)."""
    http: tuple[str, Port] | None = None
    """Host and port of its pages; None: it has none."""
    is_of_0_2: bool = False
    """It is a broker of minikafka 0.2.0, which does not know Kafka's versions of these requests."""

    def endpoint(self, listener_name: str) -> ListenerEndpoint | None:
        """None when the broker does not have the listener."""
        return next((each for each in self.endpoints if each.listener_name == listener_name), None)


class LeaderAndIsrPartition(msgspec.Struct, frozen=True, array_like=True):
    """One partition's leadership: in LeaderAndIsr an order, in UpdateMetadata news."""

    topic: TopicName
    topic_id: UUID
    partition: Partition
    controller_epoch: Epoch
    leader: Leader
    leader_epoch: PartitionLeaderEpoch
    isr: tuple[NodeId, ...]
    partition_epoch: Epoch
    """The version of the state node: what the leader's next conditional write of the ISR expects."""
    replicas: tuple[NodeId, ...]
    adding_replicas: tuple[NodeId, ...] = ()
    removing_replicas: tuple[NodeId, ...] = ()
    is_new: bool = False
    """LeaderAndIsr: the replica never had a log, so none can be on a failed disk."""
    leader_recovering: bool = False
    offline_replicas: tuple[NodeId, ...] = ()
    """UpdateMetadata: replicas on failed log directories."""
    eligible: tuple[NodeId, ...] = ()
    """Those that may be elected although not in the ISR (KIP-966): nothing is committed without them."""
    last_known_leader: Leader = NO_LEADER
    """UpdateMetadata: who led last, while no replica leads."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class PartitionError(NamedTuple):
    """How one partition of a request fared; 0 is no error."""

    topic: TopicName
    partition: Partition
    error_code: Code


class LeaderAndIsrRequest(msgspec.Struct, frozen=True, array_like=True):
    """Lead or follow these partitions."""

    controller_id: NodeId
    controller_epoch: Epoch
    broker_epoch: Zxid
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveBroker, ...]
    """Where the leaders in ``partitions`` are reached."""
    is_full: bool = False
    """All partitions of this broker: logs of others are strays (KIP-380)."""


class LeaderAndIsrResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: Code
    partitions: tuple[PartitionError, ...] = ()
    topic_ids: tuple[tuple[TopicName, UUID], ...] = ()
    """Of the topics in ``partitions``: Kafka's response has these instead of names."""


class StopReplicaPartition(msgspec.Struct, frozen=True, array_like=True):
    topic: TopicName
    partition: Partition
    leader_epoch: PartitionLeaderEpoch = NO_EPOCH
    """``EPOCH_DURING_DELETE`` when the topic is deleted."""
    delete: bool = False
    """Delete the log too; otherwise only stop fetching."""


class StopReplicaRequest(msgspec.Struct, frozen=True, array_like=True):
    """Stop being a replica of these partitions, or stop fetching them."""

    controller_id: NodeId
    controller_epoch: Epoch
    broker_epoch: Zxid
    partitions: tuple[StopReplicaPartition, ...]


class StopReplicaResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: Code
    partitions: tuple[PartitionError, ...] = ()


class UpdateMetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    """What the metadata cache has to show: all live brokers, and the partitions that changed."""

    controller_id: NodeId
    controller_epoch: Epoch
    broker_epoch: Zxid
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_brokers: tuple[LiveBroker, ...]
    is_full: bool = False
    """``partitions`` are all there are: forget others (KIP-866)."""


class UpdateMetadataResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: Code


class ControlledShutdownRequest(msgspec.Struct, frozen=True, array_like=True):
    """From a broker that is about to stop, to the controller: move my leaders."""

    node_id: NodeId
    broker_epoch: Zxid


class ControlledShutdownResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: Code
    remaining_partitions: tuple[TopicPartition, ...] = ()
    """What the broker still leads; ask again, or stop all the same."""


ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest | ControlledShutdownRequest


def eligible_after(
    before: PartitionState, isr: tuple[BrokerId, ...], *, min_isr: int
) -> tuple[BrokerId, ...]:
    """The eligible replicas when ``isr`` takes the place of the ISR of ``before``."""
    if len(isr) >= min_isr:
        return ()
    return tuple(each for each in dict.fromkeys((*before.isr, *before.eligible)) if each not in isr)


def keep_eligible(before: PartitionState, after: PartitionState, *, min_isr: int) -> PartitionState:
    """``after`` with the eligible replicas that follow from the change of the ISR."""
    if after.leader_recovering:  # records were lost: no replica is sure to hold them
        return msgspec.structs.replace(after, eligible=())
    return msgspec.structs.replace(after, eligible=eligible_after(before, after.isr, min_isr=min_isr))
