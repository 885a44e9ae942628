"""Any log, compacted in any rounds, against a model: I15, and what consumers may rely on."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.clock import ManualClock
from minikafka.log.cleanable_log import CleanableLog
from minikafka.log.cleaner import ENTRY_BYTES
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import CompressionType
from minikafka.protocol.records.records import ControlRecordType
from minikafka.types import LeaderEpoch
from tests.unit.log.cleaner_helpers import batches, compact, compacted_config, contents, keyed
from tests.unit.log.log_helpers import COMMITTED, NOW_MS, marker, open_log, read_all

KEYS = [b"a", b"b", b"c", b"a key of more than sixteen bytes", b"x" * 16]
records = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=6
)
codecs = st.sampled_from(list(CompressionType))
produce = st.tuples(st.just("produce"), records, codecs, st.sampled_from([-1, 1, 2]), st.booleans())
commands = st.one_of(
    produce,
    produce,
    st.tuples(st.just("end"), st.sampled_from([1, 2]), st.sampled_from(list(ControlRecordType))),
    st.tuples(st.just("roll")),
    st.tuples(st.just("high watermark"), st.integers(0, 6)),
    st.tuples(st.just("wait"), st.integers(1, 1500)),
    st.tuples(st.just("compact"), st.integers(6, 12)),
    st.tuples(st.just("restart"), st.booleans()),
)


class Model:
    """The log under test, and everything that was ever written to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock(NOW_MS)
        self.config = compacted_config()
        self.log: UnifiedLog = open_log(directory, config=self.config, clock=self.clock)
        self.sequences = {1: 0, 2: 0}
        self.open: set[int] = set()
        self.written: dict[int, tuple[bytes, bytes | None, int]] = {}
        """Offset → key, value, number of the transaction (0: none)."""
        self.transactions = [0]
        self.current: dict[int, int] = {}
        self.aborted: set[int] = set()

    def run(self, command: tuple) -> None:  # type: ignore[type-arg]
        getattr(self, "do_" + command[0].replace(" ", "_"))(*command[1:])
        self.check()

    def do_produce(
        self, batch: list[tuple[bytes, bytes | None]], codec: CompressionType, producer: int, txn: bool
    ) -> None:
        txn = (txn and producer > 0) or producer in self.open
        options: dict[str, object] = {"compression": codec}
        number = 0
        if producer > 0:
            options |= {"producer_id": producer, "producer_epoch": 0, "transactional": txn}
            options["base_sequence"] = self.sequences[producer]
            self.sequences[producer] += len(batch)
        if txn:
            if producer not in self.open:
                self.open.add(producer)
                self.transactions.append(len(self.transactions))
                self.current[producer] = self.transactions[-1]
            number = self.current[producer]
        info = self.log.append_as_leader(
            keyed(*batch, timestamp=self.clock.now_ms(), **options), leader_epoch=LeaderEpoch(0)
        )
        for index, (key, value) in enumerate(batch):
            self.written[info.first_offset + index] = (key, value, number)

    def do_end(self, producer: int, kind: ControlRecordType) -> None:
        if producer in self.open:
            self.open.discard(producer)
            self.log.append_as_leader(
                marker(kind, producer_id=producer),
                leader_epoch=LeaderEpoch(0),
                origin=AppendOrigin.COORDINATOR,
            )
            if kind is ControlRecordType.ABORT:
                self.aborted.add(self.current[producer])

    def do_roll(self) -> None:
        if self.log.segments.active.size:
            self.log.roll()

    def do_high_watermark(self, back: int) -> None:
        """To where the batch that is ``back`` from the last one begins."""
        ends = [0, *(header.next_offset for header, _ in batches(self.log)), self.log.log_end_offset]
        self.log.update_high_watermark(max(self.log.high_watermark, ends[max(-1 - back, -len(ends))]))

    def do_wait(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)

    def do_compact(self, entries: int) -> None:
        cleanable = CleanableLog(self.log, now_ms=self.clock.now_ms())
        before = batches(self.log)
        bound = cleanable.first_uncleanable_offset
        result = compact(self.log, clock=self.clock, map_bytes=entries * ENTRY_BYTES)
        assert result.end_offset <= bound <= self.log.last_stable_offset
        above = [each for each in before if each[0].base_offset >= bound]
        assert [each for each in batches(self.log) if each[0].base_offset >= bound] == above

    def do_restart(self, clean: bool) -> None:
        first_dirty_offset, high_watermark = self.log.first_dirty_offset, self.log.high_watermark
        self.log.close()
        self.log = open_log(self.directory, config=self.config, clock=self.clock, clean=clean)
        self.log.first_dirty_offset = first_dirty_offset
        self.log.update_high_watermark(high_watermark)

    def check(self) -> None:
        self.log.validate()
        found = {offset: (key, value) for offset, key, value in contents(self.log)}
        for offset, (key, value) in found.items():
            assert self.written[offset][:2] == (key, value)  # at its offset, as it was written
        newest: dict[bytes, int] = {}
        bound = self.log.last_stable_offset
        for offset, (key, _, transaction) in sorted(self.written.items()):
            if transaction in self.aborted:
                continue
            if offset < bound:
                newest[key] = offset
            else:
                assert offset in found  # nothing is missing where nothing may be compacted
        for key, offset in newest.items():
            if self.written[offset][1] is not None:
                assert offset in found, f"{key!r} is lost"
        visible: dict[bytes, bytes | None] = {}
        for offset, value in read_all(self.log, isolation=COMMITTED):
            assert self.written[offset][2] not in self.aborted or offset in found
            if self.written[offset][2] not in self.aborted:
                visible[self.written[offset][0]] = value
        for key, value in visible.items():
            assert value == self.written[newest[key]][1], "an older value is back"


@settings(max_examples=80, deadline=None)
@given(st.lists(commands, max_size=40))
def test_compaction_keeps_the_newest_of_each_key(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as directory:
        model = Model(Path(directory) / "t-0")
        for step in steps:
            model.run(step)
        model.run(("high watermark", 0))
        model.run(("roll",))
        model.run(("compact", 12))
        model.run(("restart", False))
        model.log.close()
