"""``waiting``: which produces and fetches wait for one partition, since when, and until when at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.purgatory.purgatory import DelayedOperation
from minikafka.server.apis.shared.diagnostics_arguments import partition_of
from minikafka.server.replica.delayed_operations import DelayedFetch, DelayedProduce
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition

LISTED_MAX: Final = 100
"""Of each kind; a person reads no more, and the others wait for the same."""


def waiting(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST, and that the broker has no replica of it that is online."""
    hosted = services.replica_manager.hosted(partition_of(arguments))
    yield
    parked, at = services.replica_manager.parked, hosted.topic_partition
    now_ms = services.clock.monotonic_ms()
    return {
        "broker": int(services.node_id),
        "produce": [_produce(each, at, now_ms) for each in parked.produce.waiting_for(at, LISTED_MAX)],
        "fetch": [_fetch(each, at, now_ms) for each in parked.fetch.waiting_for(at, LISTED_MAX)],
    }


def _produce(operation: DelayedOperation, at: TopicPartition, now_ms: int) -> dict[str, Any]:
    """Also those of coordinators and of markers, which wait in the same way."""
    assert isinstance(operation, DelayedProduce)
    return _times(operation, now_ms) | {"required_offset": operation.required_offset(at)}


def _fetch(operation: DelayedOperation, at: TopicPartition, now_ms: int) -> dict[str, Any]:
    assert isinstance(operation, DelayedFetch)
    params = operation.params
    return _times(operation, now_ms) | {
        "replica": int(params.replica_id),
        "fetch_offset": operation.fetch_offset(at),
        "min_bytes": params.min_bytes,
        "max_wait_ms": params.max_wait_ms,
        "read_committed": params.isolation is FetchIsolation.TXN_COMMITTED,
    }


def _times(operation: DelayedOperation, now_ms: int) -> dict[str, Any]:
    left_ms = max(operation.expiration_ms - now_ms, 0)
    return {"waited_ms": max(operation.delay_ms - left_ms, 0), "left_ms": left_ms}
