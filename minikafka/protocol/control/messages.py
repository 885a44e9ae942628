"""How a controller and its brokers talk: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown.

Kafka: ``LeaderAndIsrRequest`` and its siblings as of 3.9, the last release that has them. Field names are
Kafka's.

Where it differs: the bodies are MessagePack, because kio has no schema of what Kafka 4 retired; there is one
version, because all brokers of a cluster run one minikafka; topic ids stand beside topic names everywhere.
They never appear in ApiVersions.

Each request carries the controller's epoch, by which a broker knows a deposed controller
(STALE_CONTROLLER_EPOCH), and the epoch of the broker it is meant for, by which a request to its earlier
incarnation is known (STALE_BROKER_EPOCH).
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import msgspec

from minikafka.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition

LEADER_DURING_DELETE = BrokerId(-2)
"""``LeaderAndIsr.LeaderDuringDelete``: in UpdateMetadata, the partition is being deleted; forget it."""

EPOCH_DURING_DELETE = LeaderEpoch(-2)
"""``LeaderAndIsr.EpochDuringDelete``: in StopReplica, whatever epoch the broker knows."""


class ListenerEndpoint(NamedTuple):
    """One listener of a broker, as advertised."""

    listener_name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class LiveBroker(msgspec.Struct, frozen=True, array_like=True):
    """A registered broker. ``epoch`` is the czxid of its registration (KIP-380)."""

    node_id: BrokerId
    epoch: int
    endpoints: tuple[ListenerEndpoint, ...]
    rack: str | None = None
    clean_start: bool = True
    """False: its last stop was not clean, so its logs may have lost their ends (KIP-966)."""
    http: tuple[str, int] | None = None
    """Host and port of its pages; None: it has none."""

    def endpoint(self, listener_name: str) -> ListenerEndpoint | None:
        """None when the broker does not have the listener."""
        return next((each for each in self.endpoints if each.listener_name == listener_name), None)


class LeaderAndIsrPartition(msgspec.Struct, frozen=True, array_like=True):
    """One partition's leadership: in LeaderAndIsr an order, in UpdateMetadata news."""

    topic: str
    topic_id: UUID
    partition: int
    controller_epoch: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    """The version of the state node: what the leader's next conditional write of the ISR expects."""
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_new: bool = False
    """LeaderAndIsr: the replica never had a log, so none can be on a failed disk."""
    leader_recovering: bool = False
    offline_replicas: tuple[BrokerId, ...] = ()
    """UpdateMetadata: replicas on failed log directories."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class PartitionError(NamedTuple):
    """How one partition of a request fared; 0 is no error."""

    topic: str
    partition: int
    error_code: int


class LeaderAndIsrRequest(msgspec.Struct, frozen=True, array_like=True):
    """Lead or follow these partitions."""

    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveBroker, ...]
    """Where the leaders in ``partitions`` are reached."""
    is_full: bool = False
    """All partitions of this broker: logs of others are strays (KIP-380)."""


class LeaderAndIsrResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: int
    partitions: tuple[PartitionError, ...] = ()


class StopReplicaPartition(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    partition: int
    leader_epoch: LeaderEpoch = NO_EPOCH
    """``EPOCH_DURING_DELETE`` when the topic is deleted."""
    delete: bool = False
    """Delete the log too; otherwise only stop fetching."""


class StopReplicaRequest(msgspec.Struct, frozen=True, array_like=True):
    """Stop being a replica of these partitions, or stop fetching them."""

    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopReplicaPartition, ...]


class StopReplicaResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: int
    partitions: tuple[PartitionError, ...] = ()


class UpdateMetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    """What the metadata cache has to show: all live brokers, and the partitions that changed."""

    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_brokers: tuple[LiveBroker, ...]
    is_full: bool = False
    """``partitions`` are all there are: forget others (KIP-866)."""


class UpdateMetadataResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: int


class ControlledShutdownRequest(msgspec.Struct, frozen=True, array_like=True):
    """From a broker that is about to stop, to the controller: move my leaders."""

    node_id: BrokerId
    broker_epoch: int


class ControlledShutdownResponse(msgspec.Struct, frozen=True, array_like=True):
    error_code: int
    remaining_partitions: tuple[TopicPartition, ...] = ()
    """What the broker still leads; ask again, or stop all the same."""


ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest | ControlledShutdownRequest
ControlResponse = (
    LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse | ControlledShutdownResponse
)
