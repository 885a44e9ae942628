"""WriteTxnMarkers (key 27): a transaction has ended, says its coordinator; write that into its partitions.

Behaviour (``KafkaApis.handleWriteTxnMarkersRequest``): each partition gets a control batch, with acks=-1, and
answers for itself when it is committed. A partition that is not here is UNKNOWN_TOPIC_OR_PARTITION; the log
refuses a producer's old epoch (INVALID_PRODUCER_EPOCH) and a coordinator's (TRANSACTION_COORDINATOR_FENCED).
In a partition of ``__consumer_offsets`` the group coordinator writes the marker, because the offsets of the
transaction become visible with it, or go; while it is loading, or elsewhere, that is
NOT_LEADER_OR_FOLLOWER, at which the transaction coordinator tries again. Answers are by producer id, also
where a request has two markers of one.

Kafka asks for the right ALTER or CLUSTER_ACTION on the cluster. There is no authorizer here, so, as in Kafka
without one, every client is served: ``kafka-transactions.sh abort`` is such a client.

Versions: 1 flexible; 2 the transaction version by which the epoch is checked (KIP-1228): from 2 on it has to
be above the producer's. It is not advertised, see ``api_versions``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from minikafka.coordinator.group.messages import EndTransaction
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import TRANSACTION_VERSION_UNKNOWN, AppendOrigin, AppendTerms
from minikafka.network.connection import PendingResponse
from minikafka.protocol.records.control_records import ControlRecordType, EndTransactionMarker, marker_batch
from minikafka.protocol.wire.codec import Body, field
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.replica.delayed_produce import when_committed
from minikafka.server.requests.accounting import encode_answer_in_steps
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import Offset, TopicPartition

Codes = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id and partition."""

_NOT_THE_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | PendingResponse]:
    wanted = []
    for marker in request.markers:
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                wanted.append((marker, TopicPartition(topic.name, partition)))
                yield
    codes: Codes = {marker.producer_id: {} for marker in request.markers}
    missing = len(wanted)
    pending: PendingResponse | None = None

    def settled(producer_id: int, at: TopicPartition, code: ErrorCode) -> None:
        nonlocal missing
        codes[producer_id][at] = code
        missing -= 1
        if not missing and pending is not None and pending.is_waiting:
            services.scheduler.answer(pending, _response(services, context, codes))

    for marker, at in wanted:
        _write(services, marker, at, partial(settled, marker.producer_id, at))
        yield
    if not missing:
        return (yield from _body(codes))
    pending = PendingResponse()
    return pending


def _response(services: Services, context: RequestContext, codes: Codes) -> Steps[tuple[bytes]]:
    body = yield from _body(codes)
    return ((yield from encode_answer_in_steps(services.request_metrics, context, body)),)


def _write(services: Services, marker: Any, at: TopicPartition, done: Callable[[ErrorCode], None]) -> None:
    """Call ``done`` when it is committed, or will not be; that may be now."""
    if at not in services.replica_manager.partitions:
        done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif at.topic == GROUP_METADATA_TOPIC:
        _end_in_group(services, marker, at, done)
    else:
        _append(services, marker, at, done)


def _append(services: Services, marker: Any, at: TopicPartition, done: Callable[[ErrorCode], None]) -> None:
    replicas = services.replica_manager
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    batch = marker_batch(
        EndTransactionMarker(kind, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=services.clock.now_ms(),
    )
    terms = AppendTerms(AppendOrigin.COORDINATOR, transaction_version=_transaction_version(marker))
    try:
        info = replicas.append(at, batch, required_acks=-1, terms=terms)
    except KafkaError as error:
        done(error.code)
        return
    when_committed(
        replicas,
        at,
        Offset(info.last_offset + 1),
        lambda error: done(ErrorCode.NONE if error is None else error.code),
        timeout_ms=services.config.request_timeout_ms,
    )


def _end_in_group(
    services: Services, marker: Any, at: TopicPartition, done: Callable[[ErrorCode], None]
) -> None:
    end = EndTransaction(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=marker.transaction_result,
        transaction_version=_transaction_version(marker),
        timeout_ms=services.config.request_timeout_ms,
    )

    def answered(result: KafkaError | None) -> None:
        code = ErrorCode.NONE if result is None else result.code
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_THE_COORDINATOR else code)

    services.groups.ask_partition(
        at.partition,
        lambda shard, ticket, now_ms: shard.end_transaction(end, ticket, now_ms),
        RequestTicket(answered),
    )


def _transaction_version(marker: Any) -> int:
    version: int = field(marker, "transaction_version", TRANSACTION_VERSION_UNKNOWN)
    return version


def _body(codes: Codes) -> Steps[Body]:
    markers = []
    for producer_id, partitions in codes.items():
        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for at, code in partitions.items():
            topics[at.topic].append({"partition_index": at.partition, "error_code": code})
            yield
        markers.append(
            {
                "producer_id": producer_id,
                "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
            }
        )
    return {"markers": markers}
