"""The log against a model that is a list: appended, rolled, truncated, deleted, restarted, they agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.clock import ManualClock
from minikafka.log.unified_log import UnifiedLog
from minikafka.types import LeaderEpoch
from tests.unit.log.log_helpers import (
    HIGH_WATERMARK,
    LOG_END,
    NOW_MS,
    batch,
    open_log,
    read_all,
    small_config,
)


class LogMachine(RuleBasedStateMachine):
    """``records`` is the model: (offset, value, timestamp), without gaps below ``end``."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="minikafka-model-"))
        self.clock = ManualClock(NOW_MS)
        self.config = small_config(segment_bytes=700, index_interval_bytes=100, retention_ms=10_000)
        self.log: UnifiedLog
        self.records: list[tuple[int, bytes, int]] = []
        self.batch_starts: list[int] = []
        self.start = self.end = self.high_watermark = self.epoch = 0
        self.epoch_starts: dict[int, int] = {}
        self.sequence = 0

    @initialize()
    def begin(self) -> None:
        self.log = self._load(clean=False)

    def _load(self, *, clean: bool) -> UnifiedLog:
        return open_log(
            self.directory / "t-0",
            clean=clean,
            clock=self.clock,
            config=self.config,
            log_start_offset=self.start,
            recovery_point=self.log.recovery_point if hasattr(self, "log") else 0,
        )

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4), delay_ms=st.integers(0, 3000))
    def append(self, sizes: list[int], delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        now_ms = self.clock.now_ms()
        values = [bytes([self.end % 256]) * size for size in sizes]
        records = batch(values, timestamps=[now_ms] * len(values))
        info = self.log.append_as_leader(records, leader_epoch=LeaderEpoch(self.epoch))
        assert info.first_offset == self.end
        self.epoch_starts.setdefault(self.epoch, self.end)
        self.batch_starts.append(self.end)
        for value in values:
            self.records.append((self.end, value, now_ms))
            self.end += 1

    @rule(data=st.data())
    def move_high_watermark(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.integers(self.high_watermark, self.end))
        self.log.update_high_watermark(self.high_watermark)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.end)
        self.epoch_starts[self.epoch] = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = max(self.start, data.draw(st.integers(0, self.high_watermark)))
        self.log.increment_log_start_offset(self.start)
        self._forget_below_start()

    @rule(delay_ms=st.integers(0, 20_000))
    def retain(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        self.log.delete_old_segments()
        assert self.log.log_start_offset >= self.start
        kept = {segment.base_offset for segment in self.log.segments}
        self.start = self.log.log_start_offset
        assert self.start <= self.high_watermark
        for offset, _, timestamp in self.records:
            if offset < self.start and offset < min(kept):
                assert offset < self.start or timestamp < self.clock.now_ms() - 10_000
        self._forget_below_start()

    def _forget_below_start(self) -> None:
        self.records = [record for record in self.records if record[0] >= self.start]

    @precondition(lambda self: self.batch_starts)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(target)
        if target < self.end:
            inside = [start for start in self.batch_starts if start <= target]
            # A batch that reaches the target goes as a whole.
            is_start = target in self.batch_starts
            end = target if is_start or not inside else inside[-1]
            self.batch_starts = [start for start in self.batch_starts if start < end]
            self.end = end
            self.start = min(self.start, end)
            self.records = [record for record in self.records if record[0] < end]
            self.high_watermark = min(self.high_watermark, end)
        self.epoch_starts = {e: start for e, start in self.epoch_starts.items() if start < self.end}
        self.epoch = max(self.epoch, *self.epoch_starts, 0) if self.epoch_starts else self.epoch

    @rule(offset=st.integers(0, 500))
    def start_over(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.start = self.end = self.high_watermark = offset
        self.records, self.batch_starts, self.epoch_starts = [], [], {}

    @rule(clean=st.booleans(), flush=st.booleans())
    def restart(self, clean: bool, flush: bool) -> None:
        if flush and (pending := self.log.begin_flush()) is not None:
            pending.run()
            self.log.complete_flush(pending)
        if clean:
            self.log.close()
        else:
            self.log.segments.release()  # killed: nothing is trimmed, no snapshot is written
        self.log = self._load(clean=clean)
        self.epoch_starts = {e: start for e, start in self.epoch_starts.items() if start < self.end}
        self.high_watermark = self.start
        self.log.update_high_watermark(self.high_watermark)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        log.validate()
        bounds = (log.log_start_offset, log.high_watermark, log.log_end_offset)
        assert bounds == (self.start, self.high_watermark, self.end)
        pairs = [(offset, value) for offset, value, _ in self.records]
        assert read_all(log, isolation=LOG_END, max_bytes=300) == pairs
        visible = [pair for pair in pairs if pair[0] < self.high_watermark]
        # A batch across the high watermark is not shown yet.
        shown = read_all(log, isolation=HIGH_WATERMARK, max_bytes=99_999)
        assert shown == visible[: len(shown)] and len(visible) - len(shown) < 4
        if self.records:
            middle = self.records[len(self.records) // 2]
            first = next(record for record in self.records if record[2] >= middle[2])
            assert log.offset_for_timestamp(middle[2]) == (first[2], first[0])

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


LogMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestLogModel = LogMachine.TestCase
