"""A leader with two followers that fetch, stall and restart as they like, and a store that loses answers.

What must hold after every step, whatever happened:

- the high watermark never falls (I3), and lies between log start and log end;
- every member of the ISR *that the store has* holds everything below it: any of them may be elected now, the
  leader may not even know yet that it is a member, or that it is deposed (I7);
- it has not moved while the committed ISR was smaller than ``min.insync.replicas`` (R12);
- a member that the store took in held everything up to the high watermark and to the start of the epoch
  (I12).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode
from minikafka.replication.partition_replicas import IsrChange, IsrOutcome, IsrRefused, IsrReread, IsrWritten
from minikafka.types import BrokerId
from tests.unit.server.replicas import ALL, BROKER_EPOCH, LAG_MS, ONE, Replicas, batch, state_of

FOLLOWERS = ALL[1:]
follower_ids = st.sampled_from(FOLLOWERS)
times = st.sampled_from([0, LAG_MS + 1])


class LeaderModel(RuleBasedStateMachine):
    """The store's node, and what the followers truly hold, beside the real leader."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())

    @initialize(min_isr=st.sampled_from([1, 1, 2, 3]), members=st.sets(follower_ids))
    def elect(self, min_isr: int, members: set[BrokerId]) -> None:
        self.replicas = Replicas(self.directory, TopicConfig(min_insync_replicas=min_isr))
        self.min_isr = min_isr
        self.isr: tuple[BrokerId, ...] = tuple(each for each in ALL if each == ONE or each in members)
        self.version = 0
        self.epoch = 0
        self.log_ends = dict.fromkeys(FOLLOWERS, 0)
        self.broker_epochs = dict.fromkeys(FOLLOWERS, BROKER_EPOCH)
        self.outcome: IsrOutcome | None = None  # of the change that is in flight, on its way
        self.is_deposed = False
        self.tell_leader()
        self.high_watermark = self.replicas.partition().log.high_watermark
        self.had_enough = True

    def teardown(self) -> None:
        if hasattr(self, "replicas"):
            self.replicas.close()
        shutil.rmtree(self.directory)

    # What the leader is told

    def tell_leader(self) -> None:
        state = state_of(epoch=self.epoch, isr=self.isr, version=self.version)
        assert self.replicas.manager._become(state, {}) is ErrorCode.NONE

    @precondition(lambda self: not self.is_deposed)
    @rule()
    def leader_and_isr_is_sent_again(self) -> None:
        self.tell_leader()

    @precondition(lambda self: not self.is_deposed)
    @rule()
    def the_same_leader_is_elected_again(self) -> None:
        self.epoch += 1
        self.version += 1
        self.tell_leader()

    # What happens on the leader

    @rule(after_ms=times)
    def append(self, after_ms: int) -> None:
        self.replicas.pass_time(after_ms)
        self.replicas.append(batch(2))

    @rule(after_ms=times)
    def followers_that_lag_are_looked_for(self, after_ms: int) -> None:
        self.replicas.pass_time(after_ms)
        partition = self.replicas.partition()
        change = partition.maybe_shrink_isr(self.replicas.clock.monotonic_ms())
        if change is not None:
            self.replicas.manager._submit(partition, change)

    # What followers do

    @precondition(lambda self: not self.is_deposed)  # else they follow the successor
    @rule(follower=follower_ids, takes=st.sampled_from([0, 1, 99]))
    def fetch(self, follower: BrokerId, takes: int) -> None:
        """It says how far it is, and takes some of what it is sent."""
        read = self.replicas.follower_fetch(
            follower, self.log_ends[follower], replica_epoch=self.broker_epochs[follower]
        )
        assert read.error is ErrorCode.NONE
        log_end = self.replicas.partition().log.log_end_offset
        self.log_ends[follower] = min(self.log_ends[follower] + takes, log_end)

    @rule(follower=follower_ids, keeps=st.integers(0, 5), metadata_knows=st.booleans())
    def restart(self, follower: BrokerId, keeps: int, metadata_knows: bool) -> None:
        """Its machine lost power: the end of its log may be gone. The controller takes it out of the ISR."""
        self.log_ends[follower] = min(self.log_ends[follower], keeps)
        self.broker_epochs[follower] += 1
        if metadata_knows:
            self.metadata_hears_of(follower)
        if follower in self.isr:
            self.isr = tuple(member for member in self.isr if member != follower)
            self.version += 1

    @rule(follower=follower_ids)
    def metadata_hears_of(self, follower: BrokerId) -> None:
        self.replicas.broker_started(follower, self.broker_epochs[follower])

    # What the store does with a change

    @property
    def in_flight(self) -> IsrChange | None:
        return self.replicas.partition().replication.isr.in_flight

    @precondition(lambda self: self.replicas.store.submitted and self.outcome is None)
    @rule()
    def the_store_decides(self) -> None:
        """As ``IsrManager`` does: expected version, leader epoch, broker epochs. The answer is on its way."""
        change, _ = self.replicas.store.submitted[0]
        if change.leader_epoch != self.epoch or self.is_deposed:
            self.outcome = IsrRefused("a newer leader epoch")
        elif change.expected_version != self.version or any(
            known not in (-1, self.broker_epochs.get(member, -1))
            for member, known in zip(change.isr, change.broker_epochs, strict=True)
        ):
            self.outcome = IsrReread(self.isr, self.version)
        else:
            for member in change.isr:
                if member not in self.isr:
                    self.check_joined(member)
            self.isr, self.version = change.isr, self.version + 1
            self.outcome = IsrWritten(self.version, self.isr)

    def check_joined(self, member: BrokerId) -> None:
        partition = self.replicas.partition()
        needed = max(partition.log.high_watermark, partition.leader_epoch_start_offset or 0)
        assert self.log_ends[member] >= needed, f"{member} joins at {self.log_ends[member]} of {needed}"

    @precondition(lambda self: self.outcome is not None)
    @rule()
    def the_answer_arrives(self) -> None:
        _, done = self.replicas.store.submitted.pop(0)
        outcome, self.outcome = self.outcome, None
        assert outcome is not None
        done(outcome)

    @precondition(lambda self: len(self.isr) > 1)
    @rule(chance=st.integers(0, 9))
    def a_successor_takes_the_epoch(self, chance: int) -> None:
        """The store and the followers know; this leader does not."""
        if chance == 0:
            self.is_deposed = True
            self.version += 1

    # What holds

    @invariant()
    def the_high_watermark_is_safe(self) -> None:
        if not hasattr(self, "replicas"):
            return
        partition = self.replicas.partition()
        partition.replication.validate()
        log = partition.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.high_watermark >= self.high_watermark, "it fell"
        has_enough = len(partition.isr) >= self.min_isr
        if log.high_watermark > self.high_watermark:
            assert self.had_enough or has_enough, "too few replicas committed it"
            for member in self.isr:
                if member != ONE:
                    assert self.log_ends[member] >= log.high_watermark, f"{member} may be elected"
        self.high_watermark = log.high_watermark
        self.had_enough = has_enough


TestLeader = LeaderModel.TestCase
TestLeader.settings = settings(max_examples=300, stateful_step_count=40)
