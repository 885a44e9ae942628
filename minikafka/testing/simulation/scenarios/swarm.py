"""``draw_swarm``: a cluster of its own for each seed, of whose features a random part is switched on; and
``SwarmRun``, which carries it out.

Groce et al., "Swarm testing": what everything at once hides, because one feature suppresses another, is found
by many runs that each lack something. Who takes part is in ``transactions``, ``group_member``,
``administrator`` and here; consumers are every scenario's.

Checked, besides what the invariant checker and the judge of histories see: every topic becomes whole and
takes records; every move arrives; what these modules say of themselves.

``RestrictedClient`` logs in with a password that changes, and may write to ``TOPIC`` or not. Checked: what
was denied is not there (a history shows it); it is told nothing but that it may not, or what passes; at the
end rights that are given work, and rights that are taken away end its writing.

``KeyedProducer`` writes larger and larger numbers under a few keys, and says what compaction must keep.
Checked (I15): each key's newest acknowledged value is there, at its offset, or one that was sent after it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection, Sequence
from itertools import pairwise, product

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.network.broker_client import AuthenticationFailed, BrokerUnavailable
from minikafka.network.client_security import client_security
from minikafka.protocol.records.records import Record as LogRecord
from minikafka.protocol.records.records import build_batch
from minikafka.testing.broker import Property
from minikafka.testing.history import Kind, Record
from minikafka.testing.history_recorder import at_offsets, text
from minikafka.testing.simulation.client import PASSING, SimulatedClient, make_batch, pause_or_raise
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios import group_member
from minikafka.testing.simulation.scenarios.administrator import (
    CLEANUP_POLICIES,
    LOG_DIRECTORIES,
    MECHANISM,
    PAUSE_MS,
    SECURE_PORT,
    USER,
    Administrator,
    assignments,
    check_configs,
    check_hosts,
    every_topic_is_whole,
    insist,
    lift_limits,
    log_dirs,
    password,
    secured,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, ClusterRun
from minikafka.testing.simulation.scenarios.faults import (
    FETCH_BYTES,
    HEAL_WITHIN_MS,
    carry_out,
    draw_fault,
    overlapping,
    until,
)
from minikafka.testing.simulation.scenarios.group_member import (
    CONSUMER_GROUP,
    AnyMember,
    ConsumerGroupMember,
    GroupMember,
    GroupOffsets,
)
from minikafka.testing.simulation.scenarios.group_member import GROUP as CLASSIC_GROUP
from minikafka.testing.simulation.scenarios.plan import (
    COMPACTED,
    COPIES,
    RESTRICTED,
    TOPIC,
    Action,
    ActionKind,
    Consumer,
    Fault,
    FaultKind,
    GroupProtocol,
    Member,
    Plan,
    Producer,
    Step,
    Transactor,
)
from minikafka.testing.simulation.scenarios.transactions import (
    Copier,
    TransactionalClient,
    draw_transactor,
    until_ended,
)
from minikafka.testing.simulation.simulation import Simulation

RESTRICTED_PAUSE_MS = 250
PASSWORDS = 2
KNOWN_EVERYWHERE_MS = 3_000
"""Rules travel to the brokers by the store, in milliseconds when all is well."""

KEYED_PAUSE_MS = 120
KEYED_CONFIG: dict[str, Property] = {"log.cleaner.backoff.ms": 500}
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1500",
    "segment.jitter.ms": "0",
    "file.delete.delay.ms": "1000",
}
"""Compaction has something to do every other second."""

OTHER_TOPICS = ("u", "v")
"""Those that come and go."""
STEPS_MAX = 6
ACTIONS_MAX = 16
TIMEOUTS_MS = (1_000, 5_000)
DEADLINE_MS = 600_000
"""How long one batch is tried."""
IN_FLIGHT_MAX = 5
"""``max.in.flight.requests.per.connection`` up to which an idempotent producer keeps the order."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_POWER = (FaultKind.POWER_OFF, FaultKind.POWER_OFF_IN_NEW_EPOCH, FaultKind.POWER_OFF_IN_FLUSH)
_LINKS = (FaultKind.ONE_WAY, FaultKind.FLAPPING_LINK, FaultKind.SLOW_LINK)
_OF_ALL = (FaultKind.KILL_ALL, FaultKind.POWER_OFF_ALL, FaultKind.ROLLING_RESTART)
_ALONE = (*_POWER, *_OF_ALL, FaultKind.BIT_ROT)
"""Nothing else happens meanwhile."""
_DISKS = (FaultKind.READ_ERROR, FaultKind.WRITE_ERROR, FaultKind.DISK_FULL)

_RIGHTS = (
    ActionKind.GRANT, ActionKind.REVOKE, ActionKind.SET_CREDENTIAL, ActionKind.REMOVE_CREDENTIAL,
)  # fmt: skip


# Clients


class RestrictedClient:
    """A plain producer, until the run stops."""

    def __init__(self, run: SwarmRun) -> None:
        self._run = run
        self._name = "restricted"
        self._rng = run.simulation.rng(self._name)
        self._password = 0
        self._client = self._log_in()
        self._is_revoked = False
        self.written = self.denied = 0

    def _log_in(self) -> SimulatedClient:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        security = client_security(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": (
                    f'{module} required username="{USER}" password="{password(self._password)}";'
                ),
            }
        )
        addresses = [(host, SECURE_PORT) for host, _ in self._run.addresses]
        return SimulatedClient(addresses, client_id=self._name, security=security)

    async def work(self) -> None:
        """Raises KafkaError: another error than of rights; AssertionError."""
        count = 0
        while not self._run.is_stopping:
            partition = self._rng.randrange(self._run.plan.partitions)
            try:
                await self._send(partition, b"%d-%d" % (RESTRICTED, count))
            except AuthenticationFailed:
                self._password = (self._password + 1) % PASSWORDS
                await self._client.close()
                self._client = self._log_in()
            except BrokerUnavailable:
                self._client.forget_leader(TOPIC, partition)
            except KafkaError as error:
                self._client.forget_leader(TOPIC, partition)
                if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.denied += 1
                elif error.code not in PASSING:
                    raise
            count += 1
            await asyncio.sleep(RESTRICTED_PAUSE_MS / 1000)

    async def _send(self, partition: int, value: bytes) -> None:
        """Once: what was denied stays so."""
        may_write = not self._is_revoked
        records = (Record(TOPIC, partition, None, text(value)),)
        async with self._run.recorder.operation(self._name, Kind.SEND, records=records) as sent:
            sent.records = at_offsets(
                records, await self._client.produce(TOPIC, partition, make_batch([value]))
            )
        assert may_write, f"{USER} may not write to {TOPIC}, and has written {value!r}"
        self.written += 1

    async def give_rights(self) -> None:
        """To log in, and to write. Raises TimeoutError."""
        for kind in (ActionKind.SET_CREDENTIAL, ActionKind.GRANT):
            await insist(self._run, Action(after_ms=0, kind=kind))

    async def check(self) -> None:
        """When the faults are over. Raises TimeoutError, AssertionError."""
        run = self._run
        await self.give_rights()
        before = self.written
        await until(lambda: self.written > before, f"{USER} may write, and does")
        await insist(run, Action(after_ms=0, kind=ActionKind.REVOKE))
        await asyncio.sleep(KNOWN_EVERYWHERE_MS / 1000)
        self._is_revoked = True
        denied = self.denied
        await until(lambda: self.denied > denied, f"{USER} may not write, and is told so")


class KeyedProducer:
    """One record after the other, each until it is there."""

    def __init__(self, run: SwarmRun) -> None:
        self._run = run
        self._client = SimulatedClient(run.addresses, client_id="keyed-producer")
        self._acked: dict[bytes, tuple[int, int]] = {}
        """By key: the offset and the number of the newest one that was acknowledged."""

    async def work(self) -> None:
        """Until the run stops."""
        run, rng, number = self._run, self._run.simulation.rng("keyed-producer"), 0
        while not run.is_stopping:
            key = b"k%d" % rng.randrange(run.plan.keys)
            record = LogRecord(0, time.time_ns() // 1_000_000, key, b"%d" % number, ())
            offset = await self._send(build_batch([record]))
            self._acked[key] = (offset, number)
            number += 1
            await run.rest(rng, KEYED_PAUSE_MS)

    async def _send(self, batch: bytes) -> int:
        deadline = self._run.simulation.loop.time() + 600
        while True:
            try:
                return await self._client.produce(COMPACTED, 0, batch)
            except (KafkaError, BrokerUnavailable) as error:
                self._client.forget_leader(COMPACTED, 0)
                await pause_or_raise(error, deadline)

    async def check(self) -> None:
        """When it has stopped. Raises AssertionError."""
        newest: dict[bytes, tuple[int, int]] = {}
        for record in await self._read():
            newest[record.key or b""] = (record.offset, int(record.value or b"-1"))
        for key, (offset, number) in self._acked.items():
            found = newest.get(key, (-1, -1))
            # The same record once more, after an answer that was lost, is at a later offset.
            assert found == (offset, number) or (found[0] > offset and found[1] >= number), (
                f"I15: {number} of {key!r} was acked at {offset}; the newest is {found[1]} at {found[0]}"
            )

    async def _read(self) -> list[LogRecord]:
        deadline = self._run.simulation.loop.time() + 60
        records: list[LogRecord] = []
        offset = 0
        while True:
            try:
                fetched = await self._client.fetch(COMPACTED, 0, offset)
            except (KafkaError, BrokerUnavailable) as error:
                self._client.forget_leader(COMPACTED, 0)
                await pause_or_raise(error, deadline)
                continue
            records += fetched.records
            if fetched.next_offset == offset:
                return records
            offset = fetched.next_offset


# Drawing


def draw_swarm(seed: int, rng: random.Random) -> Plan:
    """A plan of the whole space."""
    count = rng.choice((1, 2, 3, 3, 3, 4, 5))
    brokers = range(1, count + 1)
    replicas = rng.randint(1, min(4, count))
    partitions = rng.choice((1, 1, 2, 2, 3, 4, 6, 8))
    config = _draw_config(rng, count, replicas)
    racks = rng.choice((0, 0, 2, 3))
    transactors = _draw_transactors(rng)
    members = _draw_members(rng)
    keys = rng.choice((1, 3, 8)) if rng.random() < 0.15 else 0
    log_dirs = 2 if rng.random() < 0.2 else 1
    is_secured = rng.random() < 0.12
    if transactors:
        config |= _config_of_transactions(rng, count)
    if any(member.protocol is GroupProtocol.CONSUMER for member in members):
        config |= group_member.CONSUMER_GROUP_CONFIG
    if racks and rng.random() < 0.6:
        config["replica.selector.class"] = RACK_AWARE
    if keys:
        config |= KEYED_CONFIG
    steps = _draw_steps(rng, brokers, replicas)
    drawn = {fault.kind for step in steps for fault in step.faults}
    if FaultKind.POWER_OFF_ALL in drawn:
        config["log.flush.interval.messages"] = 1
    if FaultKind.BIT_ROT in drawn:
        config["log.roll.ms"] = 2_000  # only closed segments rot
    kinds = [kind for kind in ActionKind if kind not in _RIGHTS and rng.random() < 0.4]
    if not keys and ActionKind.SET_CLEANUP_POLICY in kinds:
        kinds.remove(ActionKind.SET_CLEANUP_POLICY)
    if log_dirs == 1 and ActionKind.MOVE_LOG_DIR in kinds:
        kinds.remove(ActionKind.MOVE_LOG_DIR)
    if ActionKind.SET_RETENTION in kinds:
        config["log.retention.check.interval.ms"] = 1_000
    kinds = [] if rng.random() < 0.3 else kinds
    if is_secured:
        kinds += _RIGHTS
    return Plan(
        scenario="swarm", seed=seed, brokers=count, partitions=partitions, replicas=replicas, config=config,
        racks=racks, producers=tuple(_draw_producer(rng, partitions) for _ in range(rng.randint(1, 3))),
        transactors=transactors, consumers=_draw_consumers(rng, racks, bool(transactors)), members=members,
        keys=keys, log_dirs=log_dirs, is_secured=is_secured,
        steps=steps, actions=_draw_actions(rng, brokers, partitions, replicas, kinds),
    )  # fmt: skip


def _draw_config(rng: random.Random, brokers: int, replicas: int) -> dict[str, Property]:
    config = dict(CONFIG)
    config["min.insync.replicas"] = rng.randint(1, min(3, replicas))
    config["default.replication.factor"] = replicas
    config["offsets.topic.replication.factor"] = min(3, brokers)
    config["offsets.topic.num.partitions"] = 2
    config["group.initial.rebalance.delay.ms"] = rng.choice((0, 1000))
    config["log.roll.ms"] = rng.choice((2000, 5000, 3_600_000))
    config["replica.lag.time.max.ms"] = rng.choice((2000, 4000, 10_000))
    config["replica.fetch.max.bytes"] = rng.choice(FETCH_BYTES)
    config["log.flush.offset.checkpoint.interval.ms"] = rng.choice((200, 60_000))
    if rng.random() < 0.3:
        config["log.flush.interval.messages"] = rng.choice((1, 10))
    if rng.random() < 0.3:
        config["auto.leader.rebalance.enable"] = "true"
        config["leader.imbalance.check.interval.seconds"] = 2
    return config


def _config_of_transactions(rng: random.Random, brokers: int) -> dict[str, Property]:
    return {
        "transaction.state.log.replication.factor": min(3, brokers),
        "transaction.state.log.min.isr": rng.randint(1, min(2, brokers)),
        "transaction.state.log.num.partitions": rng.choice((1, 2)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    }


def _draw_producer(rng: random.Random, partitions: int) -> Producer:
    idempotent = rng.random() < 0.6
    return Producer(
        partition=rng.randrange(partitions), pause_ms=rng.choice((20, 60, 150, 300)),
        in_flight=rng.choice((1, 1, IN_FLIGHT_MAX)), timeout_ms=rng.choice(TIMEOUTS_MS),
        acks=-1 if idempotent else rng.choice((-1, 1)), idempotent=idempotent,
    )  # fmt: skip


def _draw_transactors(rng: random.Random) -> tuple[Transactor, ...]:
    if rng.random() > 0.2:
        return ()
    return tuple(
        draw_transactor(rng, copies=rng.random() < 0.35, pause_ms=rng.choice((200, 500, 1_000)))
        for _ in range(rng.choice((1, 1, 2)))
    )


def _draw_consumers(rng: random.Random, racks: int, has_transactions: bool) -> tuple[Consumer, ...]:
    return tuple(
        Consumer(
            read_committed=rng.random() < (0.6 if has_transactions else 0.2),
            rack=f"rack-{rng.randrange(racks)}" if racks and rng.random() < 0.7 else "",
        )
        for _ in range(rng.choice((0, 1)) if racks or has_transactions else rng.choice((0, 0, 1)))
    )


def _draw_members(rng: random.Random) -> tuple[Member, ...]:
    """Of one group, or of one of each protocol."""
    count, static_share = rng.choice((0, 0, 0, 1, 2, 3)), rng.choice((0.0, 0.0, 0.7))
    protocols = rng.choice(
        (
            (GroupProtocol.CLASSIC,), (GroupProtocol.CLASSIC,), (GroupProtocol.CONSUMER,),
            (GroupProtocol.CONSUMER,), tuple(GroupProtocol),
        )
    )  # fmt: skip
    return tuple(
        Member(protocol=protocols[number % len(protocols)], is_static=rng.random() < static_share)
        for number in range(count)
    )


def _draw_steps(rng: random.Random, brokers: Sequence[int], replicas: int) -> tuple[Step, ...]:
    """Some kinds of faults, one to three at the same time; a power cut only where it can lose nothing."""
    several = len(brokers) > 1
    kinds = [
        kind for kind in FaultKind
        if kind not in _ALONE and (several or kind not in _LINKS) and rng.random() < 0.5
    ] or [FaultKind.KILL]  # fmt: skip
    # What fsync has failed to write, and the kernel forgotten, is lost with the power: nothing can know it.
    alone: list[FaultKind] = []
    if replicas > 1 and rng.random() < 0.5:
        alone += _POWER
    alone += [kind for kind in (FaultKind.KILL_ALL, FaultKind.ROLLING_RESTART) if rng.random() < 0.15]
    if replicas > 1 and rng.random() < 0.15:
        alone.append(FaultKind.BIT_ROT)
    if rng.random() < 0.08:
        alone.append(FaultKind.POWER_OFF_ALL)
        kinds = [kind for kind in kinds if kind not in _DISKS] or [FaultKind.KILL]
    steps = []
    for _ in range(rng.randint(1, STEPS_MAX)):
        after_ms = rng.randint(100, 3000)
        when_whole = rng.random() < 0.4
        if when_whole and alone and rng.random() < 0.6:
            faults: list[Fault] = [draw_fault(rng, brokers, rng.choice(alone), rng.choice(brokers))]
        else:
            victims = rng.sample(brokers, rng.randint(1, min(3, len(brokers))))
            faults = overlapping(
                rng, [draw_fault(rng, brokers, rng.choice(kinds), victim) for victim in victims]
            )
        steps.append(Step(after_ms=after_ms, faults=tuple(faults), when_whole=when_whole))
    return tuple(steps)


def _draw_actions(
    rng: random.Random,
    brokers: Sequence[int],
    partitions: int,
    replicas: int,
    kinds: Sequence[ActionKind],
) -> tuple[Action, ...]:
    actions = []
    for _ in range(rng.randint(1, ACTIONS_MAX) if kinds else 0):
        kind = rng.choice(kinds)
        topic, number = TOPIC, 0
        named: tuple[int, ...] = ()
        match kind:
            case ActionKind.REASSIGN:
                # With fewer than it had, a power cut could hit the only ones that have all.
                named = tuple(rng.sample(brokers, rng.randint(replicas, min(4, len(brokers)))))
            case ActionKind.CREATE_TOPIC:
                topic, number, named = rng.choice(OTHER_TOPICS), rng.randint(1, 4), tuple(brokers[:replicas])
            case ActionKind.DELETE_TOPIC:
                topic = rng.choice(OTHER_TOPICS)
            case ActionKind.GROW_TOPIC:
                topic, number = rng.choice(OTHER_TOPICS), rng.randint(2, 6)
            case ActionKind.SET_CLEANUP_POLICY:
                topic, number = COMPACTED, rng.randrange(len(CLEANUP_POLICIES))
            case _:
                number = _draw_number(rng, kind, replicas)
        actions.append(
            Action(
                after_ms=rng.randint(*PAUSE_MS),
                kind=kind,
                ask=rng.choice(brokers),
                topic=topic,
                partition=rng.randrange(partitions),
                replicas=named,
                number=number,
            )
        )
    return tuple(actions)


def _draw_number(rng: random.Random, kind: ActionKind, replicas: int) -> int:
    match kind:
        case ActionKind.SET_MIN_INSYNC:
            return rng.randint(1, min(3, replicas))
        case ActionKind.DELETE_RECORDS:
            return rng.choice((10, 50, 100, 101, 105))
        case ActionKind.SET_RETENTION:
            return rng.choice((0, 2_000, 6_000))
        case ActionKind.SET_QUOTA:
            return rng.choice((0, 500, 2_000))
        case ActionKind.SET_THROTTLE:
            return rng.choice((0, 5_000, 20_000))
        case ActionKind.MOVE_LOG_DIR:
            return rng.randrange(len(LOG_DIRECTORIES))
        case ActionKind.SET_CREDENTIAL:
            return rng.randrange(2)
        case _:
            return 0


# The run


class SwarmRun(ClusterRun):
    """What ``draw_swarm`` has drawn."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        super().__init__(simulation, plan)
        self._group_offsets = {protocol: GroupOffsets() for protocol in GroupProtocol}
        self.read_by_group: set[tuple[str, int]] = set()
        """The groups' partitions that members have read lately."""
        self._restricted = RestrictedClient(self) if plan.is_secured else None
        self._keyed = KeyedProducer(self) if plan.keys else None
        self._pipelining: list[PipeliningProducer] = []
        self._transactors = [
            (Copier if each.copies else TransactionalClient)(self, number, each)
            for number, each in enumerate(plan.transactors)
        ]

    async def play(self) -> None:
        await self.start()
        self.produce()
        self.consume()
        members = [self._member(number, plan) for number, plan in enumerate(self.plan.members)]
        self._consumers += [asyncio.create_task(member.work()) for member in members]
        administrator = asyncio.create_task(Administrator(self).work())
        await carry_out(self, self.plan.steps)
        await administrator
        await lift_limits(self)
        await until_moved(self, [TOPIC, *OTHER_TOPICS])
        await self.finish()
        check_hosts(self, TOPIC)
        check_configs(self, TOPIC)

    def properties_of(self, node_id: int) -> dict[str, Property]:
        host = f"broker-{node_id}"
        return {
            **super().properties_of(node_id),
            **log_dirs(self.plan),
            **(secured(host) if self.plan.is_secured else {}),
        }

    async def start(self) -> None:
        await super().start()
        if self._keyed is not None:
            await self.client.create_topic(
                COMPACTED, replication_factor=self.plan.replicas, configs=TOPIC_CONFIGS
            )
        if any(each.copies for each in self.plan.transactors):
            await self.client.create_topic(COPIES, replication_factor=self.plan.replicas)
        if self._restricted is not None:
            await self._restricted.give_rights()

    def produce(self) -> None:
        super().produce()
        others = [*self._transactors, self._keyed, self._restricted]
        self._producers += [asyncio.create_task(each.work()) for each in others if each is not None]

    @property
    def written_partitions(self) -> list[tuple[str, int]]:
        has_copies = any(each.copies for each in self.plan.transactors)
        return [*super().written_partitions, *([(COPIES, 0)] if has_copies else [])]

    def _member(self, number: int, plan: Member) -> AnyMember:
        kind = GroupMember if plan.protocol is GroupProtocol.CLASSIC else ConsumerGroupMember
        return kind(self, number, plan, self._group_offsets[plan.protocol])

    @property
    def _groups(self) -> set[str]:
        names = {GroupProtocol.CLASSIC: CLASSIC_GROUP, GroupProtocol.CONSUMER: CONSUMER_GROUP}
        return {names[member.protocol] for member in self.plan.members}

    async def _produce(self, number: int, plan: Producer) -> None:
        if plan.idempotent and plan.in_flight == 1:
            await super()._produce(number, plan)
        else:
            producer = PipeliningProducer(self, number, plan)
            self._pipelining.append(producer)
            await producer.work()

    def _is_whole(self) -> bool:
        """Of every topic: a group's offsets and a topic of the administrator can be lost, too."""
        return every_topic_is_whole(self)

    async def until_ready_for_faults(self) -> None:
        """A throttle may be below what is written, and is lifted when the cluster does not become whole. At
        the end, where 30 s are all there is, it was lifted before."""
        try:
            await self.until_whole()
        except TimeoutError:
            if not await lift_limits(self):
                raise
            await self.until_whole()

    async def finish(self) -> None:
        """And of the other topics, that they are whole or gone."""
        await until(lambda: not self._unsettled(), "other topics are whole or gone")
        await self.until_whole()
        self.read_by_group.clear()
        await until(self._is_read_by_groups, "each group reads every partition")
        if self._restricted is not None:
            await self._restricted.check()
        await super().finish()

    def _is_read_by_groups(self) -> bool:
        self.raise_what_failed()
        return self.read_by_group >= set(product(self._groups, range(self.plan.partitions)))

    async def check_history(self) -> None:
        """And where the groups are, what was copied, and what compaction has left."""
        for protocol in GroupProtocol:
            if any(member.protocol is protocol for member in self.plan.members):
                await self._member(len(self.plan.members), Member(protocol=protocol)).look()
        if self._transactors:
            await until_ended(self, (TOPIC, COPIES))
        for transactor in self._transactors:
            await transactor.check()
        if self._keyed is not None:
            await self._keyed.check()
        await super().check_history()
        if not self._has_retention:  # which may delete while all is read
            polls = [each for each in self.recorder.history() if each.process == "final"]
            seen = {record.value for poll in polls for record in poll.records}
            for producer in self._pipelining:
                producer.check(seen)

    async def read_to_end(self) -> None:
        """And afterwards what retention has deleted, which it may go on doing while all is read."""
        await super().read_to_end()
        if self._has_retention:
            for partition in range(self.plan.partitions):
                await self._note_deleted(partition)

    @property
    def _has_retention(self) -> bool:
        return any(action.kind is ActionKind.SET_RETENTION for action in self.plan.actions)

    async def _note_deleted(self, partition: int) -> None:
        """No client is told of what retention deletes."""
        deadline = self.simulation.loop.time() + HEAL_WITHIN_MS / 1000
        while True:
            try:
                start = await self.client.log_start(TOPIC, partition)
                return self.recorder.deleted_below("retention", TOPIC, partition, start)
            except (KafkaError, BrokerUnavailable) as error:
                self.client.forget_leader(TOPIC, partition)
                await pause_or_raise(error, deadline)

    def _unsettled(self) -> set[str]:
        """Of the other topics: what the store has and no broker leads whole, and what is hosted without
        it."""
        names: set[str] = set()
        led: dict[str, set[int]] = {}
        for broker in self.simulation.brokers.values():
            for partition in hosted_partitions(broker):
                topic, number = partition.topic_partition
                if topic in OTHER_TOPICS:
                    names.add(topic)
                    if partition.is_leader and set(partition.isr) == set(partition.replicas):
                        led.setdefault(topic, set()).add(number)
        deleting = set(self.simulation.store.tree.children(paths.DELETE_TOPICS))
        for topic in OTHER_TOPICS:
            if led.get(topic, set()) == set(assignments(self, topic)):
                names.discard(topic)
            elif assignments(self, topic):
                names.add(topic)
        return names | deleting


class PipeliningProducer:
    """Sends several batches without waiting for the answer to the one before; each is tried until it is
    there.

    An idempotent one's are in order and once. A plain one's may be twice, and out of order.

    A snapshot of producers has the last batch of each (Kafka's format). A leader that was stopped in an
    orderly way therefore does not know the batches before it again, and refuses those that are not answered
    yet, for good. Then nothing is known of any that are under way, and the producer begins again. But a batch
    is refused only because there is one after it, so none is missing in between.
    """

    def __init__(self, run: SwarmRun, number: int, plan: Producer) -> None:
        self._run = run
        self._plan = plan
        self._number = number
        self._name = f"producer-{number}"
        self._client = run.client_of(self._name, plan)
        self._producer_id = self._epoch = -1
        self._begun: list[int] = []
        """The counts of the batches with sequence 0."""
        self._end = 0
        self._under_way: set[int] = set()
        self._is_refused = False

    async def work(self) -> None:
        """Until the run stops."""
        run, rng = self._run, self._run.simulation.rng(self._name)
        await self._begin(0)
        sending: dict[int, asyncio.Task[None]] = {}
        count = 0
        while not run.is_stopping:
            # A broker remembers so many batches: none is sent that would make it forget one that is tried.
            while sending and count - min(sending) >= self._plan.in_flight:
                await sending.pop(min(sending))
            if self._is_refused:
                await asyncio.gather(*sending.values())
                sending.clear()
                await self._begin(count)
            sending[count] = asyncio.create_task(self._send(count))
            count = self._end = count + 1
            await run.rest(rng, self._plan.pause_ms, lulls=self._plan.rests)
        await asyncio.gather(*sending.values())

    def check(self, seen: Collection[str | None]) -> None:
        """Raises InvariantError: ``seen``, the values that there are, have a gap."""
        for first, end in pairwise((*self._begun, self._end)):
            counts = [count for count in range(first, end) if f"{self._number}-{count}" in seen]
            if counts and self._plan.idempotent and len(counts) != counts[-1] - counts[0] + 1:
                raise InvariantError(f"{self._name} sent {first} to {end - 1} in order; there are {counts}")

    async def _begin(self, count: int) -> None:
        self._begun.append(count)
        if self._plan.idempotent:
            self._producer_id, self._epoch = await self._client.init_producer_id(deadline_ms=DEADLINE_MS)
        self._is_refused = False

    async def _send(self, count: int) -> None:
        self._under_way.add(count)
        try:
            await self._send_until_known(count)
        finally:
            self._under_way.remove(count)

    async def _send_until_known(self, count: int) -> None:
        deadline = self._run.simulation.loop.time() + DEADLINE_MS / 1000
        tries = 0
        while True:
            value = b"%d-%d" % (self._number, count)
            if tries and not self._plan.idempotent:
                value += b"/%d" % tries  # what may be there twice is two records
            tries += 1
            try:
                return await self._try(count, value)
            except (KafkaError, BrokerUnavailable) as error:
                self._client.forget_leader(TOPIC, self._plan.partition)
                code = error.code if isinstance(error, KafkaError) else None
                if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    self._is_refused = self._is_refused or count == min(self._under_way)
                    if self._is_refused:
                        return
                    await asyncio.sleep(0.1)  # one that is tried again comes before it
                else:
                    await pause_or_raise(error, deadline)

    async def _try(self, count: int, value: bytes) -> None:
        """Raises KafkaError, BrokerUnavailable: it may be there all the same."""
        plan, identity, process = self._plan, {}, self._name
        if plan.idempotent:
            identity = {
                "producer_id": self._producer_id,
                "producer_epoch": self._epoch,
                "base_sequence": count - self._begun[-1],
            }
        else:
            process = f"{self._name}.{count % plan.in_flight}"  # nothing keeps those of the others in order
        records = (Record(TOPIC, plan.partition, None, text(value)),)
        async with self._run.recorder.operation(
            process, Kind.SEND, records=records, is_durable=plan.acks == -1
        ) as sent:
            batch = make_batch([value], **identity)
            try:
                offset = await self._client.produce(TOPIC, plan.partition, batch, acks=plan.acks)
            except KafkaError as error:
                if error.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    raise
            else:
                sent.records = at_offsets(records, offset)
