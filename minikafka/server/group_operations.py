"""What waits in the groups: joins, syncs, sessions, revocations, each until it is over or its time is up.

Kafka: ``DelayedJoin``, ``DelayedSync`` (purgatory "Rebalance") and ``DelayedHeartbeat`` (purgatory
"Heartbeat") of the coordinator of 3.x; 4.x has the timer without the purgatories. A shard says when one
begins (``Park``) and when it is over (``Complete``), so an operation never looks whether it could complete;
it only ever completes or expires. Parking under the name of one that waits lets its time begin anew, as each
heartbeat does with the member's session.

Different from Kafka, where each heartbeat completes the member's operation and parks another: here it mostly
moves the deadline (``Timer.postpone``). It expires at the same time, and as many wait.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.coordinator.group.effects import GroupOperation, OperationKind, Park
from minikafka.purgatory.delayed_operation import DelayedOperation
from minikafka.purgatory.purgatory import DelayedOperationPurgatory
from minikafka.purgatory.timer import Timer

Expired = Callable[[GroupOperation], None]
"""Told when the time of an operation is up."""


class DelayedGroupOperation(DelayedOperation):
    """Something that a shard waits for."""

    __slots__ = ("_expired", "operation")

    def __init__(self, operation: GroupOperation, timeout_ms: int, expired: Expired) -> None:
        super().__init__(max(timeout_ms, 0))
        self.operation = operation
        self._expired = expired

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        """Nothing: the shard knows."""

    def on_expiration(self) -> None:
        self._expired(self.operation)


Purgatory = DelayedOperationPurgatory[DelayedGroupOperation]


class GroupPurgatories:
    """Where the operations of all shards of a broker wait."""

    def __init__(self, timer: Timer) -> None:
        self.rebalance: Purgatory = DelayedOperationPurgatory("Rebalance", timer)
        self.heartbeat: Purgatory = DelayedOperationPurgatory("Heartbeat", timer)

    def __repr__(self) -> str:
        return f"GroupPurgatories({self.rebalance!r}, {self.heartbeat!r})"

    def of(self, operation: GroupOperation) -> Purgatory:
        return self.heartbeat if operation.kind is OperationKind.SESSION else self.rebalance


class ShardOperations:
    """Those of one shard. They leave together when the shard does."""

    __slots__ = ("_expired", "_purgatories", "_waiting")

    def __init__(self, purgatories: GroupPurgatories, expired: Expired) -> None:
        self._purgatories = purgatories
        self._expired = expired
        self._waiting: dict[GroupOperation, DelayedGroupOperation] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, park: Park[GroupOperation]) -> None:
        """Let an operation wait for so long from now on, also if it waits already."""
        operation, timeout_ms = park
        purgatory = self._purgatories.of(operation)
        waiting = self._waiting.get(operation)
        if waiting is not None:
            if purgatory.postpone(waiting, timeout_ms):
                return
            purgatory.cancel_for_key((self, operation))
        delayed = DelayedGroupOperation(operation, timeout_ms, self._time_is_up)
        self._waiting[operation] = delayed
        purgatory.watch(delayed, ((self, operation),))

    def complete(self, operation: GroupOperation) -> None:
        """It is over. Nothing, if it does not wait."""
        if self._waiting.pop(operation, None) is not None:
            self._purgatories.of(operation).cancel_for_key((self, operation))

    def leave(self) -> None:
        """All are over."""
        for operation in list(self._waiting):
            self.complete(operation)

    def _time_is_up(self, operation: GroupOperation) -> None:
        del self._waiting[operation]
        self._expired(operation)
