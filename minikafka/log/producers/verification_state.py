"""Which producers are about to begin a transaction in a partition, while their coordinator is asked.

Kafka's classes: ``VerificationStateEntry``, ``VerificationGuard`` (KIP-890). The first batch of a transaction
is appended only when its coordinator has said that the partition belongs to it. Between that answer and the
append the transaction may have ended, by a marker that the partition has got meanwhile; the answer is then
about nothing. So a check begins with a guard, which the append has to show, and any transactional append or
marker of the producer takes the guard away.

The lowest sequence is kept, because batches behind one whose check has failed must not overtake it.
"""

from __future__ import annotations


class VerificationGuard:
    """One check of one producer's transaction. Compared by identity."""

    __slots__ = ()


class VerificationStateEntry:
    """A producer whose transaction is being checked, or was."""

    __slots__ = ("begun_ms", "epoch", "guard", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, *, sequence: int, epoch: int, supports_epoch_bump: bool, begun_ms: int) -> None:
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.begun_ms = begun_ms

    def __repr__(self) -> str:
        return f"VerificationStateEntry(epoch={self.epoch}, lowest_sequence={self.lowest_sequence})"

    def saw(self, *, sequence: int, epoch: int) -> None:
        """Another batch of the producer is to be checked."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class VerificationStates(dict[int, VerificationStateEntry]):
    """Those of a partition, by producer id. A dictionary, because every idempotent append asks whether there
    are any."""

    __slots__ = ()

    def begin(
        self, producer_id: int, *, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """A batch is to be checked. Batches that wait at the same time share one guard."""
        entry = self.get(producer_id)
        if entry is None:
            entry = self[producer_id] = VerificationStateEntry(
                sequence=sequence, epoch=epoch, supports_epoch_bump=supports_epoch_bump, begun_ms=now_ms
            )
        entry.saw(sequence=sequence, epoch=epoch)
        return entry.guard

    def has(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether ``guard`` still counts."""
        entry = self.get(producer_id)
        return entry is not None and entry.guard is guard

    def forget(self, producer_id: int) -> None:
        """Its transaction has begun here, or ended: whoever has been confirmed before is not any more."""
        self.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those that never came to an append."""
        for producer_id, entry in list(self.items()):
            if now_ms - entry.begun_ms >= expiration_ms:
                del self[producer_id]
