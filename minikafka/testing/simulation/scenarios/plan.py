"""What a scenario is going to do, as data: who is there, what they do, and which faults come when.

All of it is drawn before the run, so that a run can be repeated with less of it (``campaign.shrink``): the
plan and the seed together make the run. The dice for delays, losses on disks and the like are not in it.

Nothing in a plan depends on how the run goes, but for what waits until the cluster is whole: what two
machines lose at once none can have, so a power cut comes only while every replica has everything.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from minikafka.testing.broker import Property

TOPIC = "t"
"""The topic that every scenario has; it is never deleted."""


class FaultKind(StrEnum):
    """What happens to a broker. ``scenarios.faults`` does it."""

    KILL = "kill"
    PAUSE = "pause"
    ISOLATE = "isolate"
    CUT_FROM_BROKERS = "cut-from-brokers"
    """And from the store, but not from clients: a leader goes on to append what it cannot replicate."""
    ONE_WAY = "one-way"
    FLAPPING_LINK = "flapping-link"
    WITHOUT_STORE = "without-store"
    SLOW_STORE = "slow-store"
    SLOW_LINK = "slow-link"
    SLOW_DISK = "slow-disk"
    CLEAN_RESTART = "clean-restart"
    DROP_CONNECTIONS = "drop-connections"
    POWER_OFF = "power-off"
    POWER_OFF_IN_NEW_EPOCH = "power-off-in-new-epoch"
    READ_ERROR = "read-error"
    WRITE_ERROR = "write-error"
    DISK_FULL = "disk-full"
    CLOCK_JUMP = "clock-jump"


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault, which ends."""

    kind: FaultKind
    victim: int
    other: int = 0
    """The broker at the other end of a link; 0: there is none."""
    lasts_ms: int = 0
    amount: int = 0
    """How far a clock jumps in ms, how many milliseconds a disk takes, after how many operations it fails."""

    def __str__(self) -> str:
        other = f" to {self.other}" if self.other else ""
        return f"{self.kind} of {self.victim}{other} for {self.lasts_ms} ms"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Faults that begin together, and have ended when the next step begins."""

    after_ms: int
    """Since the end of the step before."""
    faults: tuple[Fault, ...]
    when_whole: bool = False
    """Wait until every replica has everything."""

    def __str__(self) -> str:
        whole = ", when the cluster is whole" if self.when_whole else ""
        return f"after {self.after_ms} ms{whole}: {' and '.join(map(str, self.faults))}"


class ActionKind(StrEnum):
    """What an administrator asks for. ``scenarios.administrator`` does it."""

    REASSIGN = "reassign"
    CANCEL_REASSIGNMENT = "cancel-reassignment"
    ELECT_PREFERRED = "elect-preferred"
    CREATE_TOPIC = "create-topic"
    DELETE_TOPIC = "delete-topic"
    GROW_TOPIC = "grow-topic"
    SET_MIN_INSYNC = "set-min-insync"
    DELETE_RECORDS = "delete-records"


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of an administrator."""

    after_ms: int
    """Since the one before was answered."""
    kind: ActionKind
    ask: int = 1
    """The broker that is asked; others find the controller or the leader themselves."""
    topic: str = TOPIC
    partition: int = 0
    replicas: tuple[int, ...] = ()
    number: int = 0
    """Partitions, replicas, min.insync.replicas, or how many of the oldest records are deleted in percent."""

    def __str__(self) -> str:
        what = f"{self.kind} {self.topic}-{self.partition}"
        return f"after {self.after_ms} ms: {what} {self.replicas or ''} {self.number or ''}".rstrip()


class Producer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Writes numbered records to one partition of ``TOPIC``."""

    partition: int
    pause_ms: int = 40
    in_flight: int = 1
    """Requests that it sends without waiting for the answer to the one before."""
    rests: bool = True
    """Whether it sends nothing for a while now and then: a cluster at rest takes other ways (a fetch that
    waits, an ISR that nothing moves)."""
    timeout_ms: int = 5_000
    """Of a request. A short one leaves a leader that is cut off, and tries what may be there already."""
    acks: int = -1
    """With 1 nothing is promised, and a deposed leader has more to cut off."""
    idempotent: bool = True
    """A plain one tries again, too, and its records may be there twice."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of one run."""

    scenario: str
    seed: int
    brokers: int
    partitions: int
    replicas: int
    config: dict[str, Property]
    """Of every broker."""
    racks: int = 0
    """Brokers are in so many, in turn; 0: none says."""
    producers: tuple[Producer, ...] = ()
    transactions: int = 0
    """Transactional producers, each of which writes to all partitions."""
    consumers: int = 0
    """Each reads all partitions."""
    members: int = 0
    """Of one group of consumers, which share the partitions."""
    steps: tuple[Step, ...] = ()
    actions: tuple[Action, ...] = ()

    def lines(self) -> list[str]:
        """For readers."""
        config = ", ".join(f"{name}={value}" for name, value in self.config.items())
        return [
            f"{self.scenario}, seed {self.seed}: {self.brokers} brokers, {self.partitions} partitions of "
            f"{self.replicas} replicas, {self.transactions} transactional producers, "
            f"{self.consumers} consumers, {self.members} members of a group",
            f"  with {config}",
            *(f"  {each}" for each in self.producers),
            *(f"  {each}" for each in self.steps),
            *(f"  administrator {each}" for each in self.actions),
        ]
