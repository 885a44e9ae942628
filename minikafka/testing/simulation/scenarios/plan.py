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
COMPACTED = "c"
"""The topic of the keyed producer, where there is one."""
COPIES = "w"
"""What transactional copiers write what they read to, where there are some."""
TRANSACTORS_FROM, RESTRICTED = 100, 300
"""The numbers of transactional producers, and of the client whose rights come and go, in what they write:
``number-count``. Other producers have those from 0."""


class FaultKind(StrEnum):
    """What happens to a broker, or to all of them. ``scenarios.faults`` does it."""

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
    POWER_OFF_IN_FLUSH = "power-off-in-flush"
    """Of a machine whose disk has become slow."""
    READ_ERROR = "read-error"
    WRITE_ERROR = "write-error"
    DISK_FULL = "disk-full"
    CLOCK_JUMP = "clock-jump"
    CLOCK_DRIFT = "clock-drift"
    CUT_IN_FRAME = "cut-in-frame"
    """Connections end, and of what was being sent a part has come."""
    KILL_ALL = "kill-all"
    POWER_OFF_ALL = "power-off-all"
    ROLLING_RESTART = "rolling-restart"
    """Clean restarts of one broker after the other, with another configuration."""
    LATE_EXPIRY = "late-expiry"
    """The store ends sessions long after their time."""
    BIT_ROT = "bit-rot"
    """A bit of a closed segment of one replica."""


class Role(StrEnum):
    """What a broker is when a fault comes, in partition 0 where there are several."""

    CONTROLLER = "controller"
    LEADER = "leader"
    TRANSACTION_COORDINATOR = "transaction-coordinator"
    GROUP_COORDINATOR = "group-coordinator"
    SHARE_COORDINATOR = "share-coordinator"
    """Only where a group shares."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault, which ends."""

    kind: FaultKind
    victim: int
    """0: all."""
    aim: Role | None = None
    """It hits the broker that is this, instead of ``victim``, where there is one."""
    after_ms: int = 0
    """Since the step began: while another one lasts."""
    other: int = 0
    """The broker at the other end of a link; 0: there is none."""
    lasts_ms: int = 0
    amount: int = 0
    """How far a clock jumps in ms or drifts in ms per s, how many milliseconds a disk, a link or the store
    takes, after how many operations it fails, how long sessions live on in ms, which bit rots."""
    order: tuple[int, ...] = ()
    """Of all brokers, for faults of all of them: in which they return. ``lasts_ms`` is until the first does,
    and then between each two."""
    config: dict[str, Property] = {}
    """What a rolling restart changes."""

    def __str__(self) -> str:
        other = f" to {self.other}" if self.other else ""
        order = f", in the order {self.order}" if self.order else ""
        config = "".join(f", {name}={value}" for name, value in self.config.items())
        victim = f"the {self.aim}" if self.aim else self.victim or "all"
        after = f" {self.after_ms} ms later" if self.after_ms else ""
        return f"{self.kind} of {victim}{other} for {self.lasts_ms} ms{after}{order}{config}"


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
    SET_RETENTION = "set-retention"
    SET_CLEANUP_POLICY = "set-cleanup-policy"
    SET_QUOTA = "set-quota"
    SET_THROTTLE = "set-throttle"
    """Of replicas that are not in sync."""
    MOVE_LOG_DIR = "move-log-dir"
    GRANT = "grant"
    REVOKE = "revoke"
    """Of the restricted client's right to write to ``TOPIC``."""
    SET_CREDENTIAL = "set-credential"
    REMOVE_CREDENTIAL = "remove-credential"


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
    """Partitions, replicas, min.insync.replicas, how many of the oldest records are deleted in percent (what
    is above 100 is a number of records that are not committed, which is refused);
    retention in ms or a rate in bytes/s (0: it is removed); which cleanup policy, log directory, password."""

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


class Transactor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A transactional producer."""

    copies: bool = False
    """It reads all partitions of ``TOPIC`` and writes what it finds to ``COPIES``, with the positions of its
    group; others write to ``TOPIC``."""
    pause_ms: int = 50
    timeout_ms: int = 10_000
    """Of its transactions. Now and then it pauses for longer in the middle of one, where it ``overruns``."""
    overruns: bool = False
    has_rivals: bool = False
    """Whether another one with its transactional id takes over now and then, in the middle of a
    transaction."""
    leaves: bool = False
    """Its last transaction is never ended."""


class Consumer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reads all partitions of ``TOPIC``."""

    read_committed: bool = False
    rack: str = ""
    """Where brokers select replicas it is sent to the one in its rack (KIP-392). Empty: it does not say."""


class GroupProtocol(StrEnum):
    """``group.protocol``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of the group that uses this protocol, whose members share the partitions of ``TOPIC``."""

    protocol: GroupProtocol = GroupProtocol.CLASSIC
    is_static: bool = False
    """Has a ``group.instance.id`` (KIP-345): what goes away comes back as the same one."""


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
    transactors: tuple[Transactor, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    members: tuple[Member, ...] = ()
    share_members: int = 0
    """Of the share group that reads ``TOPIC``."""
    keys: int = 0
    """Of the producer to ``COMPACTED``; 0: there is none."""
    log_dirs: int = 1
    """Of each broker."""
    is_secured: bool = False
    """Whether brokers authorize, and there is a client whose rights come and go."""
    steps: tuple[Step, ...] = ()
    actions: tuple[Action, ...] = ()

    def lines(self) -> list[str]:
        """For readers."""
        config = ", ".join(f"{name}={value}" for name, value in self.config.items())
        actors = (*self.producers, *self.transactors, *self.consumers, *self.members)
        return [
            f"{self.scenario}, seed {self.seed}: {self.brokers} brokers, {self.partitions} partitions of "
            f"{self.replicas} replicas, {self.racks} racks, {self.log_dirs} log directories, "
            f"{self.keys} keys, {'secured' if self.is_secured else 'open'}",
            f"  with {config}",
            *(f"  {each}" for each in actors),
            *(f"  {each}" for each in self.steps),
            *(f"  administrator {each}" for each in self.actions),
        ]
