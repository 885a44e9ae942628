"""ElectLeaders (key 43): elect preferred leaders, or any replica where there is no leader (KIP-183, KIP-460).

Behaviour (``KafkaApis.handleElectLeaders``, ``DelayedElectLeader``): only the controller's broker holds
elections, all others answer NOT_CONTROLLER for the whole and, because version 0 has no place for that, for
each partition; so is CLUSTER_AUTHORIZATION_FAILED answered to one without ALTER on the cluster. Each
partition has its own outcome; of all partitions (a null list) only those for which there was something to do.
The answer waits until this broker has heard of the new leaders, or for the request's timeout.

Versions: 0 knows preferred elections only; 1 the election type and an error for the whole; 2 flexible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.types import NO_LEADER, ElectionType, TopicPartition


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    asked = None
    if request.topic_partitions is not None:
        asked = tuple(
            dict.fromkeys(
                TopicPartition(each.topic, partition)
                for each in request.topic_partitions
                for partition in each.partitions
            )
        )
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
        election_type = _election_type(field(request, "election_type", ElectionType.PREFERRED))
        results = await services.controller.elect_leaders(asked, election_type)
    except KafkaError as error:
        return _body(dict.fromkeys(asked or (), error), error_code=error.code)
    elected = [each for each, error in results.items() if error is None]
    unheard = await _unheard(services.metadata, elected, election_type, timeout_ms=request.timeout)
    return _body(results | unheard, error_code=ErrorCode.NONE)


def _election_type(number: int) -> ElectionType:
    try:
        return ElectionType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {number}.") from None


async def _unheard(
    metadata: MetadataCache,
    elected: Iterable[TopicPartition],
    election_type: ElectionType,
    *,
    timeout_ms: int,
) -> dict[TopicPartition, KafkaError]:
    """Those whose new leaders this broker has not heard of in time."""

    def is_heard(topic_partition: TopicPartition) -> bool:
        partition = metadata.partition(topic_partition)
        if partition is None:
            return True  # deleted meanwhile
        if election_type is ElectionType.PREFERRED:
            return partition.leader in partition.replicas[:1]
        return partition.leader != NO_LEADER

    def waiting() -> list[TopicPartition]:
        return [each for each in elected if not is_heard(each)]

    await metadata.wait_for(lambda: not waiting(), timeout_ms=max(timeout_ms, 0))
    return {
        each: KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"The leader of {each} was not heard of within {timeout_ms} ms."
        )
        for each in waiting()
    }


def _body(results: Mapping[TopicPartition, KafkaError | None], *, error_code: ErrorCode) -> Body:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), error in sorted(results.items(), key=lambda item: item[0]):
        outcome = NO_ERROR if error is None else error_fields(error)
        topics[topic].append({"partition_id": partition} | outcome)
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
