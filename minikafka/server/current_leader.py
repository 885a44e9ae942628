"""Telling a client that came to the wrong broker where the leader is (KIP-951), so that it need not ask.

Kafka: ``KafkaApis.getCurrentLeader``.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.errors import ErrorCode
from minikafka.protocol.api_versions import ApiKey
from minikafka.protocol.codec import RequestHeader
from minikafka.protocol.fast_paths import (
    CurrentLeader,
    NodeEndpoint,
    ProducePartitionResponse,
    produce_response,
)
from minikafka.server.services import Services
from minikafka.types import BrokerId, TopicPartition

_IN_PRODUCE_SINCE = 10


def current_leader(services: Services, topic_partition: TopicPartition) -> CurrentLeader | None:
    """Who leads, as far as this broker knows: from its own replica, else from the metadata."""
    partition = services.replica_manager.partitions.get(topic_partition)
    if partition is not None:
        return CurrentLeader(partition.leader_id, partition.leader_epoch)
    known = services.metadata.partition(topic_partition)
    return None if known is None else CurrentLeader(known.leader, known.leader_epoch)


def leader_endpoints(
    services: Services, leaders: Iterable[CurrentLeader | None], *, listener_name: str
) -> list[NodeEndpoint]:
    """Where ``leaders`` are reached on the listener that the client uses, each once; without those that are
    not."""
    found: dict[int, NodeEndpoint] = {}
    for leader in leaders:
        broker = None if leader is None else services.metadata.broker(BrokerId(leader.leader_id))
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is not None and endpoint is not None:
            found[broker.node_id] = NodeEndpoint(broker.node_id, *endpoint, broker.rack)
    return list(found.values())


def answer_produce(
    services: Services,
    header: RequestHeader,
    answers: list[ProducePartitionResponse],
    *,
    listener_name: str,
    throttle_time_ms: int = 0,
) -> bytes:
    """The whole response to a Produce request, with the leaders of partitions that are led elsewhere. Its
    errors are counted."""
    for answer in answers:
        if answer.error_code:
            services.request_metrics.of(ApiKey.PRODUCE).note_error(answer.error_code)
    if header.api_version < _IN_PRODUCE_SINCE or not any(
        answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for answer in answers
    ):
        return produce_response(header, answers, throttle_time_ms=throttle_time_ms)
    answers = [
        answer._replace(current_leader=current_leader(services, TopicPartition(answer.topic, answer.index)))
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        else answer
        for answer in answers
    ]
    endpoints = leader_endpoints(
        services, (answer.current_leader for answer in answers), listener_name=listener_name
    )
    return produce_response(header, answers, throttle_time_ms=throttle_time_ms, node_endpoints=endpoints)
