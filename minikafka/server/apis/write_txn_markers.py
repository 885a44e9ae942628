"""WriteTxnMarkers (key 27): a transaction has ended, says its coordinator; write that into its partitions.

Behaviour (``KafkaApis.handleWriteTxnMarkersRequest``): each partition gets a control batch, with acks=-1, and
answers for itself when it is committed. A partition that is not here is UNKNOWN_TOPIC_OR_PARTITION; the log
refuses a producer's old epoch (INVALID_PRODUCER_EPOCH) and a coordinator's (TRANSACTION_COORDINATOR_FENCED).
In a partition of ``__consumer_offsets`` the group coordinator writes the marker, because the offsets of the
transaction become visible with it, or go; while it is loading, or elsewhere, that is
NOT_LEADER_OR_FOLLOWER, at which the transaction coordinator tries again. Answers are by producer id, also
where a request has two markers of one.

It needs ALTER or CLUSTER_ACTION on the cluster, the latter for brokers, the former for
``kafka-transactions.sh abort`` (KAFKA-12369); without them all partitions are CLUSTER_AUTHORIZATION_FAILED.

Versions: 1 flexible; 2 the transaction version by which the epoch is checked (KIP-1228): from 2 on it has to
be above the producer's. It is not advertised, see ``api_versions``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from minikafka.coordinator.group.messages import EndTransaction
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import TRANSACTION_VERSION_UNKNOWN, AppendOrigin, AppendTerms
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import PendingResponse
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker, marker_batch
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster, is_authorized_on_cluster
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.coordinator.transaction_markers import CoordinatorMarkers, WrittenMarkers
from minikafka.server.replica.delayed_operations import when_committed
from minikafka.server.requests import RequestContext, encode_answer
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import Buffer, Offset, TopicPartition

_NOT_THE_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Marker(NamedTuple):
    """One transaction's, for a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    at: TopicPartition


Done = Callable[[WrittenMarkers], None]
"""Told what became of each marker, by producer id and partition."""


def handle_write_txn_markers(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | PendingResponse]:
    markers = []
    for each in request.markers:
        version = field(each, "transaction_version", TRANSACTION_VERSION_UNKNOWN)
        of_each = partial(
            Marker,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_result,
            version,
        )
        for topic in each.topics:
            for partition in topic.partition_indexes:
                markers.append(of_each(TopicPartition(topic.name, partition)))
                yield
    producer_ids = dict.fromkeys(each.producer_id for each in request.markers)
    if not is_authorized_on_cluster(services, context, AclOperation.ALTER, logs_denied=False):
        error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
        if error is not None:
            refused = {(each.producer_id, each.at): error.code for each in markers}
            return (yield from _body(producer_ids, refused))
    pending = PendingResponse()

    def done(written: WrittenMarkers) -> None:
        if pending.is_waiting:
            services.scheduler.answer(pending, _response(services, context, producer_ids, written))

    yield from _write_all(services, markers, done)
    return pending


async def write_markers(services: Services, markers: CoordinatorMarkers) -> WrittenMarkers:
    """Write those of this broker's own transaction coordinator, as those of a request."""
    written: asyncio.Future[WrittenMarkers] = asyncio.get_running_loop().create_future()

    def done(outcome: WrittenMarkers) -> None:
        if not written.done():
            written.set_result(outcome)

    to_write = [
        Marker(
            each.producer_id,
            each.producer_epoch,
            coordinator_epoch,
            each.is_commit,
            each.transaction_version,
            partition,
        )
        for coordinator_epoch, each in markers
        for partition in each.partitions
    ]
    await services.scheduler.finished(_write_all(services, to_write, done))
    return await written


def _write_all(services: Services, markers: Sequence[Marker], done: Done) -> Steps[None]:
    """Call ``done`` when each is committed, or will not be; that may be now."""
    written: dict[tuple[int, TopicPartition], ErrorCode] = {}
    missing = len(markers)

    def settled(marker: Marker, code: ErrorCode) -> None:
        nonlocal missing
        written[marker.producer_id, marker.at] = code
        missing -= 1
        if not missing:
            done(written)

    if not markers:
        done(written)
    for marker in markers:
        _write(services, marker, partial(settled, marker))
        yield


def _response(
    services: Services, context: RequestContext, producer_ids: Iterable[int], written: WrittenMarkers
) -> Steps[list[Buffer]]:
    body = yield from _body(producer_ids, written)
    return (yield from encode_answer(services.request_metrics, context, body))


def _write(services: Services, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
    """Call ``done`` when it is committed, or will not be; that may be now."""
    if marker.at not in services.replica_manager.partitions:
        done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif marker.at.topic == GROUP_METADATA_TOPIC:
        _end_in_group(services, marker, done)
    else:
        _append(services, marker, done)


def _append(services: Services, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
    replicas = services.replica_manager
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    batch = marker_batch(
        EndTransactionMarker(kind, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=services.clock.now_ms(),
    )
    terms = AppendTerms(AppendOrigin.COORDINATOR, transaction_version=marker.transaction_version)
    try:
        info = replicas.append(marker.at, batch, required_acks=-1, terms=terms)
    except KafkaError as error:
        done(error.code)
        return
    when_committed(
        replicas,
        marker.at,
        Offset(info.last_offset + 1),
        lambda error: done(ErrorCode.NONE if error is None else error.code),
        timeout_ms=services.config.request_timeout_ms,
    )


def _end_in_group(services: Services, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
    end = EndTransaction(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=marker.is_commit,
        transaction_version=marker.transaction_version,
        timeout_ms=services.config.request_timeout_ms,
    )

    def answered(result: KafkaError | None) -> None:
        code = ErrorCode.NONE if result is None else result.code
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_THE_COORDINATOR else code)

    services.groups.ask_partition(
        marker.at.partition,
        lambda shard, ticket, now_ms: shard.end_transaction(end, ticket, now_ms),
        RequestTicket(answered),
    )


def _body(producer_ids: Iterable[int], written: WrittenMarkers) -> Steps[Body]:
    found: dict[int, dict[str, list[dict[str, Any]]]] = {each: defaultdict(list) for each in producer_ids}
    for (producer_id, at), code in written.items():
        found[producer_id][at.topic].append({"partition_index": at.partition, "error_code": code})
        yield
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            }
            for producer_id, topics in found.items()
        ]
    }
