"""One partition of a coordinator's topic that this broker coordinates: its shard, and the shard's effects.

Kafka: ``CoordinatorRuntime.CoordinatorContext``. The shard, a ``GroupShard`` or a ``TransactionShard``, only
says what it wants done; here it is done. Whatever reaches a shard (a request, a delay that is over, the
outcome of a write) takes its turn: its effects are carried out, in their order, before the next one is heard,
also when one comes up in the middle of another's effects. So ``committed`` is called in the order of the log.

States::

    LOADING --all is replayed--> ACTIVE
    LOADING --the log cannot be read--> FAILED
    any     --another leads, or in a new epoch--> CLOSED
    ACTIVE  --an exception, which is our bug--> CLOSED, and loaded again

Requests are answered COORDINATOR_LOAD_IN_PROGRESS while LOADING and NOT_COORDINATOR when FAILED or CLOSED. A
closed shard answers the requests that wait for it and does nothing more: what it wanted to write is refused.

What waits in a coordinator's shards, each until it is over or its time is up.

In groups these are joins, syncs, sessions and revocations. Kafka: ``DelayedJoin``, ``DelayedSync`` (purgatory
"Rebalance") and ``DelayedHeartbeat`` (purgatory "Heartbeat") of the coordinator of 3.x; 4.x has the timer
without the purgatories. A shard says when one begins (``Park``) and when it is over (``Complete``), so an
operation never looks whether it could complete; it only ever completes or expires. Parking under the name of
one that waits restarts its time, as each heartbeat does with the member's session.

Different from Kafka, where each heartbeat completes the member's operation and parks another: here it mostly
moves the deadline (``Timer.postpone``). It expires at the same time, and as many wait.

How long it takes a coordinator to load a partition of its topic. Kafka: the sensors
``GroupPartitionLoadTime`` and ``TransactionsPartitionLoadTime``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from minikafka.clock import Clock
from minikafka.coordinator.effects import Answer, Append, Complete, Park, Ticket
from minikafka.errors import ErrorCode, KafkaError
from minikafka.purgatory import DelayedOperation, DelayedOperationPurgatory
from minikafka.server.coordinator.service import CoordinatorLog
from minikafka.server.replica.delayed_operations import Settled
from minikafka.types import Offset

Operation = Hashable
"""The name of what waits; the coordinator's ``effects`` say which there are."""

Expired = Callable[[Any], None]
"""Told when the time of an operation is up."""


class DelayedShardOperation(DelayedOperation):
    """Something that a shard waits for."""

    __slots__ = ("_expired", "operation")

    def __init__(self, operation: Operation, timeout_ms: int, expired: Expired) -> None:
        super().__init__(max(timeout_ms, 0))
        self.operation = operation
        self._expired = expired

    def waits_for(self) -> str:
        kind = self.operation[0] if isinstance(self.operation, tuple) else self.operation
        return _ENDS.get(getattr(kind, "value", ""), "")

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        """Nothing: the shard knows."""

    def on_expiration(self) -> None:
        self._expired(self.operation)


_ENDS: Final = {
    "join": "all members to join again",
    "sync": "all members to sync",
    "new-member": "the member to join with the id that it was given",
    "session": "the member's next heartbeat",
    "revocation": "the member to give back what it is to revoke",
    "first-assignment": "other first members",
}
"""What ends an operation before its time is up, by its kind, for people."""


def operation_text(operation: Operation) -> str:
    """Of a named tuple of a kind and names: ``session of app, member a-1``."""
    if not isinstance(operation, tuple):
        return str(operation)
    kind, *names = operation
    what = str(getattr(kind, "name", kind)).lower().replace("_", " ")
    return f"{what} of {', member '.join(str(each) for each in names if each)}"


Purgatory = DelayedOperationPurgatory[DelayedShardOperation]

PurgatoryOf = Callable[[Any], Purgatory]
"""Where an operation waits."""


class ShardOperations:
    """Those of one shard. They leave together when the shard does."""

    __slots__ = ("_expired", "_purgatory_of", "_waiting")

    def __init__(self, purgatory_of: PurgatoryOf, expired: Expired) -> None:
        self._purgatory_of = purgatory_of
        self._expired = expired
        self._waiting: dict[Operation, DelayedShardOperation] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, park: Park[Any]) -> None:
        """Let an operation wait for so long from now on, also if it waits already."""
        operation, timeout_ms = park
        purgatory = self._purgatory_of(operation)
        waiting = self._waiting.get(operation)
        if waiting is not None:
            if purgatory.postpone(waiting, timeout_ms):
                return
            purgatory.cancel_for_key((self, operation))
        delayed = DelayedShardOperation(operation, timeout_ms, self._time_is_up)
        self._waiting[operation] = delayed
        purgatory.watch(delayed, ((self, operation),))

    def expiration_ms(self, operation: Operation) -> int | None:
        """When the time of an operation is up, on the monotonic clock; None: it does not wait."""
        waiting = self._waiting.get(operation)
        return None if waiting is None else waiting.expiration_ms

    def complete(self, operation: Operation) -> None:
        """It is over. Nothing, if it does not wait."""
        if self._waiting.pop(operation, None) is not None:
            self._purgatory_of(operation).cancel_for_key((self, operation))

    def leave(self) -> None:
        """All are over."""
        for operation in list(self._waiting):
            self.complete(operation)

    def _time_is_up(self, operation: Operation) -> None:
        del self._waiting[operation]
        self._expired(operation)


logger = logging.getLogger(__name__)

Effects = Sequence[Any]
"""Those of ``coordinator.effects``, and what the coordinator's own has besides."""


class CoordinatorShard(Protocol):
    """What all shards have in common."""

    def loaded(self, now_ms: int) -> Effects: ...
    def expired(self, operation: Any, now_ms: int, /) -> Effects: ...
    def waiting(self) -> Sequence[Ticket]: ...


S = TypeVar("S", bound=CoordinatorShard)

Call = Callable[[S, int], Effects]
"""A call of a shard, which is given the time in milliseconds since the Unix epoch."""

TicketCall = Callable[[S, Ticket, int], Effects]


class ShardState(Enum):
    """See the module header."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class RequestTicket:
    """A request that waits for its answer, which is given to ``then``: a struct of ``messages`` or a
    KafkaError. Only the first answer counts: a shard that is closed has answered all."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Any], None]) -> None:
        self._then: Callable[[Any], None] | None = then

    def answer(self, result: Any) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(result)


class HostedShard(Generic[S]):
    """See the module header."""

    def __init__(
        self,
        shard: S,
        log: CoordinatorLog[Any],
        *,
        leader_epoch: int,
        purgatory_of: PurgatoryOf,
        do_other: Callable[[HostedShard[S], Any], None],
        clock: Clock,
        broken: Callable[[], None],
    ) -> None:
        """``do_other`` carries out effects that only this coordinator's shards have. ``broken`` is called
        after a bug: what is in memory may not be what is in the log."""
        self.shard = shard
        self.state = ShardState.LOADING
        self.leader_epoch = leader_epoch
        self._log = log
        self._clock = clock
        self._broken = broken
        self._do_other = do_other
        self._operations = ShardOperations(purgatory_of, self._expired)
        self._turns: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def __repr__(self) -> str:
        return (
            f"HostedShard({self._log.topic_partition}, {self.state.value}, epoch={self.leader_epoch}, "
            f"{self.shard!r}, {len(self._operations)} operations wait)"
        )

    def check_active(self) -> S:
        """The shard, to be asked what needs no waiting.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
        """
        if self.state is ShardState.ACTIVE:
            return self.shard
        if self.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading.")
        raise not_coordinator()

    def expiration_ms(self, operation: Operation) -> int | None:
        """See ``ShardOperations.expiration_ms``."""
        return self._operations.expiration_ms(operation)

    def ask(self, call: TicketCall[S], ticket: RequestTicket) -> None:
        """A request, which ``ticket`` stands for, in its turn."""

        def turn() -> None:
            try:
                try:
                    effects: Effects = call(self.check_active(), ticket, self._clock.now_ms())
                except KafkaError as error:
                    effects = [Answer(ticket, error)]
                self._carry_out(effects)
            except Exception:  # our bug, which ``_take_turn`` deals with; here who asked hears of it
                _answer(ticket, _FAILED)
                raise

        self._take_turn(turn)

    def tell(self, call: Call[S]) -> None:
        """A call without an answer, in its turn. Nothing, when the shard is not active."""

        def turn() -> None:
            if self.state is ShardState.ACTIVE:
                self._carry_out(call(self.shard, self._clock.now_ms()))

        self._take_turn(turn)

    def _expired(self, operation: Operation) -> None:
        def turn() -> None:
            if self.state is ShardState.ACTIVE:
                self._carry_out(self.shard.expired(operation, self._clock.now_ms()))

        self._take_turn(turn)

    def when_committed(self, end_offset: Offset, settled: Settled) -> None:
        """Call ``settled`` when all of the log below ``end_offset`` is committed, or cannot be, or is not in
        time."""
        self._log.when_committed(end_offset, settled)

    def activate(self) -> None:
        """The log is replayed."""
        self.state = ShardState.ACTIVE
        self.tell(lambda shard, now_ms: shard.loaded(now_ms))

    def fail(self) -> None:
        """The log cannot be read."""
        self.state = ShardState.FAILED

    def close(self) -> None:
        """Another broker coordinates, or this one loads it again."""
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        self._operations.leave()
        if was_active:
            for ticket in self.shard.waiting():
                _answer(ticket, not_coordinator())

    # Effects

    def _take_turn(self, turn: Callable[[], None]) -> None:
        turns = self._turns
        turns.append(turn)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while turns:
                try:
                    turns.popleft()()
                except Exception:  # our bug: it must neither end the broker or its caller, nor be built upon
                    logger.exception("%r failed, and is loaded again", self)
                    if self.state is ShardState.ACTIVE:
                        self.close()
                        self._broken()
        finally:
            self._is_busy = False

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Answer():
                    _answer(effect.ticket, effect.result)
                case Append():
                    self._append(effect)
                case Park():
                    if self.state is ShardState.ACTIVE:
                        self._operations.park(effect)
                case Complete():
                    self._operations.complete(effect.operation)
                case _:
                    self._do_other(self, effect)

    def _append(self, append: Append[Any, Any]) -> None:
        now_ms = self._clock.now_ms()
        try:
            if self.state is not ShardState.ACTIVE:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self!r} writes no more")
            required_offset = self._log.append(append.records, now_ms=now_ms, transaction=append.transaction)
        except KafkaError as error:
            self._carry_out(append.failed(error, now_ms))
            return
        append.end_offset = required_offset
        self._carry_out(append.written(now_ms))
        self._log.when_committed(
            required_offset, partial(self._settled, append), timeout_ms=append.timeout_ms
        )

    def _settled(self, append: Append[Any, Any], error: KafkaError | None) -> None:
        def turn() -> None:
            now_ms = self._clock.now_ms()
            try:
                self._carry_out(append.committed(now_ms) if error is None else append.failed(error, now_ms))
            except Exception:  # our bug, as above; here who waits for this write hears of it, and no more
                self._carry_out([each for each in append.failed(_FAILED, now_ms) if isinstance(each, Answer)])
                raise

        self._take_turn(turn)


_FAILED = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed; the broker's log says why.")


def not_coordinator() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")


def _answer(ticket: Ticket, result: Any) -> None:
    assert isinstance(ticket, RequestTicket)
    try:
        ticket.answer(result)
    except Exception:  # one answer that cannot be written must not keep the others; its connection closes
        logger.exception("an answer of a coordinator could not be sent")
