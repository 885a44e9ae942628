"""Telling a client that came to the wrong broker where the leader is (KIP-951), so that it need not ask.

Kafka: ``KafkaApis.getCurrentLeader``. Where it differs: a producer is not told of each of many leaders that
have moved (``LEADER_HINT_SUPPRESS_MS``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from minikafka.errors import ErrorCode
from minikafka.metrics.broker_stats import RefusedKind
from minikafka.network.connection import Connection, LeaderHints
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import RequestHeader
from minikafka.protocol.wire.fast_paths import (
    CurrentLeader,
    NodeEndpoint,
    ProducePartitionResponse,
    produce_response,
)
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps
from minikafka.types import BrokerId, TopicPartition

_IN_PRODUCE_SINCE = 10

LEADER_HINT_SUPPRESS_MS = 1_000
"""For so long a client that was told of some partitions of a topic gets no hint for its other partitions.

A client that gets a hint does not ask for metadata: where many leaders move together it would be refused for
each of them, and librdkafka pauses for 100 ms every time. A client without a hint asks for the topic's
metadata, and knows all of the leaders a few milliseconds later.
"""


def current_leader(services: Services, topic_partition: TopicPartition) -> CurrentLeader | None:
    """The leader, as far as this broker knows: from its own replica, else from the metadata."""
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
    peer: Connection,
    header: RequestHeader,
    answers: list[ProducePartitionResponse],
    *,
    throttle_time_ms: int = 0,
) -> Steps[bytes]:
    """In steps: the whole response to a Produce request, with the leaders of partitions that are led
    elsewhere. Its errors are counted."""
    moved: dict[str, set[int]] = {}
    for done, answer in enumerate(answers, start=1):
        if done % ELEMENTS_A_STEP == 0:
            yield
        if answer.error_code:
            services.request_metrics.of(ApiKey.PRODUCE).note_error(answer.error_code)
            services.produce_refusals.note(
                RefusedKind.PRODUCE,
                f"{answer.topic}-{answer.index}",
                ErrorCode(answer.error_code).name,
                answer.error_message,
                user=peer.principal.name,
                client_id=header.client_id,
                host=peer.peer_host,
                now_ms=services.clock.now_ms(),
            )
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                moved.setdefault(answer.topic, set()).add(answer.index)
    if not moved or header.api_version < _IN_PRODUCE_SINCE:
        return (yield from produce_response(header, answers, throttle_time_ms=throttle_time_ms))
    told = _leaders_to_hint(peer, moved, now_ms=services.clock.monotonic_ms())
    answers = [
        answer._replace(current_leader=current_leader(services, TopicPartition(answer.topic, answer.index)))
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and answer.index in told[answer.topic]
        else answer
        for answer in answers
    ]
    endpoints = leader_endpoints(
        services, (answer.current_leader for answer in answers), listener_name=peer.listener_name
    )
    return (
        yield from produce_response(
            header, answers, throttle_time_ms=throttle_time_ms, node_endpoints=endpoints
        )
    )


def _leaders_to_hint(peer: Connection, moved: Mapping[str, Set[int]], *, now_ms: int) -> dict[str, Set[int]]:
    """The partitions for which ``peer`` gets a hint, of each topic of ``moved``; they are remembered."""
    since_ms = now_ms - LEADER_HINT_SUPPRESS_MS
    recently = {topic: hints for topic, hints in peer.leader_hints.items() if hints.at_ms > since_ms}
    new = {topic: LeaderHints(now_ms, frozenset(indexes)) for topic, indexes in moved.items()}
    peer.leader_hints = new | recently
    return {topic: peer.leader_hints[topic].partitions for topic in moved}
