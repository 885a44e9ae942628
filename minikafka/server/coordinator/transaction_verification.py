"""Before a transaction begins in a partition, its coordinator is asked whether it may (KIP-890).

Kafka: ``AddPartitionsToTxnManager``, ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``.
Producers that know the second version of the protocol (Produce 12, TxnOffsetCommit 5) have the partition
*added* to their transaction in this way; for older ones, who have added it themselves, it is *verified*. Once
a transaction has records in a partition its coordinator is not asked any more.

The coordinator is the leader of the partition of ``__transaction_state`` that keeps the transactional id. It
is asked with AddPartitionsToTxn, by one request at a time to each broker; what comes up meanwhile goes
together in the next one. To a producer of the second version a transaction that is still being ended is no
reason to give up: it is asked again every ``add.partitions.to.txn.retry.backoff.ms`` for a short while. The
marker of that transaction takes the guard away, so each retry begins a verification of its own, with the
guard that counts then.

Where it differs from Kafka, which mutes a connection while one of its requests waits:
- each partition is asked for and proceeds by itself, so that its batches keep their order: whatever comes for
  a partition that is being asked for waits for the same answer, and is told in the order in which it came;
- two questions about one transaction go together, where Kafka drops the older one with NETWORK_EXCEPTION;
- a marker that overtakes the coordinator's consent makes a producer of the second version ask again, where
  Kafka refuses the batch with INVALID_TXN_STATE. Its epoch names one transaction, so the marker is that of
  the one before; had its own been ended, its epoch would be stale. An older producer keeps its epoch, and
  the batch may belong to the transaction that has ended: it is refused, as by Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from itertools import repeat
from typing import TYPE_CHECKING, Final

from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.transaction.messages import (
    TRANSACTION_VERSION_2,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
)
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.metrics.request_metrics import KafkaTimer
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body
from minikafka.server.cluster.broker_connection import BrokerConnection, Connect
from minikafka.server.coordinator.service import CoordinatorTopic
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.producers.append import VerificationGuard

logger = logging.getLogger(__name__)

AskHere = Callable[[Sequence[AddPartitionsToTxn]], Awaitable[Sequence[AddPartitionsToTxnResult | KafkaError]]]
"""Asks this broker's own coordinator. Each transaction has its answer."""

_RETRIABLE: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TransactionSupportedOperation(Enum):
    """What a request's version lets a broker do for its producer. Kafka's names."""

    DEFAULT_ERROR = "verify, and TRANSACTION_ABORTABLE is not known"
    GENERIC_ERROR_SUPPORTED = "verify"
    ADD_PARTITION = "add"

    @property
    def supports_epoch_bump(self) -> bool:
        """The second version of the protocol."""
        return self is TransactionSupportedOperation.ADD_PARTITION

    @classmethod
    def of_produce(cls, version: int) -> TransactionSupportedOperation:
        if version >= 12:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version == 11 else cls.DEFAULT_ERROR

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> TransactionSupportedOperation:
        if version >= 5:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version == 4 else cls.DEFAULT_ERROR


class Transaction(NamedTuple):
    """Who asks, and for what."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    operation: TransactionSupportedOperation


class Verified(NamedTuple):
    """The outcome for one partition: an append shows ``guard``, unless there is an error."""

    error: ErrorCode = ErrorCode.NONE
    guard: VerificationGuard | None = None


Then = Callable[[Verified], None]


class _Question:
    """One partition of one transaction, until it is answered."""

    __slots__ = (
        "began_ns",
        "guard",
        "retries_until_ms",
        "sequence",
        "then",
        "topic_partition",
        "transaction",
    )

    def __init__(
        self,
        transaction: Transaction,
        topic_partition: TopicPartition,
        guard: VerificationGuard | None,
        *,
        sequence: int,
        began_ns: int,
        retries_until_ms: int,
    ) -> None:
        self.transaction = transaction
        self.topic_partition = topic_partition
        self.guard = guard
        """Of the latest attempt; None when a transaction was found open here."""
        self.sequence = sequence
        """The lowest of those that wait."""
        self.began_ns = began_ns
        self.retries_until_ms = retries_until_ms
        self.then: list[Then] = []


class _Coordinator:
    """A broker that is asked."""

    __slots__ = ("connection", "is_asked", "is_failing", "node_id", "questions")

    def __init__(self, node_id: BrokerId, connection: BrokerConnection) -> None:
        self.node_id = node_id
        self.connection = connection
        self.questions: list[_Question] = []
        """For the next request."""
        self.is_asked = False
        self.is_failing = False
        """It is said once that it does not answer, not for each of those who try again."""


class TransactionVerification:
    """See the module header."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        replicas: ReplicaManager,
        topic: CoordinatorTopic,
        connect: Connect,
        ask_here: AskHere,
        supervisor: Supervisor,
    ) -> None:
        """``topic`` is ``__transaction_state``."""
        self._config = config
        self._replicas = replicas
        self._topic = topic
        self._connect = connect
        self._ask_here = ask_here
        self._supervisor = supervisor
        self._coordinators: dict[BrokerId, _Coordinator] = {}
        self._questions: dict[tuple[Transaction, TopicPartition], _Question] = {}
        self.failures = 0
        """Partitions for which there was an error (Kafka's ``VerificationFailureRate``)."""
        self.times = KafkaTimer()
        """From the question until the answer, errors too (``VerificationTimeMs``)."""

    def __repr__(self) -> str:
        return f"TransactionVerification({len(self._questions)} questions, {self.failures} failures)"

    def begin(
        self, transaction: Transaction | None, topic_partition: TopicPartition, *, sequence: int, then: Then
    ) -> Verified | None:
        """May a batch of ``transaction`` be appended? Answered now, or None: ``then`` is called later.

        Args:
            transaction: None for a request without a transactional id, which has no coordinator.
            sequence: of the batch's first record, -1 for a coordinator's batch.

        Raises:
            KafkaError: the partition is not led here, or INVALID_PRODUCER_EPOCH.
        """
        if transaction is None or not self._is_wanted(transaction.operation):
            return Verified()
        guard = self._begin_in_log(transaction, topic_partition, sequence)
        if guard is None:
            return Verified()
        key = (transaction, topic_partition)
        question = self._questions.get(key)
        if question is not None and (
            question.guard is guard or transaction.operation.supports_epoch_bump  # asks again for all of them
        ):
            question.sequence = min(question.sequence, sequence)
        else:
            retries_ms = self._config().add_partitions_to_txn_retry_backoff_max_ms
            question = _Question(
                transaction,
                topic_partition,
                guard,
                sequence=sequence,
                began_ns=self._replicas.clock.monotonic_ns(),
                retries_until_ms=self._replicas.clock.monotonic_ms() + retries_ms,
            )
            try:
                self._ask(question)
            except KafkaError as error:
                self.failures += 1
                return Verified(error.code, guard)
            self._questions[key] = question
        question.then.append(then)
        return None

    async def close(self) -> None:
        """Ask no coordinator any more."""
        for coordinator in self._coordinators.values():
            await coordinator.connection.close()

    def _begin_in_log(
        self, transaction: Transaction, topic_partition: TopicPartition, sequence: int
    ) -> VerificationGuard | None:
        """None: the transaction is open in the partition.

        Raises:
            KafkaError: the partition is not led here, or INVALID_PRODUCER_EPOCH.
        """
        return self._replicas.partition(topic_partition).log.producers.begin_verification(
            transaction.producer_id,
            sequence=sequence,
            epoch=transaction.producer_epoch,
            supports_epoch_bump=transaction.operation.supports_epoch_bump,
        )

    def _is_wanted(self, operation: TransactionSupportedOperation) -> bool:
        return operation.supports_epoch_bump or self._config().transaction_partition_verification_enable

    # Asking

    def _ask(self, question: _Question) -> None:
        """Raises KafkaError: COORDINATOR_NOT_AVAILABLE."""
        node_id = self._topic.coordinator(question.transaction.transactional_id).node_id
        coordinator = self._coordinators.get(node_id)
        if coordinator is None:
            connection = BrokerConnection(
                name=f"broker {node_id}",
                client_id=f"broker-{self._replicas.node_id}-add-partitions-to-txn",
                timeout_ms=self._config().request_timeout_ms,
                connect=self._connect,
            )
            coordinator = self._coordinators[node_id] = _Coordinator(node_id, connection)
        coordinator.questions.append(question)
        if not coordinator.is_asked:
            self._start_asking(coordinator)

    async def _ask_all(self, coordinator: _Coordinator) -> None:
        """Requests to one broker, until nothing is left to be asked."""
        try:
            while coordinator.questions:
                await self._ask_once(coordinator)
        finally:
            coordinator.is_asked = False
            if coordinator.questions:  # after a bug with others
                self._start_asking(coordinator)

    def _start_asking(self, coordinator: _Coordinator) -> None:
        coordinator.is_asked = True
        self._supervisor.start("add-partitions-to-txn", lambda: self._ask_all(coordinator))

    async def _ask_once(self, coordinator: _Coordinator) -> None:
        questions = _one_epoch_each(coordinator.questions)
        asked = set(questions)
        coordinator.questions = [each for each in coordinator.questions if each not in asked]
        try:
            errors = await self._request(coordinator, questions)
            coordinator.is_failing = False
        except (BrokerUnavailable, PeerProtocolError) as error:
            if not coordinator.is_failing:
                coordinator.is_failing = True
                logger.warning("no answer from a transaction coordinator: %s", error)
            errors = dict.fromkeys(questions, ErrorCode.NETWORK_EXCEPTION)
        except KafkaError as error:  # UNSUPPORTED_VERSION: as Kafka, for such a broker is being upgraded
            logger.warning("a transaction is not verified: %s", error)
            errors = dict.fromkeys(questions, ErrorCode.NONE)
        except Exception:  # our bug, which the supervisor logs; here who waits hears of it
            for question in questions:
                self._tell(question, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        for question in questions:
            self._answered(question, errors[question])

    async def _request(
        self, coordinator: _Coordinator, questions: list[_Question]
    ) -> dict[_Question, ErrorCode]:
        transactions = _transactions(questions)
        if coordinator.node_id == self._replicas.node_id:
            codes = _codes(transactions, await self._ask_here(transactions))
        else:
            broker = self._replicas.metadata.broker(coordinator.node_id)
            address = None if broker is None else broker.endpoint(self._config().inter_broker_listener())
            answer = await coordinator.connection.request(
                address, ApiKey.ADD_PARTITIONS_TO_TXN, _body(transactions)
            )
            if answer.error_code:
                return dict.fromkeys(questions, ErrorCode(answer.error_code))
            codes = {
                (transaction.transactional_id, TopicPartition(topic.name, partition.partition_index)): (
                    ErrorCode(partition.partition_error_code)
                )
                for transaction in answer.results_by_transaction
                for topic in transaction.topic_results
                for partition in topic.results_by_partition
            }
        return {
            each: codes.get(
                (each.transaction.transactional_id, each.topic_partition), ErrorCode.UNKNOWN_SERVER_ERROR
            )
            for each in questions
        }

    def _answered(self, question: _Question, code: ErrorCode) -> None:
        operation = question.transaction.operation
        if code is ErrorCode.NONE and operation.supports_epoch_bump and self._has_lost_its_guard(question):
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        if (
            code is ErrorCode.CONCURRENT_TRANSACTIONS
            and operation.supports_epoch_bump
            and self._replicas.clock.monotonic_ms() < question.retries_until_ms
        ):
            pause_ms = self._config().add_partitions_to_txn_retry_backoff_ms
            asyncio.get_running_loop().call_later(pause_ms / 1000, self._ask_again, question)
            return
        if code is ErrorCode.PRODUCER_FENCED:  # producers expect the other one of a write
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif (
            code is ErrorCode.TRANSACTION_ABORTABLE
            and operation is TransactionSupportedOperation.DEFAULT_ERROR
        ) or code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE
        self._tell(question, code)

    def _has_lost_its_guard(self, question: _Question) -> bool:
        """To a marker that has come since it was asked. The append tells if the partition is not led here."""
        partition = self._replicas.partitions.get(question.topic_partition)
        return partition is not None and not partition.log.producers.verifications.has(
            question.transaction.producer_id, question.guard
        )

    def _ask_again(self, question: _Question) -> None:
        try:
            question.guard = self._begin_in_log(
                question.transaction, question.topic_partition, question.sequence
            )
            if question.guard is None:
                self._tell(question, ErrorCode.NONE)
            else:
                self._ask(question)
        except KafkaError as error:
            self._tell(question, error.code)

    def _tell(self, question: _Question, code: ErrorCode) -> None:
        key = (question.transaction, question.topic_partition)
        if self._questions.get(key) is question:
            del self._questions[key]
        self.failures += code is not ErrorCode.NONE
        self.times.update(self._replicas.clock.monotonic_ns() - question.began_ns)
        for then in question.then:
            try:
                then(Verified(code, question.guard))
            except Exception:  # our bug with one write, which must not keep the others waiting
                logger.exception("a write in a transaction could not be continued")


def produce_error(verified: Verified, operation: TransactionSupportedOperation) -> KafkaError:
    """What a producer is told. Errors of the coordinator that old clients do not expect of a write become one
    that they try again, without asking for metadata first (``ReplicaManager.handleProduceAppend``)."""
    code = verified.error
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _RETRIABLE or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.supports_epoch_bump
    ):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return KafkaError(code)


def _one_epoch_each(questions: Iterable[_Question]) -> list[_Question]:
    """Those that one request can ask: of each transactional id one producer, epoch and operation."""
    first: dict[str, Transaction] = {}
    return [
        each
        for each in questions
        if first.setdefault(each.transaction.transactional_id, each.transaction) == each.transaction
    ]


def _transactions(questions: Iterable[_Question]) -> list[AddPartitionsToTxn]:
    partitions: dict[Transaction, list[TopicPartition]] = {}
    for each in questions:
        partitions.setdefault(each.transaction, []).append(each.topic_partition)
    return [
        AddPartitionsToTxn(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            partitions=tuple(wanted),
            verify_only=not transaction.operation.supports_epoch_bump,
            client_transaction_version=TRANSACTION_VERSION_2,
        )
        for transaction, wanted in partitions.items()
    ]


def _codes(
    transactions: Sequence[AddPartitionsToTxn], results: Sequence[AddPartitionsToTxnResult | KafkaError]
) -> dict[tuple[str, TopicPartition], ErrorCode]:
    codes = {}
    for transaction, result in zip(transactions, results, strict=True):
        if isinstance(result, KafkaError):
            errors: Iterable[ErrorCode] = repeat(result.code)
        else:
            errors = result.errors
        for partition, code in zip(transaction.partitions, errors, strict=False):
            codes[transaction.transactional_id, partition] = code
    return codes


def _body(transactions: Iterable[AddPartitionsToTxn]) -> Body:
    body = []
    for each in transactions:
        topics: dict[str, list[int]] = {}
        for topic, partition in each.partitions:
            topics.setdefault(topic, []).append(partition)
        body.append(
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "verify_only": each.verify_only,
                "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
            }
        )
    return {"transactions": body}
