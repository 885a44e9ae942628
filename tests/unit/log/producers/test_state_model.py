"""The producer state of a log that is appended to, rolled, truncated and restarted, against one that has been
told of every batch that is left.

The model keeps those batches, and the expirations between them, and tells a fresh producer state of them. A
truncation above the high watermark must leave exactly that state, with every retained batch of each producer.
Behind a snapshot, which has only a producer's last batch, the log may know less; the model goes on from there
with what the log knows.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikafka.clock import ManualClock
from minikafka.files import OsFiles
from minikafka.log.producers.append import AppendOrigin, CompletedTransaction
from minikafka.log.producers.state import ProducerStateManager, replay
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import BatchHeader, read_header
from minikafka.protocol.records.records import ControlRecordType
from minikafka.types import LeaderEpoch
from tests.unit.log.log_helpers import NOW_MS, TP, batch, idempotent, marker, open_log, small_config

PRODUCERS = range(1, 5)
EXPIRATION_MS = 10_000

producers = st.sampled_from(PRODUCERS)


class Told:
    """Everything that a producer state was told of: batches, and times at which it forgot the expired."""

    def __init__(self, since: ProducerStateManager, offset: int) -> None:
        self._since = copy.deepcopy(since)
        self.offset = offset
        self.events: list[tuple[BatchHeader, bytes] | int] = []

    def truncate(self, end: int) -> None:
        self.events = [each for each in self.events if isinstance(each, int) or each[0].last_offset < end]

    def state(self, high_watermark: int) -> ProducerStateManager:
        state = copy.deepcopy(self._since)
        for event in self.events:
            if isinstance(event, int):
                state.remove_expired(event)
                continue
            header, records = event
            replay(state, header, lambda records=records: records, segment=None)  # type: ignore[misc]
        state.on_high_watermark_updated(high_watermark)
        return state


def seen(state: ProducerStateManager) -> dict[str, Any]:
    """All that one can learn of a producer state."""
    return {
        "producers": dict(state.active_producers()),
        "first unstable": state.first_unstable_offset,
        "first undecided": state.first_undecided_offset,
        "stable after the end of": {
            producer: state.last_stable_offset(CompletedTransaction(producer, 0, 1 << 40, False))
            for producer in PRODUCERS
        },
        "is empty": state.is_empty,
    }


class ProducersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="minikafka-producers-"))
        self.clock = ManualClock(NOW_MS)
        self.log = self._open(clean=False)
        new = ProducerStateManager(
            TP, str(self.directory), OsFiles(), self.clock, producer_id_expiration_ms=1 << 60
        )
        self.from_the_start = Told(new, 0)
        self.told = Told(self.log.producers, 0)
        self.ends = [0]
        self.may_be_unknown: set[int] = set()
        """They were expired, or their records may be deleted."""
        self.forgotten: set[int] = set()
        """Once unknown, so what they wrote since need not follow what they wrote before."""

    def _open(self, *, clean: bool, log_start_offset: int = 0) -> UnifiedLog:
        return open_log(
            self.directory / "t-0",
            clean=clean,
            clock=self.clock,
            config=small_config(segment_bytes=900),
            log_start_offset=log_start_offset,
            producer_id_expiration_ms=EXPIRATION_MS,
        )

    # What happens

    @rule(producer=producers, records=st.integers(1, 3), begins=st.booleans(), new_epoch=st.booleans())
    def write(self, producer: int, records: int, begins: bool, new_epoch: bool) -> None:
        entry = self.log.producers.last_entry(producer)
        sequence = epoch = 0
        if entry is not None:
            epoch = entry.producer_epoch + new_epoch
            sequence = 0 if new_epoch else entry.last_sequence + 1
            begins = begins or entry.current_txn_first_offset is not None
        self._append(
            idempotent(
                sequence,
                epoch=epoch,
                producer_id=producer,
                count=records,
                transactional=begins,
                timestamps=[self.clock.now_ms()] * records,
            )
        )

    @rule(producer=producers, kind=st.sampled_from((ControlRecordType.ABORT, ControlRecordType.COMMIT)))
    def end(self, producer: int, kind: ControlRecordType) -> None:
        entry = self.log.producers.last_entry(producer)
        epoch = 0 if entry is None else entry.producer_epoch
        self._append(marker(kind, producer_id=producer, epoch=epoch), AppendOrigin.COORDINATOR)

    @rule()
    def write_without_an_id(self) -> None:
        self._append(batch([b"plain"]))

    def _append(self, records: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        info = self.log.append_as_leader(records, LeaderEpoch(0), origin)
        self.ends.append(info.last_offset + 1)
        header = read_header(records)._replace(base_offset=info.first_offset)
        if header.producer_id >= 0:
            self.told.events.append((header, records))
            self.from_the_start.events.append((header, records))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def move_high_watermark(self, data: st.DataObject) -> None:
        self.log.update_high_watermark(data.draw(st.integers(self.log.high_watermark, self.ends[-1])))

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.increment_log_start_offset(data.draw(st.integers(0, self.log.high_watermark)))
        self.log.delete_old_segments()
        self.may_be_unknown.update(PRODUCERS)

    @rule(delay_ms=st.integers(0, EXPIRATION_MS))
    def expire(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        before = set(self.log.producers.active_producers())
        self.log.remove_expired_producers()
        self.told.events.append(self.clock.now_ms())
        gone = before.difference(self.log.producers.active_producers())
        self.may_be_unknown |= gone
        self.forgotten |= gone

    @rule(data=st.data(), below_high_watermark=st.integers(0, 4).map(lambda dice: dice == 4))
    def truncate(self, data: st.DataObject, below_high_watermark: bool) -> None:
        log = self.log
        high_watermark, log_start = log.high_watermark, log.log_start_offset
        target = data.draw(st.integers(log_start if below_high_watermark else high_watermark, self.ends[-1]))
        log.truncate_to(target)
        end = log.log_end_offset
        assert end == max([each for each in self.ends if each <= target], default=0)
        self.ends = [each for each in self.ends if each <= end]
        self.from_the_start.truncate(end)
        if end < max(high_watermark, self.told.offset):
            self._reload_from_snapshot()
        self.told.truncate(end)
        self.expire(0)  # an entry that comes back may be one that has expired since

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        high_watermark, log_start = self.log.high_watermark, self.log.log_start_offset
        if clean:
            self.log.close()
        else:
            self.log.segments.release()  # killed: no snapshot is written
        self.log = self._open(clean=clean, log_start_offset=log_start)
        self.log.update_high_watermark(high_watermark)
        self._reload_from_snapshot()

    def _reload_from_snapshot(self) -> None:
        """The log has gone back to a snapshot: its state is one that the batches allow."""
        everything = self.from_the_start.state(self.log.high_watermark).active_producers()
        known = self.log.producers.active_producers()
        now_ms = self.clock.now_ms()
        idle = {
            producer
            for producer, entry in everything.items()
            if entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= EXPIRATION_MS
        }
        assert set(everything) - self.may_be_unknown - idle <= set(known) <= set(everything)
        self.forgotten |= set(everything) - set(known)
        for producer in set(known) - self.forgotten:
            entry, whole = known[producer], everything[producer]
            assert entry.producer_epoch == whole.producer_epoch
            # A snapshot has one time of a producer, which may be that of a marker behind its last batch.
            last = [each[:3] for each in whole.batches][len(whole.batches) - len(entry.batches) :]
            assert [each[:3] for each in entry.batches] == last
            assert (entry.current_txn_first_offset is None) == (whole.current_txn_first_offset is None)
        self.told = Told(self.log.producers, self.log.log_end_offset)

    # What holds

    @invariant()
    def the_log_knows_what_it_was_told(self) -> None:
        assert seen(self.log.producers) == seen(self.told.state(self.log.high_watermark))

    @invariant()
    def no_snapshot_is_of_a_later_log(self) -> None:
        offsets = self.log.producers.snapshot_offsets
        assert all(offset <= self.log.log_end_offset for offset in offsets)
        files = {path.name for path in (self.directory / "t-0").glob("*.snapshot")}
        assert files == {f"{offset:020}.snapshot" for offset in offsets}

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


ProducersMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestProducersModel = ProducersMachine.TestCase
