"""TxnOffsetCommit (key 28): a producer commits with its transaction how far a group has read (KIP-98).

Behaviour (``KafkaApis.handleTxnOffsetCommitRequest``, ``GroupCoordinatorService``'s
``commitTransactionalOffsets``): a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; an error of
the group or of a coordinator is that of each of the others. It needs WRITE on the transactional id, READ on
the group, and READ on each topic (TOPIC_AUTHORIZATION_FAILED where it is missing). An empty group id is
INVALID_GROUP_ID. Where the transaction has no offsets in the group's partition of ``__consumer_offsets`` yet,
its own coordinator is asked first, as for a produce (``transaction_verification``). The answer leaves when
the offsets are in all in-sync replicas; they are seen when the transaction is committed.

Versions: before 2 COORDINATOR_LOAD_IN_PROGRESS crashes clients (KAFKA-7296), who hear
COORDINATOR_NOT_AVAILABLE; 2 leader epochs (KIP-320); 3 flexible, and who reads (KIP-447); 4
TRANSACTION_ABORTABLE; 5 the partition of the group is added to the transaction here (KIP-890); 6 topic ids
in the place of names, with GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import OffsetCommitResult, OffsetToCommit, TxnOffsetCommit
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.offset_commit import (
    known_offsets,
    named_topics,
    offset_commit_body,
    refused_commit_body,
)
from minikafka.server.apis.shared.authorization import denied, permission
from minikafka.server.apis.shared.coordinator_requests import CoordinatorAnswer, check_group_id
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.coordinator.transaction_verification import (
    Transaction,
    TransactionSupportedOperation,
    Verified,
)
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import NO_SEQUENCE, TopicPartition

FIRST_VERSION_WITH_LOADING = 2

_Offsets = dict[TopicPartition, OffsetToCommit]


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body | Result]:
    transactional_id, group_id = request.transactional_id, request.group_id
    topics = yield from named_topics(services, request)
    error = denied(
        services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ) or denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id)
    if error is not None:
        return (yield from refused_commit_body(topics, error))
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    offsets = yield from known_offsets(services, topics, readable)

    def body(result: OffsetCommitResult | KafkaError | None) -> Steps[Body]:
        return offset_commit_body(topics, offsets, readable, _told(result, context.api_version))

    if not offsets:
        return (yield from body(None))
    answer = CoordinatorAnswer(services, context, body)
    try:
        check_group_id(request.group_id)
        _begin(services, context, request, offsets, answer)
    except KafkaError as error:
        answer.answer(error)
    return answer.pending


def _begin(
    services: Services, context: RequestContext, request: Any, offsets: _Offsets, answer: CoordinatorAnswer
) -> None:
    """Commit, when the coordinator of the transaction says so.

    Raises:
        KafkaError: see ``TransactionVerification.begin``; in the words of a group coordinator.
    """
    transaction = Transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        TransactionSupportedOperation.of_txn_offset_commit(context.api_version),
    )
    at = TopicPartition(GROUP_METADATA_TOPIC, services.groups.topic.partition_for(request.group_id))

    def commit(verified: Verified) -> None:
        if verified.error:
            answer.answer(KafkaError(verified.error))
            return
        commit = _commit(context, request, offsets, verified)
        services.groups.ask(
            commit.group_id,
            lambda shard, ticket, now_ms: shard.commit_transactional_offsets(commit, ticket, now_ms),
            RequestTicket(answer.answer),
        )

    verified = services.transaction_verification.begin(transaction, at, sequence=NO_SEQUENCE, then=commit)
    if verified is not None:
        commit(verified)


def _commit(context: RequestContext, request: Any, offsets: _Offsets, verified: Verified) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        group_id=request.group_id,
        generation=field(request, "generation_id_or_member_epoch", -1),
        member_id=field(request, "member_id", ""),
        group_instance_id=field(request, "group_instance_id", None),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        verification_guard=verified.guard,
        offsets=tuple(offsets.values()),
        version=context.api_version,
    )


def _told(
    result: OffsetCommitResult | KafkaError | None, version: int
) -> OffsetCommitResult | KafkaError | None:
    """Errors of the log and of the other coordinator in words that a client expects of this one
    (``GroupCoordinatorService.handleOperationException``)."""
    if not isinstance(result, KafkaError):
        return result
    code = result.code
    if code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    elif code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        code = ErrorCode.NOT_COORDINATOR
    elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITH_LOADING:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return KafkaError(code, result.message)
