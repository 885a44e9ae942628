"""DescribeCluster, UnregisterBroker, DescribeQuorum and UpdateFeatures (keys 60, 64, 55, 57)."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.replication.partition_replicas import NEVER_MS, ReplicaProgress
from minikafka.security.acl import AclOperation
from minikafka.server.apis.metadata import describe_brokers
from minikafka.server.apis.shared.authorization import authorized_operations_on_cluster, denied_on_cluster
from minikafka.server.cluster.coordination_store import mapped_store_failures
from minikafka.server.cluster.features import LevelUpdate, UpgradeType
from minikafka.server.cluster.registration import known_brokers, unregister_broker
from minikafka.server.cluster.topic_validation import CLUSTER_METADATA_TOPIC
from minikafka.server.replica.partition import Partition
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_LEADER, NO_OFFSET, NO_TIMESTAMP, BrokerId, TopicPartition

ENDPOINT_TYPE_BROKER = 1
ENDPOINT_TYPE_CONTROLLER = 2

CONTROLLER_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)


def handle_describe_cluster(
    services: Services, context: RequestContext, request: Any
) -> Body | Coroutine[Any, Any, Body]:
    """DescribeCluster (key 60): the cluster's id, controller and brokers (KIP-700).

    Behaviour (``AuthHelper.computeDescribeClusterResponse``): addresses of the listener that the question
    came on. A question that is meant for a controller's own listener (KIP-919) is refused: brokers are all
    there is here. Everybody may ask; the operations of one that may not describe the cluster are none.

    Fenced brokers are those that are gone and were not unregistered: a broker here is never registered and
    not alive, so it is their last registration that is shown. A fenced broker without the listener is left
    out, as a live one is.

    Versions: 1 endpoint type; 2 fenced brokers may be asked for (KIP-1073).
    """
    endpoint_type = field(request, "endpoint_type", ENDPOINT_TYPE_BROKER)
    if endpoint_type == ENDPOINT_TYPE_CONTROLLER:
        return _refuse(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != ENDPOINT_TYPE_BROKER:
        return _refuse(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")
    if field(request, "include_fenced_brokers", False):
        return _with_fenced_brokers(services, context, request)
    return _describe_cluster(services, context, request, fenced=[])


async def _with_fenced_brokers(services: Services, context: RequestContext, request: Any) -> Body:
    try:
        with mapped_store_failures("DescribeCluster"):
            known = await known_brokers(services.store)
    except KafkaError as error:
        return _refuse(error.code, str(error))
    fenced = [
        {
            "broker_id": node_id,
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": registration.rack,
            "is_fenced": True,
        }
        for node_id, registration in known.items()
        for endpoint in registration.endpoints
        if endpoint.listener_name == context.connection.listener_name
        and not services.metadata.is_alive(node_id)
    ]
    return _describe_cluster(services, context, request, fenced=fenced)


def _describe_cluster(
    services: Services, context: RequestContext, request: Any, *, fenced: list[dict[str, Any]]
) -> Body:
    metadata = services.metadata
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": ENDPOINT_TYPE_BROKER,
        "cluster_id": services.cluster_id,
        "controller_id": metadata.controller_id,
        "brokers": [
            {
                "broker_id": broker["node_id"],
                "host": broker["host"],
                "port": broker["port"],
                "rack": broker["rack"],
                "is_fenced": False,
            }
            for broker in describe_brokers(metadata, context.connection.listener_name)
        ]
        + fenced,
        "cluster_authorized_operations": authorized_operations_on_cluster(
            services, context, asked=request.include_cluster_authorized_operations
        ),
    }


def _refuse(code: ErrorCode, message: str) -> Body:
    return {
        "throttle_time": 0,
        "error_code": code,
        "error_message": message,
        "cluster_id": "",
        "brokers": [],
    }


async def handle_unregister_broker(services: Services, context: RequestContext, request: Any) -> Body:
    """UnregisterBroker (key 64): a broker that is gone for good is no longer named among the fenced ones.

    Behaviour (``ClusterControlManager.unregisterBroker``): BROKER_ID_NOT_REGISTERED for a broker that never
    was there, or is unregistered already. It needs ALTER on the cluster. Replicas that the broker still has
    stay its own: they are moved by a reassignment, before or after.

    Where it differs from Kafka: a live broker is INVALID_REQUEST. Kafka unregisters it, and it does not find
    back into the cluster until it is started again.

    Versions: 0.
    """
    error = denied_on_cluster(services, context, AclOperation.ALTER)
    if error is None:
        error = await _unregister(services, BrokerId(request.broker_id))
    return {"throttle_time": 0, **(NO_ERROR if error is None else error_fields(error))}


async def _unregister(services: Services, node_id: BrokerId) -> KafkaError | None:
    if services.metadata.is_alive(node_id):
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker ID {node_id} is alive: stop it before it is unregistered"
        )
    try:
        with mapped_store_failures("UnregisterBroker"):
            was_known = await unregister_broker(services.store, node_id)
    except KafkaError as error:
        return error
    if not was_known:
        message = f"Broker ID {node_id} is not currently registered"
        return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    return None


def handle_describe_quorum(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """DescribeQuorum (key 55): how far each replica of a partition is, as its leader sees it (KIP-595,
    KIP-836).

    Behaviour (``KafkaRaftClient.handleDescribeQuorumRequest``, ``LeaderState.describeQuorum``): the leader's
    epoch, its high watermark, and for each replica the log end offset, the last fetch and when it was last
    caught up; -1 is "not known", and the leader is caught up now. It needs DESCRIBE on the cluster.

    Where it differs from Kafka, which answers this for its KRaft log only:
    - every partition can be asked about, at its leader: ``current_voters`` are its assigned replicas. This is
      how tools learn why a replica is out of the ISR. NOT_LEADER_OR_FOLLOWER comes with the leader that this
      broker knows of;
    - ``__cluster_metadata`` is no log here. Its partition 0 stands for the controller: its leader is the
      controller, its epoch the controller's, and its voters are the live brokers. They all read one store, so
      none of them lags: the offset of each is how many changes of topics this broker has heard of. So
      ``kafka-metadata-quorum describe`` shows who the controller is.

    Versions: 1 adds the times of followers (KIP-836); 2 messages of errors and the endpoints of nodes
    (KIP-853).
    """
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


async def handle_update_features(services: Services, context: RequestContext, request: Any) -> Body:
    """UpdateFeatures (key 57): change the levels of the cluster's features (KIP-584).

    Behaviour (``FeatureControlManager.updateFeatures``): the features of a request change together or not at
    all, and what is wrong with the first of them is the answer to all: INVALID_UPDATE_VERSION for a level
    that a live broker does not support, for a feature that is not known, for a lower level without a
    downgrade and for a higher one with one. A level of 0 switches a feature off. Safe and unsafe
    downgrades are alike: no level here forgets what it had. Any broker may be asked; it needs ALTER on the
    cluster.

    Versions: 0 allow_downgrade; 1 upgrade_type and validate_only; 2 no results by feature.
    """
    error = denied_on_cluster(services, context, AclOperation.ALTER)
    if error is not None:
        return {"throttle_time": 0, **error_fields(error), "results": []}
    updates = [
        LevelUpdate(update.feature, update.max_version_level, _upgrade_type(context, update))
        for update in request.feature_updates
    ]
    try:
        if updates:
            validate_only = field(request, "validate_only", False)
            await services.feature_store.update(updates, validate_only=validate_only)
    except KafkaError as failure:
        why = (
            f"The update failed for all features since the following feature had an error: {failure.message}"
        )
        return {"throttle_time": 0, **error_fields(KafkaError(failure.code, why)), "results": []}
    results = [{"feature": update.name, **NO_ERROR} for update in updates]
    return {"throttle_time": 0, **NO_ERROR, "results": results}


def _upgrade_type(context: RequestContext, update: Any) -> int:
    """Version 0 knows upgrades, and downgrades that are safe."""
    if context.api_version > 0:
        return int(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
