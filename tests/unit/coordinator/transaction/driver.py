"""A broker for tests of the transaction coordinator: its log, its channels to the leaders of partitions, its
producer ids, its clock. It carries effects out in order, as ``server`` does.

Unless the test says otherwise everything succeeds at once. It may say ``refuse`` (the log takes nothing),
``hold`` (written, but above the high watermark until ``commit`` or ``fail``), ``hold_markers`` (sent, and not
answered until ``answer_markers``) and ``hold_ids``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from minikafka.clock import ManualClock
from minikafka.coordinator.transaction.messages import (
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    AddPartitionsToTxn,
    AllocateProducerId,
    Answer,
    Append,
    Effects,
    EndTxn,
    InitProducerId,
    Park,
    TransactionOperation,
    WriteMarkers,
)
from minikafka.coordinator.transaction.shard import TransactionShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.transaction_record_codec import (
    TransactionLogValue,
    TransactionRecord,
    decode_record,
    encode_record,
)
from minikafka.types import TopicPartition

ID = "payments"
TIMEOUT_MS = 60_000
P0, P1, P2 = (TopicPartition("orders", partition) for partition in range(3))
NOT_IN_TIME = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
TOO_FEW = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


class Settings(msgspec.Struct, kw_only=True):
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    transaction_version: int = 2


class Asked:
    """A ticket: a request that was sent, and what came back."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.answers: list[Any] = []
        self.is_refused = False
        """At once, by an exception: nothing may have changed."""

    def __repr__(self) -> str:
        return f"Asked({self.request!r}, answers={self.answers!r})"

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        """The one answer; the code of the error where the request was refused."""
        assert len(self.answers) == 1, f"{len(self.answers)} answers to {self.request!r}"
        answer = self.answers[0]
        return answer.code if isinstance(answer, KafkaError) else answer


class Driver:
    """See the module header."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.clock = ManualClock()
        self.shard = TransactionShard(settings=self.settings)
        self.log: list[TransactionRecord] = []
        """All that is in the leader's log."""
        self.high_watermark = 0
        self.appends: list[Append] = []
        """All that were asked for, refused ones too."""
        self.uncommitted: list[tuple[Append, int]] = []
        """Appends that wait for the high watermark to be at the number beside them."""
        self.sent: list[WriteMarkers] = []
        self.unanswered_markers: list[WriteMarkers] = []
        self.allocations: list[AllocateProducerId] = []
        self.parked: dict[TransactionOperation, int] = {}
        self.next_producer_id = 1000
        self.asked: list[Asked] = []
        self.hold = self.hold_markers = self.hold_ids = False
        self.refuse: KafkaError | None = None

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    # Requests

    def init(
        self, *, producer_id: int = -1, epoch: int = -1, name: str = ID, timeout_ms: int = TIMEOUT_MS
    ) -> Asked:
        request = InitProducerId(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return self.ask(self.shard.init_producer_id, request)

    def add(
        self,
        producer_id: int,
        epoch: int,
        *partitions: TopicPartition,
        name: str = ID,
        is_v2: bool = True,
        verify_only: bool = False,
        knows_abortable: bool = True,
    ) -> Asked:
        request = AddPartitionsToTxn(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=partitions,
            verify_only=verify_only,
            knows_abortable=knows_abortable,
            client_transaction_version=TRANSACTION_VERSION_2 if is_v2 else TRANSACTION_VERSION_1,
        )
        return self.ask(self.shard.add_partitions, request)

    def end(
        self, producer_id: int, epoch: int, *, commit: bool = True, name: str = ID, is_v2: bool = True
    ) -> Asked:
        request = EndTxn(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_commit=commit,
            client_transaction_version=TRANSACTION_VERSION_2 if is_v2 else TRANSACTION_VERSION_1,
        )
        return self.ask(self.shard.end_txn, request)

    def ask(self, call: Callable[[Any, Any, int], Effects], request: Any) -> Asked:
        asked = Asked(request)
        self.asked.append(asked)
        try:
            effects = call(request, asked, self.now_ms)
        except KafkaError as error:
            asked.is_refused = True
            asked.answers.append(error)
        else:
            self.carry_out(effects)
        return asked

    # What the world does

    def commit(self) -> None:
        """The high watermark passes all that is written."""
        self.high_watermark = len(self.log)
        while self.uncommitted:
            append, _ = self.uncommitted.pop(0)
            self.carry_out(append.committed(self.now_ms))

    def fail(self, error: KafkaError = NOT_IN_TIME) -> None:
        """What is written does not get committed in time; it stays in the log."""
        while self.uncommitted:
            append, _ = self.uncommitted.pop(0)
            self.carry_out(append.failed(error, self.now_ms))

    def answer_markers(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """All markers that are under way get this answer."""
        unanswered, self.unanswered_markers = self.unanswered_markers, []
        for markers in unanswered:
            errors = dict.fromkeys(markers.partitions, error)
            self.carry_out(self.shard.markers_written(markers, errors, self.now_ms))

    def give_ids(self, error: KafkaError | None = None) -> None:
        """Those who wait for a producer id get one."""
        allocations, self.allocations = self.allocations, []
        for allocation in allocations:
            if error is not None:
                self.carry_out(allocation.failed(error, self.now_ms))
                continue
            self.next_producer_id += 1
            self.carry_out(allocation.allocated(self.next_producer_id - 1, self.now_ms))

    def advance(self, duration_ms: int) -> None:
        """Let time pass, with what is parked."""
        self.clock.advance(duration_ms)
        for operation, deadline_ms in list(self.parked.items()):
            if deadline_ms <= self.now_ms:
                self.expire(operation)

    def expire(self, operation: TransactionOperation) -> None:
        del self.parked[operation]
        self.carry_out(self.shard.expired(operation, self.now_ms))

    def abort_timed_out(self) -> None:
        self.carry_out(self.shard.abort_timed_out(self.now_ms))

    def remove_expired(self) -> None:
        self.carry_out(self.shard.remove_expired(self.now_ms))

    def reload(self, *, lost: int = 0) -> None:
        """Another broker leads, whose log ends ``lost`` records earlier, and all of that is committed before
        it begins; who waits hears of it."""
        assert len(self.log) - lost >= self.high_watermark, "what is committed is not lost"
        uncommitted, self.uncommitted = self.uncommitted, []
        not_leader = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for append, _ in uncommitted:
            self._answers_only(append.failed(not_leader, self.now_ms))
        for ticket in self.shard.waiting():
            self.carry_out([Answer(ticket, KafkaError(ErrorCode.NOT_COORDINATOR))])
        self.allocations, self.unanswered_markers, self.parked = [], [], {}
        del self.log[len(self.log) - lost :]
        self.high_watermark = len(self.log)
        self.shard = self.replayed()
        self.carry_out(self.shard.loaded(self.now_ms))

    def replayed(self) -> TransactionShard:
        """A shard that has read the log up to the high watermark; by the bytes."""
        shard = TransactionShard(settings=self.settings)
        for record in self.log[: self.high_watermark]:
            shard.replay(decode_record(*encode_record(record)))
        return shard

    # Effects

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Answer(ticket, result):
                    assert isinstance(ticket, Asked)
                    assert ticket.waits, f"a second answer to {ticket.request!r}: {result!r}"
                    ticket.answers.append(result)
                case Append():
                    self._append(effect)
                case Park(operation, timeout_ms):
                    self.parked[operation] = self.now_ms + timeout_ms
                case WriteMarkers():
                    self.sent.append(effect)
                    self.unanswered_markers.append(effect)
                    if not self.hold_markers:
                        self.answer_markers()
                case AllocateProducerId():
                    self.allocations.append(effect)
                    if not self.hold_ids:
                        self.give_ids()

    def _append(self, append: Append) -> None:
        self.appends.append(append)
        if self.refuse is not None:
            self.carry_out(append.failed(self.refuse, self.now_ms))
            return
        self.log.extend(append.records)
        self.carry_out(append.written(self.now_ms))
        self.uncommitted.append((append, len(self.log)))
        if not self.hold:
            self.commit()

    def _answers_only(self, effects: Effects) -> None:
        self.carry_out([effect for effect in effects if isinstance(effect, Answer)])

    # What is seen

    @property
    def states(self) -> list[int]:
        """The states of ``ID`` in the log, as numbers; 6 for a tombstone."""
        of_id = [record.value for record in self.log if record.key.transactional_id == ID]
        return [6 if value is None else value.transaction_status for value in of_id]

    @property
    def last(self) -> TransactionLogValue:
        value = self.log[-1].value
        assert value is not None, "a tombstone"
        return value

    def state(self, name: str = ID) -> str:
        return self.shard.describe_transaction(name).state

    def begun(self, *partitions: TopicPartition, is_v2: bool = True, name: str = ID) -> tuple[int, int]:
        """A transaction is ongoing; its producer id and epoch."""
        result = self.init(name=name).answer
        self.add(result.producer_id, result.producer_epoch, *(partitions or (P0,)), is_v2=is_v2, name=name)
        return result.producer_id, result.producer_epoch
