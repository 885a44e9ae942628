"""Transitions of transactional ids as appends. Kafka: ``TransactionStateManager.appendTransactionToLog``."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.coordinator.transaction.effects import Answer, Append, Effects, Ticket, coordinator_error
from minikafka.coordinator.transaction.metadata import TransactionMetadata, record_of
from minikafka.errors import InvariantError, KafkaError

Then = Callable[[int], Effects]
"""What is to be done when a transition is committed, given the time."""


class Transition(Append):
    """The pending transition of one id: done when it is committed, forgotten when it is not. ``then`` gives
    the answer, too; ``ticket`` hears of a failure."""

    __slots__ = ("_metadata", "_pending", "_then", "_ticket")

    def __init__(
        self,
        metadata: TransactionMetadata,
        *,
        transaction_version: int,
        then: Then | None = None,
        ticket: Ticket | None = None,
    ) -> None:
        assert metadata.pending is not None, "a transition is prepared"
        self._metadata = metadata
        self._pending = metadata.pending
        self._then = then
        self._ticket = ticket
        record = record_of(
            metadata.transactional_id, metadata.pending, transaction_version=transaction_version
        )
        super().__init__((record,), timeout_ms=metadata.pending.timeout_ms)

    def committed(self, now_ms: int) -> Effects:
        if self._metadata.pending is not self._pending:
            raise InvariantError(f"{self!r} is not what {self._metadata!r} waits for")
        self._metadata.complete_transition()
        return [] if self._then is None else self._then(now_ms)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if self._metadata.pending is self._pending:
            self._metadata.drop_transition()
        return [] if self._ticket is None else [Answer(self._ticket, coordinator_error(error))]
