"""DescribeQuorum (key 55): how far each replica of a partition is, as its leader sees it (KIP-595, KIP-836).

Behaviour (``KafkaRaftClient.handleDescribeQuorumRequest``, ``LeaderState.describeQuorum``): the leader's
epoch, its high watermark, and for each replica the log end offset, the last fetch and when it was last caught
up; -1 is "not known", and the leader is caught up now. It needs DESCRIBE on the cluster.

Where it differs from Kafka, which answers this for its KRaft log only:
- every partition can be asked about, at its leader: ``current_voters`` are its assigned replicas. This is how
  tools learn why a replica is out of the ISR. NOT_LEADER_OR_FOLLOWER comes with the leader that this broker
  knows of;
- ``__cluster_metadata`` is no log here. Its partition 0 stands for the controller: its leader is the
  controller, its epoch the controller's, and its voters are the live brokers. They all read one store, so
  none of them lags: the offset of each is how many changes of topics this broker has heard of. So
  ``kafka-metadata-quorum describe`` shows who the controller is.

Versions: 1 adds the times of followers (KIP-836); 2 messages of errors and the endpoints of nodes (KIP-853).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.replication.partition_replicas import NEVER_MS, ReplicaProgress
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.cluster.topic_validation import CLUSTER_METADATA_TOPIC
from minikafka.server.replica.partition import Partition
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_LEADER, NO_OFFSET, NO_TIMESTAMP, BrokerId, TopicPartition

CONTROLLER_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    error = denied_on_cluster(services, context, AclOperation.DESCRIBE)
    if error is not None:
        return {**error_fields(error), "topics": [], "nodes": []}
    topics = []
    for topic in request.topics:
        partitions = yield from each(
            partial(_partition, services, topic.topic_name),
            (partition.partition_index for partition in topic.partitions),
        )
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
        yield
    return {
        **NO_ERROR,
        "topics": topics,
        "nodes": [
            {
                "node_id": broker.node_id,
                "listeners": [
                    {"name": name, "host": host, "port": port}
                    for name, (host, port) in broker.endpoints.items()
                ],
            }
            for broker in services.metadata.brokers()
        ],
    }


def _partition(services: Services, topic: str, index: int) -> dict[str, Any]:
    topic_partition = TopicPartition(topic, index)
    if topic_partition == CONTROLLER_PARTITION:
        return _controller(services)
    try:
        partition = services.replica_manager.partition(topic_partition)
    except KafkaError as error:
        known = services.metadata.partition(topic_partition)
        return {
            "partition_index": topic_partition.partition,
            **error_fields(error),
            "leader_id": NO_LEADER if known is None else known.leader,
            "leader_epoch": NO_EPOCH if known is None else known.leader_epoch,
            "high_watermark": NO_OFFSET,
            "current_voters": [],
            "observers": [],
        }
    return {
        "partition_index": topic_partition.partition,
        **NO_ERROR,
        "leader_id": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "high_watermark": partition.log.high_watermark,
        "current_voters": [_replica(services, partition, replica) for replica in partition.replicas],
        "observers": [],
    }


def _replica(services: Services, partition: Partition, replica: BrokerId) -> dict[str, Any]:
    now_ms = services.clock.now_ms()
    if replica == services.node_id:
        return _state(replica, partition.log.log_end_offset, last_fetch_ms=now_ms, last_caught_up_ms=now_ms)
    follower: ReplicaProgress = partition.replication.followers[replica]
    ahead_ms = now_ms - services.clock.monotonic_ms()

    def wall_clock_ms(monotonic_ms: int) -> int:
        return NO_TIMESTAMP if monotonic_ms == NEVER_MS else monotonic_ms + ahead_ms

    return _state(
        replica,
        follower.log_end_offset,
        last_fetch_ms=wall_clock_ms(follower.last_fetch_ms),
        last_caught_up_ms=wall_clock_ms(follower.last_caught_up_ms),
    )


def _controller(services: Services) -> dict[str, Any]:
    controller_id = services.metadata.controller_id
    offset, now_ms = services.metadata.topics_version, services.clock.now_ms()
    return {
        "partition_index": CONTROLLER_PARTITION.partition,
        **NO_ERROR,
        "leader_id": controller_id,
        "leader_epoch": services.replica_manager.controller_epoch,
        "high_watermark": offset,
        "current_voters": [
            _state(broker.node_id, offset, last_fetch_ms=now_ms, last_caught_up_ms=now_ms)
            for broker in services.metadata.brokers()
        ],
        "observers": [],
    }


def _state(
    replica: BrokerId, log_end_offset: int, *, last_fetch_ms: int, last_caught_up_ms: int
) -> dict[str, Any]:
    return {
        "replica_id": replica,
        "replica_directory_id": None,
        "log_end_offset": log_end_offset,
        "last_fetch_timestamp": last_fetch_ms,
        "last_caught_up_timestamp": last_caught_up_ms,
    }
