"""Whatever happens, in whatever order: a transaction has one outcome, and the log says what the shard knows.

Producers of two transactional ids, zombies among them, in both versions of the protocol, and requests that
come once more later; appends that are refused, late, or given up and still in the log; markers that fail;
time-outs, expiry; and at any moment another coordinator, whose log may lack what was not committed.

The model knows the newest committed record of each id that its coordinator has heard of (``heard``), every
answer, and every marker that was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.coordinator.transaction.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    Append,
    Effects,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    WriteMarkers,
)
from minikafka.coordinator.transaction.metadata import (
    EPOCH_MAX,
    VALID_PREVIOUS_STATES,
    TransactionState,
    TxnTransitMetadata,
    metadata_of,
)
from minikafka.coordinator.transaction.shard import RETRY_MS
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.transaction_record_codec import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
)
from tests.unit.coordinator.transaction.driver import NOT_IN_TIME, P0, P1, P2, TOO_FEW, Asked, Driver

NAMES = ("fresh", "worn")
MARKER_ERRORS = (
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
)

names = st.sampled_from(NAMES)
booleans = st.booleans()
partitions = st.sets(st.sampled_from((P0, P1, P2)), max_size=2)


class Producer(msgspec.Struct, frozen=True):
    """What a producer was told once; it may be a zombie by now."""

    name: str
    producer_id: int
    epoch: int


class NotingDriver(Driver):
    """Notes what is committed and which markers leave."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.heard: dict[str, TransactionLogValue] = {}
        self.outcomes: dict[tuple[int, int, int], bool] = {}
        """By producer id, epoch of the markers, and start in the first version, whose epoch is that of many
        transactions: whether it was committed."""
        self.marker_epochs: dict[int, int] = {}

    def ask(self, call: Callable[[Any, Any, int], Effects], request: Any) -> Asked:
        self.clock.advance(1)  # so that no two transactions begin at one time
        return super().ask(call, request)

    def commit(self) -> None:
        while self.uncommitted:
            self.settle(0, error=None)

    def settle(self, index: int, *, error: KafkaError | None) -> None:
        """One append hears that it is committed, which is in their order, or that it is not, in any."""
        append, end = self.uncommitted.pop(index)
        if error is not None:
            self.carry_out(append.failed(error, self.now_ms))
            return
        self.high_watermark = max(self.high_watermark, end)
        self._hear(append)
        self.carry_out(append.committed(self.now_ms))

    def _hear(self, append: Append) -> None:
        for record in append.records:
            name = record.key.transactional_id
            before = self.heard.get(name)
            state = TransactionState.EMPTY if before is None else TransactionState(before.transaction_status)
            following = (
                TransactionState.DEAD
                if record.value is None
                else TransactionState(record.value.transaction_status)
            )
            assert state in VALID_PREVIOUS_STATES[following], f"{following} after {state}"
            if record.value is None:
                self.heard.pop(name, None)
            else:
                self.heard[name] = record.value

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, WriteMarkers):
                self._note_markers(effect)
        super().carry_out(effects)

    def _note_markers(self, markers: WriteMarkers) -> None:
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        decided = self.heard[markers.transactional_id]
        assert decided.transaction_status == (2 if markers.is_commit else 3), "it is committed"
        assert decided.transaction_partitions.issuperset(markers.partitions)
        is_version_2 = markers.transaction_version == 2
        start_ms = -1 if is_version_2 else decided.transaction_start_timestamp_ms
        transaction = (producer_id, epoch, start_ms)
        assert self.outcomes.setdefault(transaction, markers.is_commit) is markers.is_commit
        assert self.marker_epochs.get(producer_id, -1) <= epoch, "no older transaction ends later"
        self.marker_epochs[producer_id] = epoch

    def reload(self, *, lost: int = 0) -> None:
        kept = self.log[: len(self.log) - lost]
        self.heard = {}
        for record in kept:
            if record.value is None:
                self.heard.pop(record.key.transactional_id, None)
            else:
                self.heard[record.key.transactional_id] = record.value
        super().reload(lost=lost)

    def known(self) -> dict[str, TxnTransitMetadata]:
        """What the shard takes for committed; not that ids wait for their first epoch."""
        ids = self.shard._transactions.ids
        return {
            name: metadata.current for name, metadata in ids.items() if metadata.current.producer_epoch >= 0
        }


def as_logged(current: TxnTransitMetadata) -> TxnTransitMetadata:
    """The last epoch is not in the log."""
    return msgspec.structs.replace(current, last_producer_epoch=-1)


class TransactionMachine(RuleBasedStateMachine):
    @initialize(transaction_version=st.sampled_from((1, 2)))
    def begin(self, transaction_version: int) -> None:
        self.driver = NotingDriver(transaction_version=transaction_version, transactional_id_expiration_ms=60)
        self.producers: list[Producer] = []
        self.seen: set[int] = set()
        """Whose answers were looked at, by position."""
        self.told: dict[int, int] = {}
        """The highest epoch that anybody was told, by producer id."""
        self.sent_seen = 0
        self.aborts_seen: set[tuple[int, int]] = set()
        self.ended: dict[tuple[int, int], bool] = {}
        """Ends of the second version that were answered, by what the request said."""
        worn = TransactionLogValue(
            producer_id=7,
            producer_epoch=EPOCH_MAX - 4,
            transaction_timeout_ms=20,
            transaction_status=0,
            transaction_partitions=frozenset(),
            transaction_last_update_timestamp_ms=self.driver.now_ms,
        )
        self.driver.log.append(TransactionRecord(TransactionLogKey("worn"), worn))
        self.driver.reload()

    # Producers

    def _sent(self, asked: Asked, before: dict[str, TxnTransitMetadata], appends: int) -> None:
        """A refusal has changed nothing."""
        if asked.is_refused:
            assert self.driver.known() == before
            assert len(self.driver.appends) == appends

    @rule(name=names, to=partitions, is_v2=booleans, commit=booleans)
    def transact(self, name: str, to: set[Any], is_v2: bool, commit: bool) -> None:
        """A producer that does everything right, as far as it comes."""
        began = self.driver.init(name=name, timeout_ms=20)
        if not began.waits and isinstance(began.answer, InitProducerIdResult):
            producer_id, epoch = began.answer.producer_id, began.answer.producer_epoch
            added = self.driver.add(producer_id, epoch, *sorted(to), name=name, is_v2=is_v2)
            if not added.waits and isinstance(added.answer, AddPartitionsToTxnResult):
                self.driver.end(producer_id, epoch, commit=commit, name=name, is_v2=is_v2)

    @rule(name=names, timeout_ms=st.sampled_from((10, 20)))
    def init(self, name: str, timeout_ms: int) -> None:
        before, appends = self.driver.known(), len(self.driver.appends)
        self._sent(self.driver.init(name=name, timeout_ms=timeout_ms), before, appends)

    def _producer(self, index: int) -> Producer:
        """The newest are the likeliest."""
        return self.producers[-1 - index % len(self.producers)]

    @precondition(lambda self: self.producers)
    @rule(index=st.integers(0, 3))
    def init_again(self, index: int) -> None:
        producer = self._producer(index)
        before, appends = self.driver.known(), len(self.driver.appends)
        asked = self.driver.init(
            name=producer.name, producer_id=producer.producer_id, epoch=producer.epoch, timeout_ms=20
        )
        self._sent(asked, before, appends)

    @precondition(lambda self: self.producers)
    @rule(index=st.integers(0, 3), to=partitions, is_v2=booleans, verify_only=booleans)
    def add(self, index: int, to: set[Any], is_v2: bool, verify_only: bool) -> None:
        producer = self._producer(index)
        before, appends = self.driver.known(), len(self.driver.appends)
        asked = self.driver.add(
            producer.producer_id,
            producer.epoch,
            *sorted(to),
            name=producer.name,
            is_v2=is_v2,
            verify_only=verify_only,
        )
        self._sent(asked, before, appends)

    @precondition(lambda self: self.producers)
    @rule(index=st.integers(0, 3), commit=booleans, is_v2=booleans)
    def end(self, index: int, commit: bool, is_v2: bool) -> None:
        producer = self._producer(index)
        before, appends = self.driver.known(), len(self.driver.appends)
        asked = self.driver.end(
            producer.producer_id, producer.epoch, commit=commit, name=producer.name, is_v2=is_v2
        )
        self._sent(asked, before, appends)

    @precondition(lambda self: self.driver.asked)
    @rule(index=st.integers(0, 9))
    def a_request_comes_once_more(self, index: int) -> None:
        request = self.driver.asked[-1 - index % len(self.driver.asked)].request
        shard = self.driver.shard
        call = {
            InitProducerId: shard.init_producer_id,
            EndTxn: shard.end_txn,
            AddPartitionsToTxn: shard.add_partitions,
        }[type(request)]
        before, appends = self.driver.known(), len(self.driver.appends)
        self._sent(self.driver.ask(call, request), before, appends)

    # The world

    @precondition(lambda self: self.driver.uncommitted)
    @rule()
    def an_append_is_committed(self) -> None:
        self.driver.settle(0, error=None)

    @precondition(lambda self: self.driver.uncommitted)
    @rule(data=st.data())
    def an_append_is_given_up(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.driver.uncommitted) - 1))
        self.driver.settle(index, error=NOT_IN_TIME)

    @rule(appends=booleans, markers=booleans, ids=booleans)
    def the_world_is_slow_or_not(self, appends: bool, markers: bool, ids: bool) -> None:
        self.driver.hold, self.driver.hold_markers, self.driver.hold_ids = appends, markers, ids

    @rule(is_refused=booleans)
    def the_log_takes_something_or_not(self, is_refused: bool) -> None:
        self.driver.refuse = TOO_FEW if is_refused else None

    @precondition(lambda self: self.driver.unanswered_markers)
    @rule(data=st.data())
    def markers_are_answered(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.driver.unanswered_markers) - 1))
        markers = self.driver.unanswered_markers.pop(index)
        errors = {each: data.draw(st.sampled_from(MARKER_ERRORS)) for each in markers.partitions}
        driver = self.driver
        driver.carry_out(driver.shard.markers_written(markers, errors, driver.now_ms))

    @precondition(lambda self: self.driver.allocations)
    @rule(is_there=booleans)
    def producer_ids_come(self, is_there: bool) -> None:
        self.driver.give_ids(None if is_there else KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    @rule(duration_ms=st.integers(1, 15))
    def time_passes(self, duration_ms: int) -> None:
        self.driver.advance(duration_ms)

    @rule()
    def the_sweeps_come(self) -> None:
        self.driver.abort_timed_out()
        self.driver.remove_expired()

    @rule(data=st.data())
    def another_coordinator_reads_the_log(self, data: st.DataObject) -> None:
        uncommitted = len(self.driver.log) - self.driver.high_watermark
        self.driver.reload(lost=data.draw(st.integers(0, uncommitted)))

    # What must hold

    @invariant()
    def the_shard_knows_what_is_committed(self) -> None:
        logged = {name: metadata_of(value) for name, value in self.driver.heard.items()}
        known = {name: as_logged(current) for name, current in self.driver.known().items()}
        assert known == logged

    @invariant()
    def who_is_fenced_does_not_have_the_epoch_of_the_abort(self) -> None:
        """Before the answers of this step are looked at."""
        for markers in self.driver.sent[self.sent_seen :]:
            transaction = (markers.producer_id, markers.producer_epoch)
            if not markers.is_commit and transaction not in self.aborts_seen | self._requested_aborts():
                assert markers.producer_epoch > self.told.get(markers.producer_id, -1)
                self.aborts_seen.add(transaction)
        self.sent_seen = len(self.driver.sent)
        self._look_at_answers()

    def _requested_aborts(self) -> set[tuple[int, int]]:
        """Of the first version, whose markers have the producer's epoch."""
        requests = [asked.request for asked in self.driver.asked]
        return {
            (request.producer_id, request.producer_epoch)
            for request in requests
            if isinstance(request, EndTxn)
            and not request.is_commit
            and request.client_transaction_version < 2
        }

    def _look_at_answers(self) -> None:
        for position, asked in enumerate(self.driver.asked):
            if asked.answers and position not in self.seen:
                self.seen.add(position)
                self._look_at(asked.request, asked.answers[0])

    def _look_at(self, request: Any, answer: Any) -> None:
        if not isinstance(answer, InitProducerIdResult | EndTxnResult):
            return
        if isinstance(answer, EndTxnResult) and request.client_transaction_version == 2:
            key = (request.producer_id, request.producer_epoch)
            assert self.ended.setdefault(key, request.is_commit) is request.is_commit
        if answer.producer_id < 0:
            return
        assert 0 <= answer.producer_epoch < EPOCH_MAX, "the last one is for fencing"
        assert self.told.get(answer.producer_id, 0) <= answer.producer_epoch, "epochs never fall"
        self.told[answer.producer_id] = answer.producer_epoch
        self.producers.append(Producer(request.transactional_id, answer.producer_id, answer.producer_epoch))

    def teardown(self) -> None:
        """When everything works again, every producer can begin again, and every one was answered."""
        driver = self.driver
        driver.refuse, driver.hold, driver.hold_markers, driver.hold_ids = None, False, False, False
        driver.commit()
        driver.advance(RETRY_MS)
        driver.answer_markers()
        driver.give_ids()
        for name in NAMES:
            asked = driver.init(name=name)
            if asked.answer is ErrorCode.CONCURRENT_TRANSACTIONS:  # it has aborted what was going on
                asked = driver.init(name=name)
            assert isinstance(asked.answer, InitProducerIdResult)
        assert not [asked for asked in driver.asked if asked.waits]


TransactionMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestTransactions = TransactionMachine.TestCase
