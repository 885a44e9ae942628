"""Transactions: what clients and operators ask (keys 22, 24 to 26, 61, 65, 66), and WriteTxnMarkers (key 27).

By WriteTxnMarkers a coordinator says that a transaction has ended, which is to be written into its
partitions. Behaviour (``KafkaApis.handleWriteTxnMarkersRequest``): each partition gets a control batch, with
acks=-1, and answers for itself when it is committed. A partition that is not here is
UNKNOWN_TOPIC_OR_PARTITION; the log refuses a producer's old epoch (INVALID_PRODUCER_EPOCH) and a
coordinator's (TRANSACTION_COORDINATOR_FENCED). In a partition of ``__consumer_offsets`` the group coordinator
writes the marker, because the offsets of the transaction become visible with it, or go; while it is loading,
or elsewhere, that is NOT_LEADER_OR_FOLLOWER, at which the transaction coordinator tries again. Answers are by
producer id, also where a request has two markers of one.

It needs ALTER or CLUSTER_ACTION on the cluster, the latter for brokers, the former for
``kafka-transactions.sh abort`` (KAFKA-12369); without them all partitions are CLUSTER_AUTHORIZATION_FAILED.
Versions: 1 flexible; 2 the transaction version by which the epoch is checked (KIP-1228): from 2 on it has to
be above the producer's. It is not advertised, see ``api_versions``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from minikafka.coordinator.group.messages import EndTransaction
from minikafka.coordinator.transaction.messages import (
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribedTransaction,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    ListTransactions,
)
from minikafka.coordinator.transaction.shard import unknown_states
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import TRANSACTION_VERSION_UNKNOWN, AppendOrigin, AppendTerms
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import PendingResponse
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker, marker_batch
from minikafka.protocol.wire.codec import Body, field
from minikafka.regex import compile_regex
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    Permission,
    asker,
    denied,
    denied_on_cluster,
    is_authorized_on_cluster,
    permission,
    require,
    topic_denied,
)
from minikafka.server.apis.shared.coordinator_requests import (
    AnswerCollector,
    CoordinatorAnswer,
    ask_transaction,
    known_error,
    outcome,
)
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC, is_internal, validate_topic_name
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.coordinator.transaction_service import CoordinatorMarkers, WrittenMarkers
from minikafka.server.replica.delayed_operations import when_committed
from minikafka.server.requests import NO_ERROR, RequestContext, encode_answer, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each, finish
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, Offset, TopicPartition

FIRST_EPOCH = 0
INIT_PRODUCER_ID_FENCED_SINCE = 4

ADD_PARTITIONS_FENCED_SINCE = 2
FIRST_VERSION_WITH_SEVERAL_TRANSACTIONS = 4
FIRST_VERSION_WITH_ABORTABLE = 5

ADD_OFFSETS_FENCED_SINCE = 2

END_TXN_FENCED_SINCE = 2
FIRST_VERSION_WITH_EPOCHS = 5

NO_DURATION = -1

_NOT_THE_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

Done = Callable[[WrittenMarkers], None]
"""Told what became of each marker, by producer id and partition."""


def handle_init_producer_id(
    services: Services, context: RequestContext, request: Any
) -> Body | PendingResponse | Coroutine[Any, Any, Body]:
    """InitProducerId (key 22): an id and an epoch for an idempotent or transactional producer (KIP-98,
    KIP-360).

    Behaviour (``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId``):
    without a transactional id every request gets a new producer id, with epoch 0, also when the producer
    brings an id and an epoch that it wants to leave behind (version 3). Only one of the two is
    INVALID_REQUEST. With a transactional id its coordinator answers: the id that it has, in a higher epoch,
    which fences the producer that had it before; CONCURRENT_TRANSACTIONS while an earlier transaction is
    being ended. A transactional id needs WRITE; without one it takes IDEMPOTENT_WRITE on the cluster, or
    WRITE on any topic (KIP-679).

    Versions: 2 flexible; 3 producer id and epoch in the request; 4 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH
    before; 5 TRANSACTION_ABORTABLE, which is never answered here; 6 two-phase commit (KIP-939), which Kafka
    4.1 holds back.
    """
    error = _denied(services, context, request)
    if error is not None:
        return _init_producer_id_body(error.code)
    producer_id = field(request, "producer_id", NO_PRODUCER_ID)
    producer_epoch = field(request, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id != NO_PRODUCER_ID) != (producer_epoch != NO_PRODUCER_EPOCH):
        return _init_producer_id_body(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _idempotent(services)
    wanted = InitProducerId(
        transactional_id=request.transactional_id,
        transaction_timeout_ms=request.transaction_timeout,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )

    def body(result: InitProducerIdResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            knows_fenced = context.api_version >= INIT_PRODUCER_ID_FENCED_SINCE
            return _init_producer_id_body(known_error(result, knows_fenced=knows_fenced))
        return _init_producer_id_body(
            ErrorCode.NONE, producer_id=result.producer_id, producer_epoch=result.producer_epoch
        )

    return ask_transaction(
        services,
        context,
        wanted.transactional_id,
        lambda shard, ticket, now_ms: shard.init_producer_id(wanted, ticket, now_ms),
        body,
    )


def _denied(services: Services, context: RequestContext, request: Any) -> KafkaError | None:
    authorizer = services.authorizer
    if authorizer is None:
        return None
    if request.transactional_id is not None:
        transactional_id = request.transactional_id
        return denied(services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    may = is_authorized_on_cluster(services, context, AclOperation.IDEMPOTENT_WRITE, logs_denied=False)
    if may or authorizer.is_allowed_on_any(asker(context), AclOperation.WRITE, ResourceType.TOPIC):
        return None
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _idempotent(services: Services) -> Body:
    try:
        producer_id = await services.producer_ids.next()
    except KafkaError as error:
        return _init_producer_id_body(error.code)
    return _init_producer_id_body(ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _init_producer_id_body(
    code: ErrorCode, *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
) -> Body:
    return {
        "throttle_time": 0,
        "error_code": code,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "ongoing_txn_producer_id": NO_PRODUCER_ID,
        "ongoing_txn_producer_epoch": NO_PRODUCER_EPOCH,
    }


def handle_add_partitions_to_txn(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | PendingResponse]:
    """AddPartitionsToTxn (key 24): a producer is about to write to partitions (KIP-98); or a broker asks
    whether it may let a producer write, or adds the partition for it (KIP-890).

    Behaviour (``KafkaApis.handleAddPartitionsToTxnRequest``): when one partition does not exist, or is of an
    internal topic (which only brokers may add), or of one that the client may not write to, none of the
    transaction is added: those have UNKNOWN_TOPIC_OR_PARTITION and TOPIC_AUTHORIZATION_FAILED, the others
    OPERATION_NOT_ATTEMPTED. An error of the coordinator is that of every partition, and so is that of a
    transactional id without WRITE.

    Versions: 2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before; 3 flexible; 4 several transactions, each added
    or only verified, from brokers, who need CLUSTER_ACTION; 5 TRANSACTION_ABORTABLE, where a partition that
    is not in the transaction is INVALID_TXN_STATE before.
    """
    is_from_client = context.api_version < FIRST_VERSION_WITH_SEVERAL_TRANSACTIONS
    if not is_from_client:
        error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
        if error is not None:
            return _add_partitions_body(error_code=error.code)
    transactions = yield from _transactions(context.api_version, request)

    def body(results: list[Any]) -> Steps[Body]:
        knows_fenced = context.api_version >= ADD_PARTITIONS_FENCED_SINCE
        answers = []
        for transaction, result in zip(transactions, results, strict=True):
            topics = yield from _topic_results(transaction.partitions, result, knows_fenced=knows_fenced)
            answers.append((transaction.transactional_id, topics))
            yield
        return _add_partitions_body(answers)

    answer = CoordinatorAnswer(services, context, body)
    collector = AnswerCollector(len(transactions), answer.answer)
    writable = permission(services, context, AclOperation.WRITE, ResourceType.TOPIC)
    for index, transaction in enumerate(transactions):
        ticket = collector.ticket(index)
        if is_from_client:
            transactional_id = transaction.transactional_id
            error = denied(
                services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
            )
            if error is not None:
                ticket.answer(error)
                continue
        yield from _ask(services, transaction, ticket, is_from_client=is_from_client, writable=writable)
        yield
    return answer.pending


def _add_partitions_body(
    answers: Sequence[tuple[str, list[dict[str, Any]]]] = (), *, error_code: ErrorCode = ErrorCode.NONE
) -> Body:
    """``answers``: the topics of each transactional id."""
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "results_by_transaction": [
            {"transactional_id": transactional_id, "topic_results": topics}
            for transactional_id, topics in answers
        ],
        "results_by_topic_v3_and_below": answers[0][1] if answers else [],
    }


async def ask_own_coordinator(
    services: Services, transactions: Sequence[AddPartitionsToTxn]
) -> list[AddPartitionsToTxnResult | KafkaError]:
    """As a request of another broker, in which each transaction has its answer."""
    answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def then(results: list[Any]) -> None:
        if not answered.done():
            answered.set_result(results)

    collector = AnswerCollector(len(transactions), then)
    for index, transaction in enumerate(transactions):
        ticket = collector.ticket(index)
        await services.scheduler.finished(_ask(services, transaction, ticket, is_from_client=False))
    return await answered


def _transactions(version: int, request: Any) -> Steps[list[AddPartitionsToTxn]]:
    if version >= FIRST_VERSION_WITH_SEVERAL_TRANSACTIONS:
        transactions = []
        for wanted in request.transactions:
            transactions.append(
                AddPartitionsToTxn(
                    transactional_id=wanted.transactional_id,
                    producer_id=wanted.producer_id,
                    producer_epoch=wanted.producer_epoch,
                    partitions=(yield from _partitions(wanted.topics)),
                    verify_only=field(wanted, "verify_only", False),
                    knows_abortable=version >= FIRST_VERSION_WITH_ABORTABLE,
                    client_transaction_version=TRANSACTION_VERSION_2,
                )
            )
            yield
        return transactions
    return [
        AddPartitionsToTxn(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            partitions=(yield from _partitions(request.v3_and_below_topics)),
            knows_abortable=False,
            client_transaction_version=TRANSACTION_VERSION_1,
        )
    ]


def _partitions(topics: Any) -> Steps[tuple[TopicPartition, ...]]:
    """Each once, as Kafka's sets have them."""
    partitions: dict[TopicPartition, None] = {}
    for topic in topics:
        for number in topic.partitions:
            partitions[TopicPartition(topic.name, number)] = None
            yield
    return tuple(partitions)


def _ask(
    services: Services,
    transaction: AddPartitionsToTxn,
    ticket: RequestTicket,
    *,
    is_from_client: bool,
    writable: Permission | None = None,
) -> Steps[None]:
    """``writable`` counts for clients: of brokers CLUSTER_ACTION is enough."""
    errors = yield from each(
        lambda at: _refusal(services, at, is_from_client=is_from_client, writable=writable),
        transaction.partitions,
    )
    if any(errors):
        ticket.answer(AddPartitionsToTxnResult(tuple(e or ErrorCode.OPERATION_NOT_ATTEMPTED for e in errors)))
        return
    services.transactions.ask(
        transaction.transactional_id,
        lambda shard, ticket, now_ms: shard.add_partitions(transaction, ticket, now_ms),
        ticket,
    )


def _refusal(
    services: Services, partition: TopicPartition, *, is_from_client: bool, writable: Permission | None
) -> ErrorCode:
    topic = partition.topic
    if is_from_client and (is_internal(topic) or (writable is not None and not writable[topic])):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if services.metadata.partition(partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _topic_results(
    partitions: tuple[TopicPartition, ...], result: Any, *, knows_fenced: bool
) -> Steps[list[dict[str, Any]]]:
    if isinstance(result, KafkaError):
        errors = (known_error(result, knows_fenced=knows_fenced),) * len(partitions)
    else:
        assert isinstance(result, AddPartitionsToTxnResult)
        errors = result.errors
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, code in zip(partitions, errors, strict=True):
        topics.setdefault(partition.topic, []).append(
            {"partition_index": partition.partition, "partition_error_code": code}
        )
        yield
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


def handle_add_offsets_to_txn(
    services: Services, context: RequestContext, request: Any
) -> Body | PendingResponse:
    """AddOffsetsToTxn (key 25): a producer is about to commit a group's offsets in its transaction (KIP-98).

    Behaviour (``KafkaApis.handleAddOffsetsToTxnRequest``): the partition of ``__consumer_offsets`` that keeps
    the group becomes part of the transaction. It needs WRITE on the transactional id and READ on the group.
    Producers that speak the second version of the protocol (KIP-890) do not ask: TxnOffsetCommit adds it for
    them.

    Versions: 2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before; 3 flexible; 4 TRANSACTION_ABORTABLE, which is
    never answered here.
    """
    transactional_id, group_id = request.transactional_id, request.group_id
    error = denied(
        services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ) or denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id)
    if error is not None:
        return {"throttle_time": 0, "error_code": error.code}
    topic = services.groups.topic
    wanted = AddPartitionsToTxn(
        transactional_id=transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=(TopicPartition(topic.name, topic.partition_for(group_id)),),
        knows_abortable=False,
        client_transaction_version=TRANSACTION_VERSION_1,
    )

    def body(result: Any) -> Body:
        knows_fenced = context.api_version >= ADD_OFFSETS_FENCED_SINCE
        code = known_error(result, knows_fenced=knows_fenced)
        if code is ErrorCode.NONE:
            code = next(iter(result.errors), ErrorCode.NONE)
        return {"throttle_time": 0, "error_code": code}

    return ask_transaction(
        services,
        context,
        wanted.transactional_id,
        lambda shard, ticket, now_ms: shard.add_partitions(wanted, ticket, now_ms),
        body,
    )


def handle_end_txn(services: Services, context: RequestContext, request: Any) -> Body | PendingResponse:
    """EndTxn (key 26): a producer commits or aborts its transaction (KIP-98).

    Behaviour (``KafkaApis.handleEndTxnRequest``, ``TransactionCoordinator.handleEndTransaction``): answered
    when the decision is safe in ``__transaction_state``; the markers are written after that. Asked again, a
    decision that was taken is confirmed, the opposite one is INVALID_TXN_STATE.

    Versions: 2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before; 3 flexible; 4 TRANSACTION_ABORTABLE, which is
    never answered here; 5 is the second version of the protocol (KIP-890): the answer has the id and the
    epoch, raised, with which the producer continues, and so no request of the ended transaction can reach the
    next one.
    """
    raises_epoch = context.api_version >= FIRST_VERSION_WITH_EPOCHS
    wanted = EndTxn(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        client_transaction_version=TRANSACTION_VERSION_2 if raises_epoch else TRANSACTION_VERSION_1,
    )

    error = denied(
        services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, wanted.transactional_id
    )

    def body(result: EndTxnResult | KafkaError) -> Body:
        knows_fenced = context.api_version >= END_TXN_FENCED_SINCE
        producer = EndTxnResult() if isinstance(result, KafkaError) else result
        return {
            "throttle_time": 0,
            "error_code": known_error(result, knows_fenced=knows_fenced),
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }

    if error is not None:
        return body(error)
    return ask_transaction(
        services,
        context,
        wanted.transactional_id,
        lambda shard, ticket, now_ms: shard.end_txn(wanted, ticket, now_ms),
        body,
    )


def handle_describe_transactions(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """DescribeTransactions (key 65): what transactional ids are doing (KIP-664).

    Behaviour (``TransactionCoordinator.handleDescribeTransactions``): asked of the coordinator of each id;
    each has its own error: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST for an empty one,
    TRANSACTIONAL_ID_NOT_FOUND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED without DESCRIBE. Topics that the client
    may not describe are left out. The partitions of a transaction that is being ended are those whose marker
    is not written yet.
    """
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    states = yield from each(
        partial(_describe, services, context, describable), dict.fromkeys(request.transactional_ids)
    )
    return {"throttle_time": 0, "transaction_states": states}


def _describe(
    services: Services, context: RequestContext, describable: Permission | None, transactional_id: str
) -> dict[str, Any]:
    def read() -> DescribedTransaction:
        transactional = ResourceType.TRANSACTIONAL_ID
        require(services, context, AclOperation.DESCRIBE, transactional, transactional_id)
        return services.transactions.shard_of(transactional_id).describe_transaction(transactional_id)

    found = outcome(read)
    if isinstance(found, KafkaError):
        return {
            "error_code": found.code,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": NO_TIMESTAMP,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
            "topics": [],
        }
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_time_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": _topics(found, describable),
    }


def _topics(transaction: DescribedTransaction, describable: Permission | None) -> list[dict[str, Any]]:
    """Those that who asks may describe."""
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    return [
        {"topic": topic, "partitions": partitions}
        for topic, partitions in topics.items()
        if describable is None or describable[topic]
    ]


def handle_list_transactions(
    services: Services, context: RequestContext, request: Any
) -> Body | Coroutine[Any, Any, Body]:
    """ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

    Behaviour (``TransactionStateManager.listTransactionStates``): when one of its partitions is being loaded
    the whole answer is COORDINATOR_LOAD_IN_PROGRESS, because some would be missing. Ids without DESCRIBE are
    left out. Names of states that there are not match nothing, and are told back. A pattern that is none is
    INVALID_REGULAR_EXPRESSION.

    Versions: 1 transactions that have been going on for long (KIP-994); 2 a pattern of transactional ids
    (KIP-1152).
    """
    wanted = ListTransactions(
        states=tuple(request.state_filters),
        producer_ids=tuple(request.producer_id_filters),
        duration_ms=field(request, "duration_filter", NO_DURATION),
        transactional_id_pattern=field(request, "transactional_id_pattern", None) or "",
    )
    if wanted.transactional_id_pattern:
        return _by_pattern(services, context, wanted)
    return finish(_listed(services, context, wanted))


async def _by_pattern(services: Services, context: RequestContext, wanted: ListTransactions) -> Body:
    """Compile the pattern in a thread and match it in slices."""
    compiled = partial(compile_regex, wanted.transactional_id_pattern, name="TransactionalIdPattern")
    try:
        await services.scheduler.finished(services.scheduler.apart(compiled))
    except KafkaError as error:
        return _list_transactions_body(error.code, [], [])
    return await services.scheduler.finished(_listed(services, context, wanted))


def _listed(services: Services, context: RequestContext, wanted: ListTransactions) -> Steps[Body]:
    now_ms = services.clock.now_ms()
    listed = []
    try:
        for shard in services.transactions.shards():
            listed += shard.list_transactions(wanted, now_ms)
            yield
    except KafkaError as error:
        return _list_transactions_body(error.code, [], [])
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    states = []
    for one in listed:
        if describable is None or describable[one.transactional_id]:
            states.append(
                {
                    "transactional_id": one.transactional_id,
                    "producer_id": one.producer_id,
                    "transaction_state": one.state,
                }
            )
        yield
    return _list_transactions_body(ErrorCode.NONE, list(unknown_states(wanted.states)), states)


def _list_transactions_body(code: ErrorCode, unknown: list[str], states: list[dict[str, Any]]) -> Body:
    return {
        "throttle_time": 0,
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": states,
    }


def handle_describe_producers(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """DescribeProducers (key 61): the producers that partitions know, for finding hanging transactions
    (KIP-664).

    Behaviour (``KafkaApis.handleDescribeProducersRequest``, ``ReplicaManager.activeProducerState``): every
    replica of a partition answers, the leader and those that follow it (NOT_LEADER_OR_FOLLOWER otherwise);
    each partition has its own error, TOPIC_AUTHORIZATION_FAILED without READ on its topic.
    """
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    topics = []
    for topic in request.topics:
        partitions = yield from each(
            partial(_partition, services, readable, topic.name), topic.partition_indexes
        )
        topics.append({"name": topic.name, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}


def _partition(services: Services, readable: Permission | None, topic: str, index: int) -> dict[str, Any]:
    topic_partition = TopicPartition(topic, index)
    outcome, producers = NO_ERROR, []
    try:
        validate_topic_name(topic)
        if readable is not None and not readable[topic]:
            raise topic_denied()
        log = services.replica_manager.hosted(topic_partition).log
        producers = [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": (
                    -1 if producer.current_txn_first_offset is None else producer.current_txn_first_offset
                ),
            }
            for producer in log.producers.active_producers().values()
        ]
    except KafkaError as error:
        outcome = error_fields(error)
    return {
        "partition_index": topic_partition.partition,
        **outcome,
        "active_producers": producers,
    }


class Marker(NamedTuple):
    """One transaction's, for a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    at: TopicPartition


def handle_write_txn_markers(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | PendingResponse]:
    markers = []
    for marker in request.markers:
        version = field(marker, "transaction_version", TRANSACTION_VERSION_UNKNOWN)
        of_each = partial(
            Marker,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            version,
        )
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                markers.append(of_each(TopicPartition(topic.name, partition)))
                yield
    producer_ids = dict.fromkeys(marker.producer_id for marker in request.markers)
    if not is_authorized_on_cluster(services, context, AclOperation.ALTER, logs_denied=False):
        error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
        if error is not None:
            refused = {(marker.producer_id, marker.at): error.code for marker in markers}
            return (yield from _markers_body(producer_ids, refused))
    pending = PendingResponse()

    def done(written: WrittenMarkers) -> None:
        if pending.is_waiting:
            services.scheduler.answer(pending, _markers_response(services, context, producer_ids, written))

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
        _write_marker(services, marker, partial(settled, marker))
        yield


def _markers_response(
    services: Services, context: RequestContext, producer_ids: Iterable[int], written: WrittenMarkers
) -> Steps[list[Buffer]]:
    body = yield from _markers_body(producer_ids, written)
    return (yield from encode_answer(services.request_metrics, context, body))


def _write_marker(services: Services, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
    """Call ``done`` when it is committed, or will not be; that may be now."""
    if marker.at not in services.replica_manager.partitions:
        done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif marker.at.topic == GROUP_METADATA_TOPIC:
        _end_in_group(services, marker, done)
    else:
        _append_marker(services, marker, done)


def _append_marker(services: Services, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
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

    services.groups.ask(
        marker.at.partition,
        lambda shard, ticket, now_ms: shard.end_transaction(end, ticket, now_ms),
        RequestTicket(answered),
    )


def _markers_body(producer_ids: Iterable[int], written: WrittenMarkers) -> Steps[Body]:
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
