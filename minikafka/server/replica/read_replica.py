"""Sending a consumer to a replica in its own rack (KIP-392).

Kafka: ``ReplicaManager.findPreferredReadReplica``. The leader alone decides. It names only members of the ISR
that hold the wanted record: one that lags would be chosen again each time the consumer asks, and keep it
behind (KAFKA-14379).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minikafka.replication.replica_selector import ReplicaView
from minikafka.server.replica.partition import Partition
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.types import Offset

NO_REPLICA: Final = -1
"""Read here."""


class ClientMetadata(NamedTuple):
    """What a consumer says that can be sent to another replica (Fetch since version 11)."""

    rack: str
    """Empty when it did not say."""
    listener_name: str


def preferred_read_replica(
    replicas: ReplicaManager, partition: Partition, fetch_offset: Offset, client: ClientMetadata
) -> int:
    """The replica that ``client`` should rather fetch from; ``NO_REPLICA`` when it is right here."""
    select = replicas.replica_selector
    if select is None or not partition.is_leader:
        return NO_REPLICA
    now_ms = replicas.clock.monotonic_ms()
    metadata = replicas.metadata
    followers = [
        ReplicaView(
            follower.broker_id, broker.rack, follower.log_end_offset, now_ms - follower.last_caught_up_ms
        )
        for follower in partition.replication.followers.values()
        if follower.broker_id in partition.isr
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and (broker := metadata.broker(follower.broker_id)) is not None
        and broker.endpoint(client.listener_name) is not None
    ]
    own = metadata.broker(partition.node_id)
    leader = ReplicaView(
        partition.node_id, None if own is None else own.rack, partition.log.log_end_offset, 0
    )
    chosen = select(client.rack, leader, followers)
    return NO_REPLICA if chosen is leader else chosen.broker_id
