"""AddPartitionsToTxn (key 24): a producer is about to write to partitions (KIP-98); or a broker asks whether
it may let a producer write, or adds the partition for it (KIP-890).

Behaviour (``KafkaApis.handleAddPartitionsToTxnRequest``): when one partition does not exist, or is of an
internal topic (which only brokers may add), or of one that the client may not write to, none of the
transaction is added: those have UNKNOWN_TOPIC_OR_PARTITION and TOPIC_AUTHORIZATION_FAILED, the others
OPERATION_NOT_ATTEMPTED. An error of the coordinator is that of every partition, and so is that of a
transactional id without WRITE.

Versions: 2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before; 3 flexible; 4 several transactions, each added or
only verified, from brokers, who need CLUSTER_ACTION; 5 TRANSACTION_ABORTABLE, where a partition that is not
in the transaction is INVALID_TXN_STATE before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from minikafka.coordinator.transaction.messages import (
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import PendingResponse
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied, denied_on_cluster, permission
from minikafka.server.apis.shared.coordinator_requests import AnswerCollector, CoordinatorAnswer, known_error
from minikafka.server.cluster.topic_validation import is_internal
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import TopicPartition

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_SEVERAL_TRANSACTIONS = 4
FIRST_VERSION_WITH_ABORTABLE = 5


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | PendingResponse]:
    is_from_client = context.api_version < FIRST_VERSION_WITH_SEVERAL_TRANSACTIONS
    if not is_from_client:
        error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
        if error is not None:
            return _body(error_code=error.code)
    transactions = yield from _transactions(context.api_version, request)

    def body(results: list[Any]) -> Steps[Body]:
        knows_fenced = context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED
        answers = []
        for transaction, result in zip(transactions, results, strict=True):
            topics = yield from _topic_results(transaction.partitions, result, knows_fenced=knows_fenced)
            answers.append((transaction.transactional_id, topics))
            yield
        return _body(answers)

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


def _body(
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
