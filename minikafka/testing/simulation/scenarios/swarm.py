"""``swarm``: a cluster of its own for each seed, of whose features a random part is switched on.

Groce et al., "Swarm testing": what everything at once hides, because one feature suppresses another, is found
by many runs that each lack something.

1 to 5 brokers in racks or not; 1 to 8 partitions with 1 to 4 replicas; min.insync.replicas from 1 to 3 that
may change; idempotent and plain producers with several requests in flight; consumers, alone and in a group;
an administrator who moves, elects, creates, deletes and grows topics, sets configurations and deletes
records; one to three lists of faults that go on at the same time.

Checked, besides what the invariant checker and the judge of histories see: every topic becomes whole and
takes records; every move arrives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.testing.history.operations import Kind, Record
from minikafka.testing.history.recorder import at_offsets, text
from minikafka.testing.simulation.client import make_batch, pause_or_raise
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.administrator import (
    PAUSE_MS,
    Administrator,
    assignments,
    check_configs,
    check_hosts,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, ClusterRun, until
from minikafka.testing.simulation.scenarios.faults import carry_out, draw_fault
from minikafka.testing.simulation.scenarios.group_member import GroupMember, GroupOffsets
from minikafka.testing.simulation.scenarios.plan import (
    TOPIC,
    Action,
    ActionKind,
    Fault,
    FaultKind,
    Plan,
    Producer,
    Step,
)
from minikafka.testing.simulation.simulation import Simulation

OTHER_TOPICS = ("u", "v")
"""Those that come and go."""
STEPS_MAX = 6
ACTIONS_MAX = 16
TIMEOUTS_MS = (1_000, 5_000)
IN_FLIGHT_MAX = 5
"""``max.in.flight.requests.per.connection`` up to which an idempotent producer keeps the order."""

_POWER = (FaultKind.POWER_OFF, FaultKind.POWER_OFF_IN_NEW_EPOCH)
_LINKS = (FaultKind.ONE_WAY, FaultKind.FLAPPING_LINK, FaultKind.SLOW_LINK)


def draw_swarm(seed: int, rng: random.Random) -> Plan:
    """A plan of the whole space."""
    count = rng.choice((1, 2, 3, 3, 3, 4, 5))
    brokers = range(1, count + 1)
    replicas = rng.randint(1, min(4, count))
    partitions = rng.choice((1, 1, 2, 2, 3, 4, 6, 8))
    config = dict(CONFIG)
    config["min.insync.replicas"] = rng.randint(1, min(3, replicas))
    config["default.replication.factor"] = replicas
    config["offsets.topic.replication.factor"] = min(3, count)
    config["offsets.topic.num.partitions"] = 2
    config["group.initial.rebalance.delay.ms"] = rng.choice((0, 1000))
    config["log.roll.ms"] = rng.choice((2000, 5000, 3_600_000))
    config["replica.lag.time.max.ms"] = rng.choice((2000, 4000, 10_000))
    if rng.random() < 0.3:
        config["log.flush.interval.messages"] = rng.choice((1, 10))
    if rng.random() < 0.3:
        config["auto.leader.rebalance.enable"] = "true"
        config["leader.imbalance.check.interval.seconds"] = 2
    producers = tuple(_draw_producer(rng, partitions) for _ in range(rng.randint(1, 3)))
    return Plan(
        scenario="swarm", seed=seed, brokers=count, partitions=partitions, replicas=replicas, config=config,
        racks=rng.choice((0, 0, 2, 3)), producers=producers, consumers=rng.choice((0, 0, 1)),
        members=rng.choice((0, 0, 1, 2, 3)),
        steps=_draw_steps(rng, brokers, replicas), actions=_draw_actions(rng, brokers, partitions, replicas),
    )  # fmt: skip


def _draw_producer(rng: random.Random, partitions: int) -> Producer:
    idempotent = rng.random() < 0.6
    return Producer(
        partition=rng.randrange(partitions), pause_ms=rng.choice((20, 60, 150, 300)),
        in_flight=rng.choice((1, 1, IN_FLIGHT_MAX)), timeout_ms=rng.choice(TIMEOUTS_MS),
        acks=-1 if idempotent else rng.choice((-1, 1)), idempotent=idempotent,
    )  # fmt: skip


def _draw_steps(rng: random.Random, brokers: Sequence[int], replicas: int) -> tuple[Step, ...]:
    """Some kinds of faults, one to three at the same time; a power cut only where it can lose nothing."""
    several = len(brokers) > 1
    kinds = [
        kind for kind in FaultKind
        if kind not in _POWER and (several or kind not in _LINKS) and rng.random() < 0.5
    ] or [FaultKind.KILL]  # fmt: skip
    # What fsync has failed to write, and the kernel forgotten, is lost with the power: nothing can know it.
    has_power_cuts = replicas > 1 and rng.random() < 0.5
    steps = []
    for _ in range(rng.randint(1, STEPS_MAX)):
        after_ms = rng.randint(100, 3000)
        when_whole = rng.random() < 0.4
        if when_whole and has_power_cuts and rng.random() < 0.6:
            faults: list[Fault] = [draw_fault(rng, brokers, rng.choice(_POWER), rng.choice(brokers))]
        else:
            victims = rng.sample(brokers, rng.randint(1, min(3, len(brokers))))
            faults = [draw_fault(rng, brokers, rng.choice(kinds), victim) for victim in victims]
        steps.append(Step(after_ms=after_ms, faults=tuple(faults), when_whole=when_whole))
    return tuple(steps)


def _draw_actions(
    rng: random.Random, brokers: Sequence[int], partitions: int, replicas: int
) -> tuple[Action, ...]:
    kinds = [kind for kind in ActionKind if rng.random() < 0.5]
    if not kinds or rng.random() < 0.3:
        return ()
    actions = []
    for _ in range(rng.randint(1, ACTIONS_MAX)):
        kind = rng.choice(kinds)
        is_of_other = kind in (ActionKind.CREATE_TOPIC, ActionKind.DELETE_TOPIC)
        number = 0
        named: tuple[int, ...] = ()
        match kind:
            case ActionKind.REASSIGN:
                # With fewer than it had, a power cut could hit the only ones that have all.
                named = tuple(rng.sample(brokers, rng.randint(replicas, min(4, len(brokers)))))
            case ActionKind.CREATE_TOPIC:
                number, named = rng.randint(1, 4), tuple(brokers[:replicas])
            case ActionKind.GROW_TOPIC:
                number = rng.randint(2, 6)
            case ActionKind.SET_MIN_INSYNC:
                number = rng.randint(1, min(3, replicas))
            case ActionKind.DELETE_RECORDS:
                number = rng.choice((10, 50, 100))
            case _:
                pass
        topic = rng.choice(OTHER_TOPICS) if is_of_other or kind is ActionKind.GROW_TOPIC else TOPIC
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


class SwarmRun(ClusterRun):
    """What ``draw_swarm`` has drawn."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        super().__init__(simulation, plan)
        self.group = GroupOffsets()
        self.read_by_group: set[int] = set()
        """The partitions that members have read lately."""

    async def play(self) -> None:
        await self.start()
        self.produce()
        self.consume()
        members = (GroupMember(self, number) for number in range(self.plan.members))
        self._consumers += [asyncio.create_task(member.work()) for member in members]
        administrator = asyncio.create_task(Administrator(self).work())
        await carry_out(self, self.plan.steps)
        await administrator
        await until_moved(self, [TOPIC, *OTHER_TOPICS])
        await self.finish()
        check_hosts(self, TOPIC)
        check_configs(self, TOPIC)

    async def _produce(self, number: int, plan: Producer) -> None:
        if plan.idempotent and plan.in_flight == 1:
            await super()._produce(number, plan)
        else:
            await PipeliningProducer(self, number, plan).work()

    def _is_whole(self) -> bool:
        """Of every topic: a group's offsets and a topic of the administrator can be lost, too."""
        tree = self.simulation.store.tree
        wanted = {
            (topic, number)
            for topic in tree.children(paths.TOPICS)
            for number in assignments(self, topic)
        }  # fmt: skip
        whole = {
            tuple(partition.topic_partition)
            for broker in self.simulation.brokers.values()
            for partition in hosted_partitions(broker)
            if partition.is_leader and set(partition.isr) == set(partition.replicas)
        }
        return wanted <= whole

    async def finish(self) -> None:
        """And of the other topics, that they are whole or gone."""
        await until(lambda: not self._unsettled(), "other topics are whole or gone")
        await self.until_whole()
        self.read_by_group.clear()
        await until(self._is_read_by_group, "the group reads every partition")
        await super().finish()

    def _is_read_by_group(self) -> bool:
        self.raise_what_failed()
        return not self.plan.members or self.read_by_group >= set(range(self.plan.partitions))

    async def check_history(self) -> None:
        """And where the group is."""
        if self.plan.members:
            await GroupMember(self, self.plan.members).look()
        await super().check_history()

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
    """

    def __init__(self, run: SwarmRun, number: int, plan: Producer) -> None:
        self._run = run
        self._plan = plan
        self._number = number
        self._name = f"producer-{number}"
        self._client = run.client_of(self._name, plan)
        self._producer_id = self._epoch = -1

    async def work(self) -> None:
        """Until the run stops."""
        run, rng = self._run, self._run.simulation.rng(self._name)
        if self._plan.idempotent:
            self._producer_id, self._epoch = await self._client.init_producer_id()
        sending: dict[int, asyncio.Task[None]] = {}
        count = 0
        while not run.is_stopping:
            # A broker remembers so many batches: none is sent that would make it forget one that is tried.
            while sending and count - min(sending) >= self._plan.in_flight:
                await sending.pop(min(sending))
            sending[count] = asyncio.create_task(self._send(count))
            count += 1
            await run.rest(rng, self._plan.pause_ms, lulls=self._plan.rests)
        await asyncio.gather(*sending.values())

    async def _send(self, count: int) -> None:
        deadline = self._run.simulation.loop.time() + 600
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
                if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:  # one that is tried again comes before it
                    await asyncio.sleep(0.1)
                else:
                    await pause_or_raise(error, deadline)

    async def _try(self, count: int, value: bytes) -> None:
        """Raises KafkaError, BrokerUnavailable: it may be there all the same."""
        plan, identity, process = self._plan, {}, self._name
        if plan.idempotent:
            identity = {
                "producer_id": self._producer_id, "producer_epoch": self._epoch, "base_sequence": count,
            }  # fmt: skip
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
