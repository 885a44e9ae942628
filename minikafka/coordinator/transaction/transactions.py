"""What the parts of a shard share: its transactional ids, and how they are written, fenced and ended."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.coordinator.transaction.completion import Completions
from minikafka.coordinator.transaction.effects import AllocateProducerId, Answer, Effects, Ticket
from minikafka.coordinator.transaction.metadata import EPOCH_MAX, TransactionMetadata
from minikafka.coordinator.transaction.settings import TransactionSettings
from minikafka.coordinator.transaction.transition import Then, Transition
from minikafka.errors import ErrorCode, KafkaError


class _Allocation(AllocateProducerId):
    """A request that is made once more, with a producer id: what it asks for may have changed meanwhile."""

    __slots__ = ("_again", "_allocating", "ticket")

    def __init__(
        self, allocating: list[_Allocation], ticket: Ticket, again: Callable[[int, int], Effects]
    ) -> None:
        self.ticket = ticket
        self._allocating = allocating
        self._again = again

    def allocated(self, producer_id: int, now_ms: int) -> Effects:
        self._allocating.remove(self)
        try:
            return self._again(producer_id, now_ms)
        except KafkaError as error:
            return [Answer(self.ticket, error)]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._allocating.remove(self)
        return [Answer(self.ticket, error)]


class Transactions:
    """Those of one shard."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.ids: dict[str, TransactionMetadata] = {}
        self.completions = Completions(settings)
        self._allocating: list[_Allocation] = []

    def get(self, transactional_id: str) -> TransactionMetadata:
        """Raises KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING: nobody has this id."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        metadata = self.ids.get(transactional_id)
        if metadata is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    def allocate(self, ticket: Ticket, again: Callable[[int, int], Effects]) -> Effects:
        """``again`` is called with a producer id and the time, and may raise KafkaError."""
        allocation = _Allocation(self._allocating, ticket, again)
        self._allocating.append(allocation)
        return [allocation]

    def waiting(self) -> list[Ticket]:
        return [allocation.ticket for allocation in self._allocating]

    def write(
        self, metadata: TransactionMetadata, ticket: Ticket | None = None, then: Then | None = None
    ) -> Effects:
        """Append the pending transition."""
        version = self.settings.transaction_version
        return [Transition(metadata, transaction_version=version, then=then, ticket=ticket)]

    def write_decision(
        self, metadata: TransactionMetadata, ticket: Ticket | None, answer: Callable[[], Effects]
    ) -> Effects:
        """Append the pending PrepareCommit or PrepareAbort; once that is committed, give the answer and go
        on to the markers. ``answer`` is asked when the transition that follows is pending."""

        def decided(now_ms: int) -> Effects:
            completing = self.completions.begin(metadata, now_ms)
            return answer() + completing

        return self.write(metadata, ticket, decided)

    def fence(self, metadata: TransactionMetadata, ticket: Ticket | None, now_ms: int) -> Effects:
        """Abort the ongoing transaction with the next epoch. Who asked is to ask again."""
        metadata.prepare_fence(transaction_version=self.settings.transaction_version, now_ms=now_ms)

        def answer() -> Effects:
            return [] if ticket is None else [Answer(ticket, concurrent_transactions())]

        return self.write_decision(metadata, ticket, answer)


def check_not_pending(metadata: TransactionMetadata) -> None:
    """Raises KafkaError CONCURRENT_TRANSACTIONS: a transition is being written, or its markers are."""
    if metadata.pending is not None:
        raise concurrent_transactions()


def check_producer_id(metadata: TransactionMetadata, producer_id: int) -> None:
    """Raises KafkaError INVALID_PRODUCER_ID_MAPPING."""
    if producer_id != metadata.current.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def check_producer_epoch(metadata: TransactionMetadata, producer_epoch: int) -> None:
    """The first epoch is 0, and nobody is told the last one, which is for fencing.

    Raises:
        KafkaError: PRODUCER_FENCED.
    """
    if producer_epoch != metadata.current.producer_epoch or not 0 <= producer_epoch < EPOCH_MAX:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def concurrent_transactions() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
